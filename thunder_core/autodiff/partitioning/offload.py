"""Offloading: values that forward saves wait for backward in the memory of the host.

Forward copies a value to the host after its last use, while the next ops run. One value at a time is on its way: its
memory is free when the next copy starts. Backward starts to copy the next value back when it needs the one before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import torch

from thunder_core.autodiff.joint import Partitioned
from thunder_core.ir.bound_symbol import BoundSymbol, tensor_inputs_of, tensors_of
from thunder_core.ir.builder import Builder
from thunder_core.ir.proxy import Proxy, TensorProxy, storages_of
from thunder_core.ir.size import are_constant
from thunder_core.ir.storage_sizes import element_bytes, extent_bytes
from thunder_core.ir.tree import iterate_proxies
from thunder_core.symbols.host_memory import OFFLOAD, OFFLOADED, PREFETCH, PREFETCHED

_HOST: Final = torch.device("cpu")
_SMALLEST: Final = 1 << 20
"""The bytes of the smallest value that is offloaded: a copy of fewer takes as long."""


def offloadable(partitioned: Partitioned, *, smallest: int = _SMALLEST) -> tuple[TensorProxy, ...]:
    """The saved values of an accelerator that can be offloaded, the largest first; of equal ones the earliest first.

    These are values that forward computes for backward alone, dense and the only ones that are saved of their storage.
    """
    forward, count = partitioned.forward, partitioned.outputs
    given = storages_of(forward.inputs) | storages_of(iterate_proxies(forward.output[:count]))
    saved = [proxy for proxy in partitioned.saved if isinstance(proxy, TensorProxy)]
    storages = [proxy.storage for proxy in saved]
    found = [
        proxy
        for proxy in saved
        if proxy.device.type == "cuda"
        and proxy.storage not in given
        and storages.count(proxy.storage) == 1
        and smallest <= extent_bytes(proxy) == element_bytes(proxy)
        and are_constant(proxy.sizes)
    ]
    return tuple(sorted(found, key=extent_bytes, reverse=True))


def with_offloaded(partitioned: Partitioned, values: Sequence[TensorProxy]) -> Partitioned:
    """The programs in which these values, of `offloadable`, are offloaded."""
    builder = Builder(partitioned.forward.names() | partitioned.backward.names(), _free_number(partitioned))
    copies = {value.name: _on_host(value, builder) for value in values}
    forward, last = _sending(partitioned, values, copies, builder)
    results = {**copies, **last}

    def held(proxy: Proxy) -> Proxy:
        return results.get(proxy.name, proxy)

    saved = tuple(map(held, partitioned.saved))
    output = (*partitioned.forward.output[: partitioned.outputs], *saved)
    taken = {value.name: held(value) for value in values}
    backward = _fetching(partitioned, taken, builder)
    return replace(
        partitioned,
        forward=replace(partitioned.forward.with_symbols(forward, partitioned.forward.provenance), output=output),
        backward=replace(
            partitioned.backward.with_symbols(backward, partitioned.backward.provenance),
            inputs=(*saved, *partitioned.backward.inputs[len(saved) :]),
        ),
        saved=saved,
        bytes_saved=partitioned.bytes_saved - sum(map(extent_bytes, values)),
        offloaded=sum(map(extent_bytes, values)),
    )


def _free_number(partitioned: Partitioned) -> int:
    used = [p for trace in (partitioned.forward, partitioned.backward) for p in trace.values()]
    return max(storages_of(used), default=-1) + 1


def _on_host(value: TensorProxy, builder: Builder) -> TensorProxy:
    return replace(
        value,
        name=builder.name(f"{value.name}_host"),
        device=_HOST,
        storage=builder.new_storage(),
        requires_grad=False,
    )


def _sending(
    partitioned: Partitioned, values: Sequence[TensorProxy], copies: dict[str, TensorProxy], builder: Builder
) -> tuple[list[BoundSymbol], dict[str, TensorProxy]]:
    """The ops of forward with copies to the host, and the result of the last one once it is complete, by its value."""
    ops = partitioned.forward.symbols
    last_use = {proxy.storage: index for index, op in enumerate(ops) for proxy in tensors_of(op)}
    after: dict[int, list[TensorProxy]] = {}
    for value in values:
        after.setdefault(last_use[value.storage], []).append(value)
    result: list[BoundSymbol] = []
    before: TensorProxy | None = None
    for index, op in enumerate(ops):
        result.append(op)
        for value in after.get(index, ()):
            sent = () if before is None else (before,)
            result.append(BoundSymbol(OFFLOAD, (value, *sent), {}, copies[value.name]))
            before = value
    if before is None:
        return result, {}
    copy = copies[before.name]
    complete = replace(copy, name=builder.name(f"{before.name}_offloaded"))
    result.append(BoundSymbol(OFFLOADED, (copy, before), {}, complete))
    return result, {before.name: complete}


def _fetching(partitioned: Partitioned, taken: dict[str, Proxy], builder: Builder) -> list[BoundSymbol]:
    """The ops of backward with copies from the host: each starts where the value before it is needed."""
    ops = partitioned.backward.symbols
    originals = {proxy.name: proxy for proxy in partitioned.saved if isinstance(proxy, TensorProxy)}
    first_use: dict[str, int] = {}
    for index, op in enumerate(ops):
        for proxy in tensor_inputs_of(op):
            if proxy.name in taken:
                first_use.setdefault(proxy.name, index)
    order = [originals[name] for name in first_use]
    order += [originals[name] for name in taken if name not in first_use]  # gradients that are saved values
    buffers = {value.name: replace(value, name=builder.name(f"{value.name}_fetched")) for value in order}

    def start(position: int) -> list[BoundSymbol]:
        if position >= len(order):
            return []
        value = order[position]
        return [BoundSymbol(PREFETCH, (taken[value.name], value.device), {}, buffers[value.name])]

    def arrive(position: int) -> list[BoundSymbol]:
        value = order[position]
        return [BoundSymbol(PREFETCHED, (buffers[value.name],), {}, value), *start(position + 1)]

    result, position = start(0), 0
    for index, op in enumerate(ops):
        while position < len(order) and first_use.get(order[position].name, len(ops)) == index:
            result += arrive(position)
            position += 1
        result.append(op)
    for late in range(position, len(order)):
        result += arrive(late)
    return result
