"""Memory traffic of a program, if it reads each input byte once and writes each output byte once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from benchmarks.operators.accuracy import parameters_of
from benchmarks.operators.case import Problem


def traffic(problem: Problem, outputs: Sequence[torch.Tensor]) -> tuple[int, int]:
    """Bytes of forward, and of forward and backward.

    Forward reads arguments and parameters and writes outputs. Backward reads the saved tensors (``problem.saved``, or
    all inputs that require grad) and the gradients of the outputs, and writes the gradients of the inputs.
    """
    inputs = [*problem.arguments, *parameters_of(problem.program)]
    differentiable = [tensor for tensor in inputs if tensor.requires_grad]
    saved = differentiable if problem.saved is None else problem.saved
    forward = _bytes([*inputs, *outputs])
    return forward, forward + _bytes([*saved, *outputs, *differentiable])


def _bytes(tensors: Iterable[torch.Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
