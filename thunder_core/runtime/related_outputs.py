"""Outputs of a program that others are computed from: to autograd all come from one operation.

Their gradients, as hooks and ``retain_grad`` of the caller see them, lack what they have in eager by way of the others.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from thunder_core.errors import UnsupportedError
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.trace import Trace
from thunder_core.pytorch_internals import backward_hooks_of

Dependents = dict[int, tuple[int, ...]]
"""For positions of outputs those of the others that are computed from them, where there are such."""


def dependents(trace: Trace) -> Dependents:
    """The outputs of a functional trace that others get gradients through."""
    outputs = [proxy.name if isinstance(proxy, TensorProxy) and proxy.requires_grad else None for proxy in trace.output]
    places: dict[str, int] = {}  # a set of outputs as the bits of a number: those that a value is computed from
    for place, name in enumerate(outputs):
        if name is not None:
            places[name] = places.get(name, 0) | 1 << place
    if len(places) < 2:
        return {}
    sources: dict[str, int] = {}
    for line in trace.symbols:
        read = 0
        for proxy in line.inputs():
            read |= sources.get(proxy.name, 0) | places.get(proxy.name, 0)
        if read:
            made = [proxy for proxy in line.outputs() if isinstance(proxy, TensorProxy) and proxy.requires_grad]
            sources.update((proxy.name, read) for proxy in made)
    found: dict[int, list[int]] = {}
    for later, name in enumerate(outputs):
        for earlier in _bits(sources.get(name, 0) if name is not None else 0):
            found.setdefault(earlier, []).append(later)
    return {earlier: tuple(others) for earlier, others in found.items()}


def watch(outputs: Sequence[Any], related: Dependents) -> dict[int, weakref.ref[torch.Tensor]]:
    """The outputs that `check_unobserved` looks at."""
    return {place: weakref.ref(outputs[place]) for place in related}


def check_unobserved(
    node: Any,
    watched: Mapping[int, weakref.ref[torch.Tensor]],
    related: Dependents,
    cotangents: Sequence[torch.Tensor | None],
) -> None:
    """Refuse a backward in which the caller sees a gradient of an output that lacks a part.

    Args:
        node: of the program in the autograd graph.

    Raises:
        UnsupportedError: an output has a hook or retains its gradient, and there is a cotangent for another one that
            was computed from it.
    """
    for place, reference in watched.items():
        output = reference()
        if output is None or output.grad_fn is not node or not (backward_hooks_of(output) or output.retains_grad):
            continue
        missing = next((other for other in related[place] if cotangents[other] is not None), None)
        if missing is not None:
            raise UnsupportedError(
                f"an output of shape {tuple(output.shape)} of the compiled program has a hook or retains its gradient, "
                "which would lack what comes by way of another output that is computed from it",
                advice=("call register_hook or retain_grad inside of the compiled function",),
            )


def _bits(number: int) -> list[int]:
    return [place for place in range(number.bit_length()) if number >> place & 1]
