"""Decompositions, solvers and norms of matrices."""

from thunder_core.symbols.row import Row, row, rows

ROWS: list[Row] = [
    row("torch.det(input)"),
    row("torch.logdet(input)"),
    row("torch.slogdet(input)"),
    row("torch.inverse(input)", "linalg.inv(input/A)"),
    row("torch.matrix_power(input, n)", "linalg.matrix_power(input/A, n)"),
    row("torch.matrix_exp(input)", "linalg.matrix_exp(input/A)"),
    row("torch.cross(input, other, dim=None)"),
    row("torch.cholesky(input, upper=False)"),
    row("torch.cholesky_inverse(input, upper=False)"),
    row("torch.cholesky_solve(input, input2, upper=False)"),
    *rows(
        """
        linalg.norm(A, ord=None, dim=None, keepdim=False, *, dtype=None)
        linalg.vector_norm(x, ord=2, dim=None, keepdim=False, *, dtype=None)
        linalg.matrix_norm(A, ord='fro', dim=(-2, -1), keepdim=False, *, dtype=None)
        linalg.det(A)
        linalg.slogdet(A)
        linalg.cond(A, p=None)
        linalg.cross(input, other, *, dim=-1)
        linalg.diagonal(A, *, offset=0, dim1=-2, dim2=-1)
        linalg.cholesky(A, *, upper=False)
        linalg.cholesky_ex(A, *, upper=False, check_errors=False)
        linalg.qr(A, mode='reduced')
        linalg.svd(A, full_matrices=True, *, driver=None)
        linalg.svdvals(A, *, driver=None)
        linalg.eig(A)
        linalg.eigvals(A)
        linalg.eigh(A, UPLO='L')
        linalg.eigvalsh(A, UPLO='L')
        linalg.solve(A, B, *, left=True)
        linalg.solve_ex(A, B, *, left=True, check_errors=False)
        linalg.solve_triangular(A, B, *, upper, left=True, unitriangular=False)
        linalg.inv_ex(A, *, check_errors=False)
        linalg.lstsq(A, B, rcond=None, *, driver=None)
        linalg.lu(A, *, pivot=True)
        linalg.lu_factor(A, *, pivot=True)
        linalg.lu_solve(LU, pivots, B, *, left=True, adjoint=False)
        linalg.ldl_factor(A, *, hermitian=False)
        linalg.householder_product(A, tau)
        linalg.tensorinv(A, ind=2)
        linalg.tensorsolve(A, B, dims=None)
        linalg.vander(x, *, N=None)
        linalg.vecdot(x, y, *, dim=-1)
        """,
        method=False,
    ),
]
