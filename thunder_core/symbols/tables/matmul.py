"""Products of matrices and vectors."""

from thunder_core.ir.symbol import Tag
from thunder_core.symbols.row import Row, Spelling, row, rows
from thunder_core.symbols.tables.binary import reflected

_TAGS = (Tag.MATMUL,)
_PRODUCT = (Tag.MATMUL, Tag.PRODUCT)
_ACCUMULATION = (Tag.MATMUL, Tag.ACCUMULATION)

ROWS: list[Row] = [
    row(
        "torch.matmul(input, other)",
        "Tensor.__matmul__",
        "linalg.matmul",
        Spelling("torch.Tensor.__rmatmul__", adapter=reflected),
        tags=_PRODUCT,
    ),
    row("torch.einsum(...)", tags=_TAGS, method=False),
    row("torch.linalg.multi_dot(...)", tags=_TAGS, method=False),
    row("torch.chain_matmul(...)", tags=_TAGS, method=False),
    row("torch.nn.functional.linear(input, weight, bias=None)", tags=(*_TAGS, Tag.LINEAR), method=False),
    row("torch.nn.functional.bilinear(input1, input2, weight, bias=None)", "torch.bilinear", tags=_TAGS, method=False),
    row("torch._trilinear(...)", tags=(Tag.DISPATCHES,), method=False),  # called by bilinear
    row("torch.tensordot(a, b, dims=2)", tags=_TAGS, method=False),
    row("torch.cdist(x1, x2, p=2.0, compute_mode='use_mm_for_euclid_dist_if_necessary')", tags=_TAGS, method=False),
    row("torch.mm(input, mat2)", tags=_PRODUCT),
    row("torch.bmm(input, mat2)", tags=_PRODUCT),
    row("torch.addmm(input, mat1, mat2, *, beta=1, alpha=1)", tags=_ACCUMULATION),
    row("torch.baddbmm(input, batch1, batch2, *, beta=1, alpha=1)", tags=_ACCUMULATION),
    *rows(
        """
        torch.mv(input, vec)
        torch.dot(input, tensor)
        torch.vdot(input, other)
        torch.inner(input, other)
        torch.outer(input, vec2) | torch.ger
        torch.addmv(input, mat, vec, *, beta=1, alpha=1)
        torch.addr(input, vec1, vec2, *, beta=1, alpha=1)
        torch.addbmm(input, batch1, batch2, *, beta=1, alpha=1)
        torch.kron(input, other)
        """,
        tags=_TAGS,
    ),
]
