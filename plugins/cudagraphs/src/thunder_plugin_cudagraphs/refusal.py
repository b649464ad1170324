"""Reasons why a program cannot be captured, from its trace."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

import torch

from thunder_core.executors.states import is_replayable
from thunder_core.ir.bound_symbol import BoundSymbol, tensors_of
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Trace
from thunder_core.ir.tree import iterate_proxies
from thunder_core.passes.transform import Phase
from thunder_plugin_cudagraphs.device import BACKENDS

_USERS = frozenset({Tag.HOOK, Tag.AUTOGRAD})
_DEPENDENT = frozenset({torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape})


def why_not(trace: Trace, trust: Sequence[str] = ()) -> str | None:
    """The reason why ``trace`` cannot be captured; None if there is none.

    Args:
        trace: the program.
        trust: patterns of operations that call Python functions, and may be captured nevertheless.
    """
    if all(bound.symbol.tags and bound.symbol.tags <= {Tag.SHAPE} for bound in trace.symbols):
        return "it computes nothing"
    recorded = trace.context.grad_enabled and not trace.context.inference
    if recorded and any(getattr(proxy, "requires_grad", False) for proxy in iterate_proxies(trace.output)):
        return "PyTorch's autograd records it at run time"
    return _devices(trace) or next(filter(None, (_refusal_of_op(bound, trust) for bound in trace.symbols)), None)


def why_not_by_itself(trace: Trace, phase: Phase, forward: bool) -> str | None:
    """The reason why a trace that can be captured is not captured unless the user asks for it; None if there is none.

    Args:
        trace, phase: the program.
        forward: whether the forward of this backward may be captured.
    """
    if trace.sizes:
        return "its sizes vary between calls, and a graph has constant ones"
    communicating = next((bound for bound in trace.symbols if bound.effects.channels), None)
    if communicating is not None:
        return f"{_describe(communicating)} communicates with other processes"
    if phase is not Phase.BACKWARD:
        return None
    inputs = {proxy.name for proxy in trace.inputs}
    if any(proxy.name in inputs for proxy in iterate_proxies(trace.output)):
        return "it returns an input, for which it would hold all inputs until its end"
    return None if forward else "its forward is not captured"


def works_on(trace: Trace) -> bool:
    """Whether an op works on a device that has CUDA graphs."""
    return any(proxy.device.type in BACKENDS for bound in trace.symbols for proxy in tensors_of(bound))


def device_of(trace: Trace) -> torch.device:
    """The device of a trace that can be captured."""
    return next(proxy.device for bound in trace.symbols for proxy in tensors_of(bound))


def _devices(trace: Trace) -> str | None:
    first: torch.device | None = None
    for bound in trace.symbols:
        for proxy in tensors_of(bound):
            if proxy.device.type not in BACKENDS:
                return f"{_describe(bound)} works on the device {proxy.device}, which has no CUDA graphs"
            if first is not None and proxy.device != first:
                return f"{_describe(bound)} works on {proxy.device}, and other operations on {first}"
            first = proxy.device
            if proxy.layout is not torch.strided:
                return f"{_describe(bound)} works on sparse tensors"
    return "it has no tensors" if first is None else None


def _refusal_of_op(bound: BoundSymbol, trust: Sequence[str]) -> str | None:
    symbol = bound.symbol
    name = _describe(bound)
    replayable = is_replayable(bound)
    if bound.happens_once() and not replayable:
        return f"{name} has effects, which a replay would not repeat"
    if symbol.tags & _USERS:
        return f"{name} calls Python code or autograd"
    if Tag.HIGHER_ORDER in symbol.tags:
        return f"{name} decides on the host which operations run"
    if not replayable and any(not isinstance(proxy, TensorProxy) for proxy in bound.outputs()):
        return f"{name} returns a value to the host"
    if not _DEPENDENT.isdisjoint(getattr(symbol.target, "tags", ())):
        return f"{name} returns a tensor whose size depends on values"
    if symbol.executor is None and symbol.tags >= {Tag.LOCAL, Tag.OPAQUE} and not _trusted(symbol.name, trust):
        return f"{name} is a Python function, which a replay would not call (the option trust allows it)"
    return None


def _trusted(name: str, trust: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in trust)


def _describe(bound: BoundSymbol) -> str:
    where = "" if bound.location is None else f" ({bound.location.place()})"
    return f"{bound.symbol.name}{where}"
