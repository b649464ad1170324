"""The state of written storages during functionalization: blocks, families and views."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import torch

from thunder_core.ir import geometry
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.context import Context
from thunder_core.ir.geometry import StoragePosition
from thunder_core.ir.proxy import Proxy, TensorProxy
from thunder_core.ir.symbol import Tag
from thunder_core.ir.tree import map_leaves
from thunder_core.passes import operations
from thunder_core.passes.functionalize.emitter import Emitter


@dataclass(eq=False, slots=True)
class Family:
    """The tensors of one block that share autograd history: a base and its differentiable views.

    ``x`` and ``x.detach()`` share a block but no autograd history: a write through one changes the data of the other
    but not its ``grad_fn``.

    Attributes:
        value: the functional value of the whole block, with the autograd history of this family; None until needed.
        version: the `Block.version` of which ``value`` is the value.
        heads: for a family of inputs or of one op's results, those of the tensors that no other of them covers.
        differentiable: False for the family of writes under ``no_grad``.
        recorded: whether autograd recorded a write through this family.
        uncounted: whether its tensors are views of an ``x.data``: ``x._version`` does not count writes through them.
    """

    value: TensorProxy | None
    version: int
    heads: tuple[TensorProxy, ...] = ()
    differentiable: bool = True
    recorded: bool = False
    uncounted: bool = False

    @property
    def requires_grad(self) -> bool:
        """Whether its current value requires grad."""
        return self.value.requires_grad if self.value is not None else any(head.requires_grad for head in self.heads)

    def apart(self, *, uncounted: bool = False) -> Family:
        """A new family, for a view without the autograd history of this one.

        Args:
            uncounted: whether the view is ``x.data``.
        """
        return Family(None, -1, uncounted=uncounted or self.uncounted)


@dataclass(eq=False, slots=True)
class Block:
    """A written storage, or a part of one that overlaps no other accessible part.

    Attributes:
        root: the tensor that covers all elements that the program can access.
        root_family: the family of the root.
        latest: the family of the latest write; the root's before the first write.
        version: the number of writes so far.
        uncounted: whether the root's ``_version`` does not count the latest write.
        counted: whether the root's ``_version`` counts any write.
        shadow: the family of writes that autograd does not record; None before the first.
        conflict: the reason why the block cannot be written; None if it can.
        families: the families of the inputs or results for which the block was created.
        inputs: names of the trace inputs in the block.
        context: the modes of the latest write; None if they are those of the program.
        inference: whether the block was created in an inference mode that the program enters: autograd must not save
            its tensors.
    """

    root: TensorProxy
    root_family: Family
    latest: Family
    version: int = 0
    uncounted: bool = False
    counted: bool = False
    shadow: Family | None = None
    conflict: str | None = None
    families: list[Family] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    context: Context | None = None
    inference: bool = False

    @property
    def requires_grad(self) -> bool:
        """Whether any of ``families`` requires grad."""
        return any(family.requires_grad for family in self.families)


@dataclass(eq=False, slots=True)
class View:
    """One tensor object of the user's program in a written block.

    Attributes:
        proxy: its proxy in the acquired trace.
        family: the family with its autograd history.
        parent: the view to which ``step`` was applied. If None, the tensor is defined by its geometry relative to the
            root of the block.
        step: the op that returned the tensor.
        base: the functional value of the parent when ``step`` was applied.
        position: the position of the tensor among the outputs of ``step``.
        origin: for a view without a parent, the argument of the op that returned it, if that covers it.
        value: its functional value for `Block.version` ``version``.
    """

    proxy: TensorProxy
    block: Block
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
        """Whether it has the dtype and geometry of the block's root."""
        root = self.block.root
        if self.proxy.geometry != root.geometry or self.proxy.dtype != root.dtype:
            return False
        if not root.dtype.is_complex or self.parent is None:
            return True
        return self.shows_parent and self.parent.shows_all

    @property
    def shows_parent(self) -> bool:
        """Whether it has the values of its parent.

        Complex views with the geometry of their parent can be conjugates, so only ``detach`` is recognized for them.
        """
        parent, step = self.parent, self.step
        if parent is None or step is None:
            return False
        if self.proxy.geometry != parent.proxy.geometry or self.proxy.dtype != parent.proxy.dtype:
            return False
        return not self.proxy.dtype.is_complex or Tag.DETACH in step.symbol.tags

    def has_elements_of(self, proxy: TensorProxy) -> bool:
        """Whether an acquired proxy has the same storage and geometry."""
        return proxy.storage == self.proxy.storage and proxy.geometry == self.proxy.geometry

    def rebased(self, base: TensorProxy) -> BoundSymbol:
        """The op ``step`` on another value of the parent, with the same names of outputs."""
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
        """Its offset minus that of the root, in elements; valid if both have the same dtype."""
        return self.proxy.offset - self.block.root.offset  # type: ignore[return-value]


