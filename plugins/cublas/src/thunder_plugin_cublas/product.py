"""A product of two matrices as cuBLASLt is told of it, made from tensors of PyTorch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch

ALIGNED: Final = 256
"""Bytes; no algorithm asks for more."""


@dataclass(frozen=True, slots=True)
class Product:
    """D = op(A) op(B) + beta C, of matrices stored by columns: D and C of m x n, op(A) of m x k, op(B) of k x n.

    Attributes:
        transposed: whether A and B are stored transposed.
        leading: distance of two columns of A, B and C, in elements; D's is m.
        alignments: what the addresses of A, B, C and D are multiples of, in bytes.
        dtype: of all four; sums are made in float32.
        accumulates: beta is 1, else 0.
        biased: a vector of m elements is added to each column.
    """

    m: int
    n: int
    k: int
    transposed: tuple[bool, bool]
    leading: tuple[int, int, int]
    alignments: tuple[int, int, int, int]
    dtype: torch.dtype
    accumulates: bool = False
    biased: bool = False


def product_of(
    a: torch.Tensor, b: torch.Tensor, start: torch.Tensor | None, bias: torch.Tensor | None, result: torch.Tensor
) -> Product:
    """``a @ b + start + bias``, written to ``result``.

    What is stored by rows is its own transpose stored by columns. So this is the product ``b.T @ a.T``, whose A is the
    memory of ``b`` and whose B is that of ``a``.

    Args:
        a, b: of (M, K) and (K, N), each with adjacent rows or columns.
        start: of (M, N), with adjacent elements in its rows; or None.
        bias: of (N,); or None.
        result: of (M, N), contiguous.
    """
    (rows, inner), columns = a.shape, b.shape[1]
    by_columns, by_rows = b.stride(1) != 1, a.stride(1) != 1
    summand = result if start is None else start
    return Product(
        m=columns,
        n=rows,
        k=inner,
        transposed=(by_columns, by_rows),
        leading=(b.stride(1 if by_columns else 0), a.stride(1 if by_rows else 0), summand.stride(0)),
        alignments=tuple(_alignment(tensor) for tensor in (b, a, summand, result)),  # type: ignore[arg-type]
        dtype=a.dtype,
        accumulates=start is not None,
        biased=bias is not None,
    )


def _alignment(tensor: torch.Tensor) -> int:
    address = tensor.data_ptr()
    return min(address & -address, ALIGNED)
