"""The least that a program moves: each byte that it needs read once, each byte of a result written once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from benchmarks.operators.accuracy import parameters_of
from benchmarks.operators.case import Problem


def traffic(problem: Problem, outputs: Sequence[torch.Tensor]) -> tuple[int, int]:
    """Bytes of forward, and of forward and backward.

    Forward reads arguments and parameters and writes outputs. Backward reads what it keeps (all that gets a gradient,
    unless the problem says otherwise) and the gradients of the outputs, and writes those of the arguments.
    """
    given = [*problem.arguments, *parameters_of(problem.program)]
    wanted = [tensor for tensor in given if tensor.requires_grad]
    kept = wanted if problem.kept is None else problem.kept
    forward = _bytes([*given, *outputs])
    return forward, forward + _bytes([*kept, *outputs, *wanted])


def _bytes(tensors: Iterable[torch.Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
