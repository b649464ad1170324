"""Where written memory first appears in a program."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from thunder_core.ir.proxy import Proxy, TensorProxy
from thunder_core.passes.functionalize import geometry
from thunder_core.passes.functionalize.memory import Family, Memory, View

# Views whose place counts from the start of the storage and not from the tensor that they are called on.
ADDRESSING_VIEWS = frozenset({"torch.as_strided", "as_strided", "as_strided_", "torch.ops.aten.as_strided.default"})


class RootFinder:
    """Makes the `Memory` of inputs and of fresh results whose storage is written somewhere in the trace.

    Tensors of one storage that do not touch each other (halves of a cache, say) are separate memories.
    """

    def __init__(self, written: frozenset[int]) -> None:
        self.written = written

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
        return list(chain.from_iterable(map(_memories, by_storage.values())))


def _memories(proxies: list[TensorProxy]) -> list[View]:
    views: list[View] = []
    for group in _touching(proxies):
        root = _covering(group)
        family = Family(root, 0)
        memory = Memory(root, family, family)
        if any(not geometry.covers(root, proxy) for proxy in group if proxy is not root):
            names = ", ".join(proxy.name for proxy in group)
            memory.conflict = f"{names} overlap in memory, none of them shows all of it, and one of them is written"
        for proxy in group:
            # each further input is a tensor of its own for autograd
            own = family if proxy is root or not (root.requires_grad or proxy.requires_grad) else Family(None, -1)
            views.append(View(proxy, memory, own, value=proxy, version=0))
    return views


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