def moved(view: TensorProxy, old: TensorProxy, new: TensorProxy) -> TensorProxy:
    """The proxy of a view of ``new`` with the position in it that ``view`` has in ``old``."""
    if new is old:
        return view
    requires_grad = view.can_require_grad and new.requires_grad and (view.requires_grad or not old.requires_grad)
    return replace(StoragePosition.between(old, new).moved(view), requires_grad=requires_grad)


class BlockFactory:
    """Creates a `Block` for each group of overlapping inputs, or results of one op, in a written storage.

    Disjoint tensors of one storage, such as the halves of a cache, are in separate blocks.

    Args:
        written: the storages that some op of the trace writes.
        families: the names of inputs that share autograd history; other inputs have a family each.
    """

    def __init__(self, written: frozenset[int], families: tuple[frozenset[str], ...]) -> None:
        self.written = written
        self.input_families = {name: family for family in families for name in family}

    def of_inputs(self, inputs: Iterable[Proxy]) -> list[View]:
        """A view for each trace input in a written storage."""
        views = self.of_outputs([proxy for proxy in inputs if isinstance(proxy, TensorProxy)])
        for view in views:
            view.block.inputs.append(view.proxy.name)
        return views

    def of_outputs(self, proxies: Iterable[TensorProxy]) -> list[View]:
        """A view for each of these tensors in a written storage; they are inputs, or results of one op."""
        by_storage: dict[int, list[TensorProxy]] = {}
        for proxy in proxies:
            if proxy.storage in self.written:
                by_storage.setdefault(proxy.storage, []).append(proxy)
        groups = chain.from_iterable(map(_overlapping_groups, by_storage.values()))
        return list(chain.from_iterable(map(self._views, groups)))

    def _views(self, group: list[TensorProxy]) -> list[View]:
        """Views of one new block for a group of overlapping tensors."""
        root = _root_of(group)
        members: dict[object, list[TensorProxy]] = {}
        for proxy in group:
            members.setdefault(self.input_families.get(proxy.name, proxy.name), []).append(proxy)
        families: dict[str, Family] = {}
        for proxies in members.values():
            families.update(dict.fromkeys([proxy.name for proxy in proxies], _family(proxies, root)))
        block = Block(root, families[root.name], families[root.name])
        if any(not geometry.covers(root, proxy) for proxy in group if proxy is not root):
            names = ", ".join(proxy.name for proxy in group)
            block.conflict = f"{names} overlap in memory, none of them covers the others, and one of them is written"
        block.families = list(dict.fromkeys(families.values()))
        return [View(proxy, block, families[proxy.name], value=proxy, version=0) for proxy in group]


def _family(members: list[TensorProxy], root: TensorProxy) -> Family:
    """The family of tensors that share autograd history, in a new block with this root."""
    heads: list[TensorProxy] = []
    for proxy in members:
        if not any(geometry.covers(head, proxy) for head in heads):
            heads = [*(head for head in heads if not geometry.covers(proxy, head)), proxy]
    if root in members:
        return Family(root, 0, (root,))
    if heads[0].geometry == root.geometry and heads[0].dtype == root.dtype:
        return Family(heads[0], 0, (heads[0],))
    return Family(None, -1, tuple(heads))


def _overlapping_groups(proxies: list[TensorProxy]) -> list[list[TensorProxy]]:
    """The tensors in groups: no tensor overlaps one of another group (connected components)."""
    groups: list[list[TensorProxy]] = []
    for proxy in proxies:
        overlapping = [group for group in groups if any(not geometry.disjoint(proxy, other) for other in group)]
        groups = [group for group in groups if group not in overlapping]
        groups.append([*chain.from_iterable(overlapping), proxy])
    return groups


def _root_of(group: list[TensorProxy]) -> TensorProxy:
    """The first tensor that covers all others; the first of all if none does, which is a `Block.conflict`."""
    for proxy in group:
        if all(geometry.covers(proxy, other) for other in group if other is not proxy):
            return proxy
    return group[0]


def value_with_history(family: Family, whole: TensorProxy, root: TensorProxy, emitter: Emitter) -> TensorProxy:
    """Emit a value of the whole block with the autograd history of all heads of a family.

    Args:
        family: a family whose heads cover parts of the block.
        whole: any value of the block; its data is not used.
        root: the tensor that covers the block.
        emitter: receives the ops.
    """
    value = whole
    with emitter.recording():
        if value.requires_grad:
            value = emitter.fresh(whole, requires_grad=False, storage=whole.storage)
            emitter.call(torch.Tensor.detach, (whole,), value)
        for head in family.heads:
            before, value = value, emitter.fresh(value, requires_grad=True)
            geometry_in_block = (tuple(head.shape), tuple(head.stride), head.offset - root.offset)
            emitter.call(operations.strided_write, (before, head, *geometry_in_block), value)
    return value
