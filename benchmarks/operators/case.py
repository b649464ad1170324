"""What is measured: a program of a few lines, as users write it, with arguments of a certain size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

Shape = tuple[int, ...]
Product = tuple[int, int, int]
"""Rows, columns and inner size of a matrix product."""


class NotHere(RuntimeError):
    """The case needs a package that is not installed; the message names it."""


@dataclass(frozen=True)
class Work:
    """Of a case that matrix products bound: how many operations there are, and what the hardware could do them in.

    Attributes:
        forward, backward: numbers of floating-point operations.
        products, backward_products: of which they consist. The limit is the time of these alone; where there are
            none, that of one large product with as many operations.
        float8: these products take float8.
    """

    forward: float
    backward: float
    products: tuple[Product, ...] = ()
    backward_products: tuple[Product, ...] = ()
    float8: bool = False


def work_of(products: Iterable[Product], backward: Iterable[Product], float8: bool = False) -> Work:
    """The work of these products."""
    first, second = tuple(products), tuple(backward)
    operations = [sum(2.0 * rows * columns * inner for rows, columns, inner in part) for part in (first, second)]
    return Work(*operations, first, second, float8)


@dataclass(frozen=True)
class Problem:
    """A case at one size, ready to run.

    Attributes:
        program: a function or a module of the arguments; returns a tensor, or a tuple of them.
        arguments: tensors. Gradients are computed for those that require them, and for the program's parameters.
        exact: the same for float64 arguments, where the program itself computes a part of it in float32. Takes the
            arguments, then the program's parameters.
        kept: what backward has to read again, of a program that memory bounds; None: all that gets a gradient.
        work: of a program that matrix products bound.
        liger: Liger's kernels for it: takes ``liger_kernel.transformers.functional``, the arguments, the parameters.
    """

    program: Callable[..., Any]
    arguments: tuple[torch.Tensor, ...]
    exact: Callable[..., Any] | None = None
    kept: Sequence[torch.Tensor] | None = None
    work: Work | None = None
    liger: Callable[..., Any] | None = None


@dataclass(frozen=True)
class Case:
    """An operator as it is spelled somewhere.

    Attributes:
        operator: what ``--operator`` calls it; several cases may have the same.
        what: the spelling, in words.
        make: from a dtype and sizes, on PyTorch's default device, to the problem. Raises NotHere.
        cuda, cpu: the sizes on a device of this type, each the arguments of ``make``.
    """

    operator: str
    what: str
    make: Callable[..., Problem]
    cuda: tuple[Shape, ...]
    cpu: tuple[Shape, ...] = ()

    def sizes(self, device: str) -> tuple[Shape, ...]:
        """Those for a device."""
        return self.cuda if device == "cuda" else self.cpu


def normal(*shape: int, dtype: torch.dtype, gradient: bool = True, scale: float = 1.0) -> torch.Tensor:
    """Normally distributed numbers, that get a gradient unless ``gradient`` is false."""
    return torch.randn(shape).mul_(scale).to(dtype).requires_grad_(gradient)
