"""Programs whose ops PyTorch runs as they were recorded, under its own autograd."""

from __future__ import annotations

from typing import Any, Final

import torch

from thunder_core.autodiff.tensor_hooks import has_hooks_on_returned_views, sets_hook
from thunder_core.ir.bound_symbol import (
    BoundSymbol,
    tensor_inputs_of,
    tensor_outputs_of,
    tensors_of,
    tensors_written_by,
)
from thunder_core.ir.context import Context, modes_for_fakes
from thunder_core.ir.geometry import end
from thunder_core.ir.location import at
from thunder_core.ir.proxy import PROXY_TYPES, TensorProxy
from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Trace
from thunder_core.ir.tree import iterate_leaves, map_leaves
from thunder_core.tracing.fake_tensors import ObservingFakeMode, make_derived, storage_address

_RECORDING: Final = Context(grad_enabled=True, inference=False)


def is_saved(storage: int, bound: BoundSymbol) -> bool:
    """Whether autograd saves a tensor of this storage for backward when it records the op, tested on fake tensors.

    Also True where this cannot be tested: for functions of the user, and for calls with arguments of other types.
    """
    leaves = list(iterate_leaves((bound.args, bound.kwargs)))
    if Tag.LOCAL in bound.symbol.tags or any(map(_is_no_fake, leaves)):
        return True
    mode = ObservingFakeMode()
    fakes: dict[str, torch.Tensor] = {}
    for leaf in leaves:
        if isinstance(leaf, TensorProxy) and leaf.name not in fakes:
            fakes[leaf.name] = make_derived(mode, leaf, storage_size=end(leaf))
    own = {
        storage_address(fakes[p.name]) for p in bound.inputs() if isinstance(p, TensorProxy) and p.storage == storage
    }
    saved: set[int] = set()

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        saved.add(storage_address(tensor))
        return tensor

    def fake(leaf: Any) -> Any:
        return fakes[leaf.name] if isinstance(leaf, TensorProxy) else leaf

    args, kwargs = map_leaves(fake, (bound.args, bound.kwargs))
    try:
        with (
            torch.random.fork_rng(devices=[]),
            mode,
            mode.observing(),
            modes_for_fakes(_RECORDING),
            torch.autograd.graph.saved_tensors_hooks(pack, _itself),
        ):
            result = bound.symbol.target(*args, **kwargs)
    except Exception:  # noqa: BLE001 - any error of a call that does not support fake tensors
        return True
    pairs = zip(iterate_leaves(bound.output), iterate_leaves(result), strict=False)
    for proxy, tensor in pairs:
        if isinstance(proxy, TensorProxy) and isinstance(tensor, torch.Tensor) and proxy.storage == storage:
            own.add(storage_address(tensor))
    return not own.isdisjoint(saved)


def _is_no_fake(leaf: Any) -> bool:
    """Whether an argument has no fake counterpart."""
    if isinstance(leaf, TensorProxy):
        return leaf.layout is not torch.strided
    return isinstance(leaf, (Trace, *PROXY_TYPES))


def _itself(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def why_as_recorded(trace: Trace) -> str | None:
    """The reason why a functional trace cannot express the acquired trace; None for most programs."""
    reasons = (_effect_beside_values(program) or _write_behind_autograd(program) for program in trace.programs())
    return next(filter(None, reasons), None) or _hook_on_written_input(trace)


def why_left_to_autograd(trace: Trace) -> str | None:
    """The reason why PyTorch's autograd has to differentiate the program; None if its ops suffice to do so."""
    for bound in trace.symbols:
        if Tag.AUTOGRAD in bound.symbol.tags:
            return f"{bound.symbol.name} uses parameters of its own{at(bound.location)}"
    return "it sets hooks on views that it returns" if has_hooks_on_returned_views(trace) else None


def _effect_beside_values(trace: Trace) -> str | None:
    """The reason that the symbol of an op declares; the first such op counts."""
    for bound in trace.symbols:
        if Tag.AS_RECORDED in bound.symbol.tags:
            return f"{bound.symbol.name} reads or changes state that traces do not model{at(bound.location)}"
    return None


def _hook_on_written_input(trace: Trace) -> str | None:
    """The first hook on an input, or on a view of one, that was written before.

    The gradient of such an input includes the uses that the caller makes of it.
    """
    inputs = {proxy.storage: proxy.name for proxy in trace.inputs if isinstance(proxy, TensorProxy)}
    written: set[int] = set()
    for bound in trace.symbols:
        written.update(proxy.storage for proxy in tensors_written_by(bound))
        if sets_hook(bound) and bound.args[0].storage in written & inputs.keys():
            return f"it sets a hook on {inputs[bound.args[0].storage]}, which it wrote before{at(bound.location)}"
    return None


def _write_behind_autograd(trace: Trace) -> str | None:
    """The first write through ``data`` to a storage that autograd saved before: backward reads the new values."""
    if not any(Tag.UNCOUNTED in bound.symbol.tags for bound in trace.symbols):
        return None
    uncounted: set[str] = set()
    readers: dict[int, list[BoundSymbol]] = {}
    for bound in trace.symbols:
        shared = {proxy.storage for proxy in tensor_inputs_of(bound) if proxy.name in uncounted}
        if Tag.UNCOUNTED in bound.symbol.tags:
            shared = {proxy.storage for proxy in tensor_inputs_of(bound)}
        uncounted.update(proxy.name for proxy in tensor_outputs_of(bound) if proxy.storage in shared)
        written = {proxy.storage for proxy in tensors_written_by(bound) if proxy.name in uncounted}
        if any(is_saved(storage, reader) for storage in written for reader in readers.get(storage, ())):
            return f"{bound.symbol.name} writes through `data` to what autograd saved{at(bound.location)}"
        if any(proxy.requires_grad for proxy in tensor_outputs_of(bound)):
            for proxy in tensors_of(bound):
                readers.setdefault(proxy.storage, []).append(bound)
    return None
