"""Products of matrices."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from thunder_core.autodiff.rules.rule import Result, rule


@rule("F.linear")
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Result:
    """``grad @ weight``; the rest from the matrices that PyTorch folds ``input`` and ``grad`` into."""
    if input.dim() < 2 or weight.dim() != 2:
        return NotImplemented
    output = torch.nn.functional.linear(input, weight, bias)

    def backward(g: Tensor) -> Any:
        rows = _rows(g)
        return torch.matmul(g, weight), torch.mm(rows.t(), _rows(input)), torch.sum(rows, 0)

    return output, backward


@rule("torch.matmul")
def matmul(input: Tensor, other: Tensor) -> Result:
    """Products of vectors by their elements, a batch by one matrix as `linear`, other batches matrix by matrix."""
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


@rule("torch.mm")
def mm(input: Tensor, mat2: Tensor) -> Result:
    """``mm_mat1_grad`` and ``mm_mat2_grad``."""
    return torch.mm(input, mat2), lambda g: (_first(input, mat2, g), _second(input, mat2, g))


@rule("torch.bmm")
def bmm(input: Tensor, mat2: Tensor) -> Result:
    """``grad.bmm(mat2.transpose(1, 2))`` and ``self.transpose(1, 2).bmm(grad)``."""
    output = torch.bmm(input, mat2)
    return output, lambda g: (torch.bmm(g, mat2.transpose(1, 2)), torch.bmm(input.transpose(1, 2), g))


@rule("torch.addmm")
def addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Result:
    """`mm`, without scaling."""
    if beta != 1 or alpha != 1:
        return NotImplemented
    return torch.addmm(input, mat1, mat2), lambda g: (g, _first(mat1, mat2, g), _second(mat1, mat2, g))


def _rows(tensor: Tensor) -> Tensor:
    """All dimensions but the last as one."""
    return tensor if tensor.dim() == 2 else torch.reshape(tensor, (math.prod(tensor.shape[:-1]), tensor.shape[-1]))


def _first(mat1: Tensor, mat2: Tensor, g: Tensor) -> Tensor:
    """``g @ mat2.t()``, with the order of dimensions in memory that ``mat1`` has."""
    return torch.mm(mat2, g.t()).t() if _is_transposed(mat1) else torch.mm(g, mat2.t())


def _second(mat1: Tensor, mat2: Tensor, g: Tensor) -> Tensor:
    """``mat1.t() @ g``, with the order of dimensions in memory that ``mat2`` has."""
    return torch.mm(g.t(), mat1).t() if _is_transposed(mat2) else torch.mm(mat1.t(), g)


def _is_transposed(matrix: Tensor) -> bool:
    return matrix.stride() == (1, matrix.shape[0])
