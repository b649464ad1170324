"""The state of a written memory while a program is made functional."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import torch

from thunder_core.ir import geometry
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.context import Context
from thunder_core.ir.proxy import Proxy, TensorProxy
from thunder_core.ir.tree import map_leaves
from thunder_core.passes import operations
from thunder_core.passes.functionalize.emitter import Emitter

# Views that share data with their base and no gradients, also when neither has any yet.
DETACHING_VIEWS = frozenset({"torch.detach", "detach", "data", "torch.ops.aten.detach.default"})


@dataclass(eq=False, slots=True)
class Family:
    """The tensors of one memory that share gradients: a base and its differentiable views.

    ``x`` and ``x.detach()`` share memory but no gradients: a write through one changes the data of the other, and not
    where its gradient goes.

    Attributes:
        value: the functional value of the whole memory for this family; None until it is needed.
        heads: of a family that the program meets, the tensors that show all of it that the program can reach.
        version: the memory's version that ``value`` has.
        differentiable: False for the family of writes under ``no_grad``.
        recorded: a write was recorded by autograd.
        uncounted: its tensors come from ``x.data``: ``x._version`` does not count writes through them.
    """

    value: TensorProxy | None
    version: int
    heads: tuple[TensorProxy, ...] = ()
    differentiable: bool = True
    recorded: bool = False
    uncounted: bool = False

    @property
    def requires_grad(self) -> bool:
        """Whether gradients go to it, as far as the program has written it."""
        return self.value.requires_grad if self.value is not None else any(head.requires_grad for head in self.heads)

    def apart(self, *, uncounted: bool = False) -> Family:
        """The family of a view that shares no gradients with this one; ``uncounted`` if it comes from ``data``."""
        return Family(None, -1, uncounted=uncounted or self.uncounted)


@dataclass(eq=False, slots=True)
class Memory:
    """One written memory.

    Attributes:
        root: the tensor that shows all of it that the program can reach.
        root_family: the family of that tensor.
        families: those of the tensors that show it at first.
        version: number of writes so far.
        latest: the family that wrote last.
        uncounted: the root's ``_version`` does not count the latest write.
        shadow: the family of writes that autograd does not see.
        conflict: why it cannot be written, when that is so.
        inputs: names of the trace inputs that show it.
        context: the modes of the latest write, where they are not those of the program.
        inference: it was created in an inference mode that the program enters: autograd must not save it.
    """

    root: TensorProxy
    root_family: Family
    latest: Family
    version: int = 0
    uncounted: bool = False
    shadow: Family | None = None
    conflict: str | None = None
    families: list[Family] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    context: Context | None = None
    inference: bool = False

    @property
    def requires_grad(self) -> bool:
        """Whether gradients go to any of ``families``."""
        return any(family.requires_grad for family in self.families)


@dataclass(eq=False, slots=True)
class View:
    """One tensor object of the user's program that shows written memory.

    Attributes:
        proxy: as acquired.
        parent, step, base, position: it is output ``position`` of the call ``step`` on ``parent``, whose functional
            value was ``base`` then; without a parent its place is known relative to the memory's root only.
        origin: without a parent, the view that it is a view of, if that shows all of it.
        value: its functional value when the memory had ``version``.
    """

    proxy: TensorProxy
    memory: Memory
    family: Family
    parent: View | None = None
    step: BoundSymbol | None = None
    base: TensorProxy | None = None
    position: int = 0
    origin: View | None = None
    value: TensorProxy | None = None
    version: int = -1

    @property
    def shows_all(self) -> bool:
        """Whether it shows exactly what the memory's root shows."""
        root = self.memory.root
        if self.proxy.geometry != root.geometry or self.proxy.dtype != root.dtype:
            return False
        if not root.dtype.is_complex or self.parent is None:
            return True
        return self.shows_parent and self.parent.shows_all

    @property
    def shows_parent(self) -> bool:
        """Whether it shows exactly what its parent shows. Complex views of equal geometry may be conjugates."""
        parent, step = self.parent, self.step
        if parent is None or step is None:
            return False
        if self.proxy.geometry != parent.proxy.geometry or self.proxy.dtype != parent.proxy.dtype:
            return False
        return not self.proxy.dtype.is_complex or step.symbol.name in DETACHING_VIEWS

    def shows_like(self, proxy: TensorProxy) -> bool:
        """Whether an acquired proxy shows the same elements in the same way."""
        return proxy.storage == self.proxy.storage and proxy.geometry == self.proxy.geometry

    def rebased(self, base: TensorProxy) -> BoundSymbol:
        """The call that makes this view, on another value of its parent. Names of its outputs are unchanged."""
        step, old = self.step, self.base
        assert step is not None
        assert old is not None

        def argument(leaf: Any) -> Any:
            return base if isinstance(leaf, TensorProxy) and leaf.name == old.name else leaf

        def output(leaf: Any) -> Any:
            return moved(leaf, old, base) if isinstance(leaf, TensorProxy) else leaf

        return replace(step.map_arguments(argument), output=map_leaves(output, step.output))

    @property
    def relative_offset(self) -> int:
        """Elements between the root's first element and this one's. Needs the dtype of the root."""
        return self.proxy.offset - self.memory.root.offset  # type: ignore[return-value]


def moved(view: TensorProxy, old: TensorProxy, new: TensorProxy) -> TensorProxy:
    """A view of ``old`` as the same view of ``new``."""
    if new is old:
        return view
    distance = new.offset * new.dtype.itemsize - old.offset * old.dtype.itemsize
    differentiable = view.dtype.is_floating_point or view.dtype.is_complex
    return replace(
        view,
        storage=new.storage,
        offset=view.offset + distance // view.dtype.itemsize,
        requires_grad=differentiable and new.requires_grad and (view.requires_grad or not old.requires_grad),
    )


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
