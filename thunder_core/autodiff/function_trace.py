"""The part of a program that is differentiated, as a trace of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from thunder_core.acquire.region import Region
from thunder_core.autodiff.tensor_hooks import sets_hook
from thunder_core.errors import UnsupportedError
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.proxy import Proxy, TensorProxy
from thunder_core.ir.symbol import Tag
from thunder_core.ir.tensors import tensor_inputs_of
from thunder_core.ir.trace import Stage, Trace


def function_trace(region: Region, inputs: Sequence[TensorProxy], outputs: Sequence[torch.Tensor]) -> Trace:
    """What was recorded in ``region``.

    Its inputs are ``inputs``, then the other values from outside, which do not require grad; its outputs are all
    tensors of the region that somebody still holds, then ``outputs``.

    Raises:
        UnsupportedError: the function asks or changes the autograd graph itself.
    """
    region.restore_names()
    own = {proxy.name for proxy in inputs}
    for line in region.lines:
        _refuse(line, own)
    defined = region.defined()
    free = [_constant(proxy) for proxy in region.free() if proxy.name not in own]
    live = [region.tensors.proxy_of(tensor) for tensor in region.live_tensors()]
    live = [proxy for proxy in live if proxy.name in defined]
    result = [region.tensors.proxy_of(output) for output in outputs]
    known = defined | own | {proxy.name for proxy in free}
    free += [_constant(proxy) for proxy in result if proxy.name not in known]
    return Trace(
        "function",
        (*inputs, *{proxy.name: proxy for proxy in free}.values()),
        tuple(region.lines),
        tuple({proxy.name: proxy for proxy in (*live, *result)}.values()),
        Stage.ACQUIRED,
        "acquisition",
        region.trace.ambient,
    )


def registers_inside(line: BoundSymbol, outside: set[str]) -> bool:
    """Whether a line only registers a hook on a tensor of the function: the lines of the gradients call it.

    Args:
        outside: names of the values from outside of the function.
    """
    return sets_hook(line) and outside.isdisjoint(proxy.name for proxy in tensor_inputs_of(line))


def _refuse(line: BoundSymbol, inputs: set[str]) -> None:
    if Tag.AUTOGRAD in line.symbol.tags:
        raise UnsupportedError(
            f"{line.symbol.name} inside a function that a functional transformation differentiates",
            location=line.location,
            advice=("use thunder.grad or thunder.vjp for gradients inside of it",),
        )
    if sets_hook(line) and any(proxy.name in inputs for proxy in tensor_inputs_of(line)):
        raise UnsupportedError(
            f"{line.symbol.name} on an argument with respect to which is differentiated",
            location=line.location,
            advice=("register the hook on x.view_as(x), and go on with that",),
        )


def _constant(proxy: Proxy) -> Proxy:
    """A value of the trace with respect to which is not differentiated."""
    return replace(proxy, requires_grad=False) if isinstance(proxy, TensorProxy) else proxy
