"""Lower a line of a trace to core ATen, with PyTorch's own decompositions, when somebody needs it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final, Protocol

import torch

from thunder_core.errors import LoweringError
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.bounded_cache import BoundedCache
from thunder_core.ir.context import Context
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Trace
from thunder_core.ir.tree import map_leaves
from thunder_core.pytorch_internals import (
    get_cudnn_sdp_enabled,
    get_flash_sdp_enabled,
    get_math_sdp_enabled,
    get_mem_efficient_sdp_enabled,
)
from thunder_core.symbols.renaming import Renaming

Form = tuple[BoundSymbol, tuple[BoundSymbol, ...]]
"""A line, and its core-ATen lines."""


class Store(Protocol):
    """Where forms are kept besides this process, by keys of `call_key`."""

    def read(self, key: Any, bound: BoundSymbol) -> Form | None:
        """The form of a line equal to ``bound`` but for names; None if it is not there."""

    def write(self, key: Any, form: Form) -> None:
        """Keep a form, if that can be done."""


_cache: Final = BoundedCache["Form"](1024)


def lower(
    bound: BoundSymbol, ambient: Context, *, taken: frozenset[str] = frozenset(), first_storage: int | None = None
) -> tuple[BoundSymbol, ...]:
    """``bound`` as core-ATen lines, which run in its place under the same context.

    They take its inputs and define its outputs. Values are the same, random numbers are drawn in the same order.
    Lines with equal symbols and metadata are lowered once.

    Args:
        ambient: the context of the trace, for lines that have none of their own.
        taken: names that new values must not have.
        first_storage: number of the first new storage; by default one that is free in ``bound``.

    Raises:
        LoweringError: there is no such form; the message says why.
    """
    model, parts = lowered_form(bound, ambient)
    return Renaming(model, bound, taken, first_storage).apply(parts)


def lowered_form(bound: BoundSymbol, ambient: Context, store: Store | None = None) -> Form:
    """A line equal to ``bound`` but for names, and its core-ATen lines; the same objects for equal lines.

    Forms that are not known in this process are looked for in ``store``, and added to it.

    Raises LoweringError as `lower` does: so for all lines with effects outside of tensors, which tracing would have.
    """
    if bound.effects.external:
        raise LoweringError(f"{bound.symbol.name} has effects outside of tensors", location=bound.location)
    context = bound.context or ambient
    key = call_key(bound, context)

    def find() -> Form:
        form = store.read(key, bound) if store is not None and key is not None else None
        if form is None:
            form = _lowered(bound, context)
            if store is not None and key is not None:
                store.write(key, form)
        return form

    return _cache.get(key, find)


def _lowered(bound: BoundSymbol, context: Context) -> Form:
    from thunder_core.symbols.fx_lowering import lower_with_fx

    return bound, lower_with_fx(bound, context)


def lower_trace(trace: Trace) -> Trace:
    """The same trace with `BoundSymbol.parts` filled wherever a line has a lower form."""
    taken = frozenset(trace.names())
    proxies = [*trace.inputs, *[proxy for bound in trace.symbols for proxy in bound.outputs()]]
    storage = 1 + max((proxy.storage for proxy in proxies if isinstance(proxy, TensorProxy)), default=-1)
    lines = []
    for bound in trace.symbols:
        try:
            parts = lower(bound, trace.context, taken=taken, first_storage=storage)
        except LoweringError:
            lines.append(bound)
            continue
        made = [proxy for part in parts for proxy in part.outputs()]
        taken |= {proxy.name for proxy in made}
        storage = max([storage, *[proxy.storage + 1 for proxy in made if isinstance(proxy, TensorProxy)]])
        lowest = len(parts) == 1 and parts[0].symbol is bound.symbol
        lines.append(bound if lowest else replace(bound, parts=parts))
    return replace(trace, symbols=tuple(lines))


def _flags() -> tuple[Any, ...]:
    """PyTorch's settings that decide which operators a call consists of."""
    return (
        torch.get_default_dtype(),
        torch.are_deterministic_algorithms_enabled(),
        get_flash_sdp_enabled(),
        get_mem_efficient_sdp_enabled(),
        get_math_sdp_enabled(),
        get_cudnn_sdp_enabled(),
    )


def call_key(bound: BoundSymbol, context: Context) -> Any:
    """Everything that the meaning of a line depends on but names; None when that cannot be a key."""
    if Tag.LOCAL in bound.symbol.tags:
        return None  # a key would keep the user's function alive
    memories: dict[int, int] = {}
    key: list[Any] = [bound.symbol, context, *_flags()]

    def add(leaf: Any) -> int:
        if isinstance(leaf, TensorProxy):
            memory = memories.setdefault(leaf.storage, len(memories))
            key.append((leaf.geometry, leaf.dtype, leaf.device, leaf.requires_grad, memory))
        else:
            key.append((type(leaf), repr(leaf) if isinstance(leaf, float) else leaf))
        return len(key)

    structure = repr((map_leaves(add, bound.args), map_leaves(add, bound.kwargs)))
    key.append(structure)
    try:
        hash(tuple(key))
    except TypeError:
        return None
    return tuple(key)
