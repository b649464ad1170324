"""Matrix products: with fewer transpositions and reshapes than autograd's formulas, and without expanded copies.

``torch.mm``, ``torch.addmm`` and ``torch.bmm`` have no rules, since autograd derives the same ops for them.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from thunder_core.autodiff.derivatives.rules import Result, rule


@rule("F.linear")
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Result:
    """``grad @ weight`` for ``input``; for the others, ``input`` and ``grad`` with all rows in one dimension."""
    if input.dim() < 2 or weight.dim() != 2:
        return NotImplemented
    output = torch.nn.functional.linear(input, weight, bias)

    def backward(g: Tensor) -> Any:
        rows = _rows(g)
        return torch.matmul(g, weight), torch.mm(rows.t(), _rows(input)), torch.sum(rows, 0)

    return output, backward


@rule("torch.matmul")
def matmul(input: Tensor, other: Tensor) -> Result:
    """A formula for each pair of dimensions. Autograd's is that of ``bmm``, on expanded copies of the arguments."""
    if input.dtype is not other.dtype:  # which PyTorch accepts if the product is empty
        return NotImplemented
    output = torch.matmul(input, other)
    match input.dim(), other.dim():
        case 1, 1:
            return output, lambda g: (g * other, g * input)
        case 1, 2:
            return output, lambda g: (torch.mv(other, g), torch.outer(input, g))
        case 2, 1:
            return output, lambda g: (torch.outer(g, other), torch.mv(input.t(), g))
        case 2, 2:
            return output, lambda g: (_first(input, other, g), _second(input, other, g))
        case more, 2 if more > 2:
            return output, lambda g: (torch.matmul(g, other.t()), _second(_rows(input), other, _rows(g)))
        case first, second if min(first, second) > 2:
            return output, lambda g: (torch.matmul(g, other.mT), torch.matmul(input.mT, g))
    return NotImplemented


def _rows(tensor: Tensor) -> Tensor:
    """A matrix with the last dimension of ``tensor``, and all others combined."""
    return tensor if tensor.dim() == 2 else torch.reshape(tensor, (math.prod(tensor.shape[:-1]), tensor.shape[-1]))


def _first(mat1: Tensor, mat2: Tensor, g: Tensor) -> Tensor:
    """``g @ mat2.t()``, transposed in memory if ``mat1`` is."""
    return torch.mm(mat2, g.t()).t() if _is_transposed(mat1) else torch.mm(g, mat2.t())


def _second(mat1: Tensor, mat2: Tensor, g: Tensor) -> Tensor:
    """``mat1.t() @ g``, transposed in memory if ``mat2`` is."""
    return torch.mm(g.t(), mat1).t() if _is_transposed(mat2) else torch.mm(mat1.t(), g)


def _is_transposed(matrix: Tensor) -> bool:
    return matrix.stride() == (1, matrix.shape[0])
