"""Where written memory first appears in a program."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

import torch

from thunder_core.ir import geometry
from thunder_core.ir.proxy import Proxy, TensorProxy
from thunder_core.passes import operations
from thunder_core.passes.functionalize.emitter import Emitter
from thunder_core.passes.functionalize.memory import Family, Memory, View

# Views whose place counts from the start of the storage and not from the tensor that they are called on.
ADDRESSING_VIEWS = frozenset({"torch.as_strided", "as_strided", "as_strided_", "torch.ops.aten.as_strided.default"})


class RootFinder:
    """Makes the `Memory` of inputs and of fresh results whose storage is written somewhere in the trace.

    Tensors of one storage that do not touch each other (halves of a cache, say) are separate memories.
    """

    def __init__(self, written: frozenset[int], families: tuple[frozenset[str], ...] = ()) -> None:
        self.written = written
        self.families = {name: family for family in families for name in family}

    def of_inputs(self, inputs: Iterable[Proxy]) -> list[View]:
        """The views that the inputs are."""
        views = self.of_outputs([proxy for proxy in inputs if isinstance(proxy, TensorProxy)])
        for view in views:
            view.memory.inputs.append(view.proxy.name)
        return views

    def of_outputs(self, proxies: Iterable[TensorProxy]) -> list[View]:
        """The views that tensors are which appear together."""
        by_storage: dict[int, list[TensorProxy]] = {}
        for proxy in proxies:
            if proxy.storage in self.written:
                by_storage.setdefault(proxy.storage, []).append(proxy)
        groups = chain.from_iterable(map(_touching, by_storage.values()))
        return list(chain.from_iterable(map(self._views, groups)))

    def _views(self, group: list[TensorProxy]) -> list[View]:
        """Tensors in one memory."""
        root = _covering(group)
        members: dict[object, list[TensorProxy]] = {}
        for proxy in group:
            members.setdefault(self.families.get(proxy.name, proxy.name), []).append(proxy)
        families = {
            proxy.name: family for found in members.values() for family in [_family(found, root)] for proxy in found
        }
        memory = Memory(root, families[root.name], families[root.name])
        if any(not geometry.covers(root, proxy) for proxy in group if proxy is not root):
            names = ", ".join(proxy.name for proxy in group)
            memory.conflict = f"{names} overlap in memory, none of them shows all of it, and one of them is written"
        memory.families = list(dict.fromkeys(families.values()))
        return [View(proxy, memory, families[proxy.name], value=proxy, version=0) for proxy in group]


def _family(members: list[TensorProxy], root: TensorProxy) -> Family:
    heads: list[TensorProxy] = []
    for proxy in members:
        if not any(geometry.covers(head, proxy) for head in heads):
            heads = [*(head for head in heads if not geometry.covers(proxy, head)), proxy]
    if root in members:
        return Family(root, 0, (root,))
    if heads[0].geometry == root.geometry and heads[0].dtype == root.dtype:
        return Family(heads[0], 0, (heads[0],))
    return Family(None, -1, tuple(heads))


def _touching(proxies: list[TensorProxy]) -> list[list[TensorProxy]]:
    """Groups of tensors that share elements, directly or through others."""
    groups: list[list[TensorProxy]] = []
    for proxy in proxies:
        near = [group for group in groups if any(not geometry.disjoint(proxy, other) for other in group)]
        groups = [group for group in groups if group not in near]
        groups.append([*chain.from_iterable(near), proxy])
    return groups


def _covering(group: list[TensorProxy]) -> TensorProxy:
    for proxy in group:
        if all(geometry.covers(proxy, other) for other in group if other is not proxy):
            return proxy
    return group[0]


def joined(family: Family, whole: TensorProxy, root: TensorProxy, emitter: Emitter) -> TensorProxy:
    """A value of the whole memory with the gradients of a family whose tensors show parts of it.

    Args:
        whole: any value of the memory; the data is of no account.
        root: the tensor that shows all of it.
    """
    value = whole
    with emitter.recording():
        if value.requires_grad:
            value = emitter.fresh(whole, requires_grad=False, storage=whole.storage)
            emitter.call(torch.Tensor.detach, (whole,), value)
        for head in family.heads:
            before, value = value, emitter.fresh(value, requires_grad=True)
            place = (tuple(head.shape), tuple(head.stride), head.offset - root.offset)
            emitter.call(operations.strided_write, (before, head, *place), value)
    return value
