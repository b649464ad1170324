"""Programs whose lines PyTorch runs as they were recorded, while its autograd records them."""

from __future__ import annotations

from thunder_core.autodiff.saved_memory import is_saved
from thunder_core.autodiff.tensor_hooks import has_hooks_on_returned_views, sets_hook
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.symbol import CallStyle, Tag
from thunder_core.ir.tensors import tensor_inputs_of, tensor_outputs_of, tensors_written_by
from thunder_core.ir.trace import Trace


def why_as_recorded(trace: Trace) -> str | None:
    """What an acquired trace does that no functional trace expresses, whoever runs it; None for most programs."""
    reasons = (_effect_beside_values(program) or _write_behind_autograd(program) for program in trace.programs())
    return next(filter(None, reasons), None) or _hook_on_written_input(trace)


def why_left_to_autograd(trace: Trace) -> str | None:
    """What autograd does for a program with gradients that its lines do not say; None if they say it all."""
    for bound in trace.symbols:
        if Tag.AUTOGRAD in bound.symbol.tags:
            return f"{bound.symbol.name} uses parameters of its own{_place(bound)}"
    return "it sets hooks on views that it returns" if has_hooks_on_returned_views(trace) else None


def _effect_beside_values(trace: Trace) -> str | None:
    """The first line whose symbol tells so."""
    for bound in trace.symbols:
        if Tag.AS_RECORDED in bound.symbol.tags:
            return f"{bound.symbol.name} asks or changes what the values of a trace do not show{_place(bound)}"
    return None


def _hook_on_written_input(trace: Trace) -> str | None:
    """The first hook on an input, or a view of one, that was written before: the caller's own uses of it count too."""
    inputs = {proxy.storage: proxy.name for proxy in trace.inputs if isinstance(proxy, TensorProxy)}
    written: set[int] = set()
    for bound in trace.symbols:
        written.update(proxy.storage for proxy in tensors_written_by(bound))
        if sets_hook(bound) and bound.args[0].storage in written & inputs.keys():
            return f"it sets a hook on {inputs[bound.args[0].storage]}, which it wrote before{_place(bound)}"
    return None


def _write_behind_autograd(trace: Trace) -> str | None:
    """The first write through ``data`` to memory that autograd saved before: in backward it reads what was written."""
    if not any(_is_data(bound) for bound in trace.symbols):
        return None
    uncounted: set[str] = set()
    readers: dict[int, list[BoundSymbol]] = {}
    for bound in trace.symbols:
        shared = {proxy.storage for proxy in tensor_inputs_of(bound) if proxy.name in uncounted}
        if _is_data(bound):
            shared = {proxy.storage for proxy in tensor_inputs_of(bound)}
        uncounted.update(proxy.name for proxy in tensor_outputs_of(bound) if proxy.storage in shared)
        written = {proxy.storage for proxy in tensors_written_by(bound) if proxy.name in uncounted}
        if any(is_saved(storage, reader) for storage in written for reader in readers.get(storage, ())):
            return f"{bound.symbol.name} writes through `data` to what autograd saved{_place(bound)}"
        if any(proxy.requires_grad for proxy in tensor_outputs_of(bound)):
            for proxy in (*tensor_inputs_of(bound), *tensor_outputs_of(bound)):
                readers.setdefault(proxy.storage, []).append(bound)
    return None


def _is_data(bound: BoundSymbol) -> bool:
    return bound.symbol.name == "data" and bound.symbol.style is CallStyle.ATTRIBUTE


def _place(bound: BoundSymbol) -> str:
    return f", at {bound.location.describe()}" if bound.location is not None else ""
