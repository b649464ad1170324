"""Cases of operators: short programs in the form in which users write them, and sizes of their arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

Shape = tuple[int, ...]
MatmulShape = tuple[int, int, int]
"""Rows, columns and inner size of a matmul."""


class NotAvailable(RuntimeError):
    """The case needs a package that is not installed, or Liger has no kernel for it."""


@dataclass(frozen=True)
class Work:
    """The floating-point operations of a compute-bound case, and the matmuls that bound its time.

    Attributes:
        forward, backward: number of floating-point operations.
        matmuls, backward_matmuls: shapes of the matmuls. The limit of the case is their time. If there are none, it is
            the time of a large matmul scaled to the number of operations.
        float8: whether the matmuls are in float8.
    """

    forward: float
    backward: float
    matmuls: tuple[MatmulShape, ...] = ()
    backward_matmuls: tuple[MatmulShape, ...] = ()
    float8: bool = False


def work_of(matmuls: Iterable[MatmulShape], backward: Iterable[MatmulShape], float8: bool = False) -> Work:
    """The work of matmuls in forward and in backward."""
    first, second = tuple(matmuls), tuple(backward)
    operations = [sum(2.0 * rows * columns * inner for rows, columns, inner in part) for part in (first, second)]
    return Work(*operations, first, second, float8)


@dataclass(frozen=True)
class Problem:
    """A case at one size, ready to run.

    Attributes:
        program: a function or a module of the arguments that returns a tensor or a tuple of tensors.
        arguments: the arguments. Gradients are computed for those that require grad, and for the program's parameters.
        exact: a function of the arguments and parameters that computes in float64, for a program that computes in
            float32 whatever the dtype of its arguments.
        saved: the tensors that backward reads, if the program is memory-bound; None: all that require grad.
        work: the operations of a compute-bound program.
        liger: Liger's kernel, a function of ``liger_kernel.transformers.functional``, the arguments, and the
            parameters.
    """

    program: Callable[..., Any]
    arguments: tuple[torch.Tensor, ...]
    exact: Callable[..., Any] | None = None
    saved: Sequence[torch.Tensor] | None = None
    work: Work | None = None
    liger: Callable[..., Any] | None = None


@dataclass(frozen=True)
class Case:
    """One spelling of an operator.

    Attributes:
        operator: the name for ``--operator``, which several cases may share.
        what: description of the spelling.
        make: from a dtype and sizes to the problem, on the default device. Raises `NotAvailable`.
        cuda, cpu: the sizes for a device type; each is a tuple of arguments of ``make``.
    """

    operator: str
    what: str
    make: Callable[..., Problem]
    cuda: tuple[Shape, ...]
    cpu: tuple[Shape, ...] = ()

    def sizes(self, device: str) -> tuple[Shape, ...]:
        """The sizes for a device type."""
        return self.cuda if device == "cuda" else self.cpu


def normal(*shape: int, dtype: torch.dtype, gradient: bool = True, scale: float = 1.0) -> torch.Tensor:
    """A normally distributed tensor with standard deviation ``scale``, which requires grad if ``gradient``."""
    return torch.randn(shape).mul_(scale).to(dtype).requires_grad_(gradient)
