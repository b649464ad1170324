"""Lines whose derivative, as it is found for training, cannot be differentiated once more."""

from __future__ import annotations

from dataclasses import replace

import torch

from thunder_core.autodiff.activity import Activity, records
from thunder_core.autodiff.derivative import Derivative, Query
from thunder_core.autodiff.derive import derive
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.context import Context
from thunder_core.ir.proxy import Proxy, TensorProxy
from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Trace
from thunder_core.passes.proxies import inputs_of, outputs_of

# Python functions of PyTorch's that cut the autograd graph inside: operations do not say where.
_CUT_INSIDE = frozenset({torch.nn.functional.gumbel_softmax})
_RECORDED = Context(grad_enabled=True, inference=False)


def differentiable_again(trace: Trace) -> Trace:
    """The trace, where the symbols of such lines have `Tag.LOCAL`: eager differentiates them.

    PyTorch has other formulas for the gradients of some functions, group normalization for one, when gradients are
    recorded during backward. The usual ones end in operators that have no derivative.
    """
    activity = Activity.of(trace)
    return trace.with_symbols(
        [_marked(line) if _ends_here(line, trace, activity) else line for line in trace.symbols], trace.provenance
    )


def _marked(line: BoundSymbol) -> BoundSymbol:
    return replace(line, symbol=replace(line.symbol, tags=line.symbol.tags | {Tag.LOCAL}))


def _ends_here(line: BoundSymbol, trace: Trace, activity: Activity) -> bool:
    reached = frozenset([proxy.name for proxy in outputs_of(line) if proxy.name in activity.reached])
    wanted = frozenset([proxy.name for proxy in inputs_of(line) if proxy.name in activity.active])
    if not (reached and wanted and records(line, trace)) or Tag.LOCAL in line.symbol.tags:
        return False
    if line.symbol.target in _CUT_INSIDE:
        return True
    return _stops(derive(Query(replace(line, context=line.context or trace.context), wanted, reached)))


def _stops(derivative: Derivative) -> bool:
    """Whether a line of backward has no derivative itself."""
    cotangents = {proxy.name for proxy in derivative.cotangents.values()}
    active = derivative.gradients.keys() | derivative.cotangents.keys() | cotangents
    for line in derivative.backward:
        inputs = _floating(inputs_of(line)) & active
        outputs = _floating(outputs_of(line))
        if inputs and outputs and not _has_derivative(line, inputs, outputs):
            return True
        active |= outputs
    return False


def _has_derivative(line: BoundSymbol, wanted: frozenset[str], reached: frozenset[str]) -> bool:
    found = derive(Query(replace(line, context=_RECORDED), wanted, reached))
    return not found.source.startswith("eager")


def _floating(proxies: list[Proxy]) -> frozenset[str]:
    tensors = [proxy for proxy in proxies if isinstance(proxy, TensorProxy)]
    return frozenset([p.name for p in tensors if p.dtype.is_floating_point or p.dtype.is_complex])
