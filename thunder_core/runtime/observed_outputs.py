"""Outputs of differentiated programs whose gradients the caller would see incomplete.

For autograd all outputs of a program belong to one node. If an output is computed from another one, the gradient that
hooks and ``retain_grad`` of the caller see for the other lacks the part that flows through it in eager.
`check_unobserved` refuses such a backward.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from thunder_core.errors import UnsupportedError
from thunder_core.ir.proxy import differentiable
from thunder_core.ir.trace import Trace
from thunder_core.pytorch_internals import backward_hooks_of

Dependents = dict[int, tuple[int, ...]]
"""Maps the position of an output to those of the outputs that are computed from it; without outputs that have none."""


def dependents(trace: Trace) -> Dependents:
    """The `Dependents` of a functional trace."""
    outputs = [proxy.name if differentiable(proxy) else None for proxy in trace.output]
    positions: dict[str, int] = {}  # by name of an output; sets of outputs are the bits of a number
    for position, name in enumerate(outputs):
        if name is not None:
            positions[name] = positions.get(name, 0) | 1 << position
    if len(positions) < 2:
        return {}
    sources: dict[str, int] = {}  # by name of a value, the outputs that it is computed from
    for bound in trace.symbols:
        read = 0
        for proxy in bound.inputs():
            read |= sources.get(proxy.name, 0) | positions.get(proxy.name, 0)
        if read:
            sources.update((proxy.name, read) for proxy in filter(differentiable, bound.outputs()))
    related: dict[int, list[int]] = {}
    for later, name in enumerate(outputs):
        for earlier in _bits(sources.get(name, 0) if name is not None else 0):
            related.setdefault(earlier, []).append(later)
    return {earlier: tuple(others) for earlier, others in related.items()}


def watch(outputs: Sequence[Any], related: Dependents) -> dict[int, weakref.ref[torch.Tensor]]:
    """Weak references to the outputs that `check_unobserved` checks, by position."""
    return {position: weakref.ref(outputs[position]) for position in related}


def check_unobserved(
    node: Any,
    watched: Mapping[int, weakref.ref[torch.Tensor]],
    related: Dependents,
    cotangents: Sequence[torch.Tensor | None],
) -> None:
    """Refuse a backward in which the caller would see an incomplete gradient of an output.

    Args:
        node: the node of the program in the autograd graph.
        watched: the result of `watch`.
        related: the dependents of the outputs.
        cotangents: the cotangents of the outputs; None for an absent one.

    Raises:
        UnsupportedError: an output has a hook or retains its gradient, and an output that is computed from it has a
            cotangent.
    """
    for position, reference in watched.items():
        output = reference()
        if output is None or output.grad_fn is not node or not (backward_hooks_of(output) or output.retains_grad):
            continue
        missing = next((other for other in related[position] if cotangents[other] is not None), None)
        if missing is not None:
            raise UnsupportedError(
                f"an output of shape {tuple(output.shape)} of the compiled program has a hook or retains its gradient, "
                "which would lack what comes by way of another output that is computed from it",
                advice=("call register_hook or retain_grad inside of the compiled function",),
            )


def _bits(number: int) -> list[int]:
    return [position for position in range(number.bit_length()) if number >> position & 1]
