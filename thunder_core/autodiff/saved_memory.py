"""Which memory PyTorch's autograd saves for the backward of a line."""

from __future__ import annotations

from typing import Any, Final

import torch

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.context import Context
from thunder_core.ir.geometry import end
from thunder_core.ir.modes import modes_for_fakes
from thunder_core.ir.proxy import PROXY_TYPES, TensorProxy
from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Trace
from thunder_core.ir.tree import iterate_leaves, map_leaves
from thunder_core.tracing.fake_mode import ObservingFakeMode, storage_address
from thunder_core.tracing.fake_tensors import make_derived

_RECORDING: Final = Context(grad_enabled=True, inference=False)


def is_saved(storage: int, bound: BoundSymbol) -> bool:
    """Whether autograd saves a tensor of a memory when it records a line, found out on fake tensors.

    True as well where that cannot be found out: for functions of the user's, and calls that take other objects.
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
    except Exception:  # noqa: BLE001 - whatever the call does not do with fakes
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
