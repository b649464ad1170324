"""Track the current functional values of written blocks."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch

from thunder_core.errors import FunctionalizationError
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.geometry import covers, overlaps_itself
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.size import known_at_most
from thunder_core.ir.tree import map_leaves
from thunder_core.passes import operations
from thunder_core.passes.functionalize.blocks import Block, Family, View, value_with_history
from thunder_core.passes.functionalize.emitter import Emitter
from thunder_core.passes.functionalize.write_back import write_back


class State:
    """Emits functional ops for reads and writes of views.

    Attributes:
        regenerated: from the name of a view that was taken again after a write to its name before.
    """

    def __init__(self, emitter: Emitter) -> None:
        self.emitter = emitter
        self.regenerated: dict[str, str] = {}

    def current(self, view: View) -> TensorProxy:
        """The current value of a view; if it is out of date, ops that compute it are emitted."""
        if view.value is None or view.version != view.block.version:
            view.value = self.value_in(view, view.family)
            view.version = view.block.version
        return view.value

    def place(self, view: View, origin: View) -> None:
        """Emit now a view given by geometry, with the autograd history of ``origin``, or none under ``no_grad``."""
        base, distance = self.current(origin), view.proxy.offset - origin.proxy.offset
        value = replace(view.proxy, name=self.emitter.name(), storage=base.storage, offset=base.offset + distance)
        arguments = (tuple(view.proxy.shape), tuple(view.proxy.stride), distance)
        self.emitter.call(operations.strided_view, (base, *arguments), value)
        view.value, view.version = value, view.block.version

    def value_in(self, view: View, family: Family) -> TensorProxy:
        """The value of a view as a view of ``family``'s value of the whole block."""
        if view.family is family and view.value is not None and view.version == view.block.version:
            return view.value
        whole = self.refresh(view.block, family)
        if view.shows_all:
            return whole
        if view.parent is None:
            return self._strided(view, whole, family)
        parent = self.current(view.parent) if view.parent.family is family else self.value_in(view.parent, family)
        if view.shows_parent:
            return parent
        return self._replay(view, parent, family)

    def refresh(self, block: Block, family: Family) -> TensorProxy:
        """The value of the whole block for ``family``, with the data of the latest write."""
        if family.value is not None and family.version == block.version:
            return family.value
        latest = self._latest(block, family)
        if block.uncounted and family is block.root_family:
            value = self._with_data(family, block, latest)
        elif not self.emitter.may_record:
            value = latest
        elif family.requires_grad:
            value = self._with_data(family, block, latest)
        elif family in block.families and not (latest.requires_grad or block.requires_grad):
            value = latest
        else:
            value = self._detached(latest)
        family.value, family.version = value, block.version
        return value

    def _latest(self, block: Block, family: Family) -> TensorProxy:
        """The value after the latest write, which was through another family.

        After a write through ``data`` it is a value of the root: later in-place ops increase that tensor's version.
        """
        if block.uncounted and not family.uncounted and family is not block.root_family:
            return self.refresh(block, block.root_family)
        latest = block.latest.value
        assert latest is not None
        return latest

    def _with_data(self, family: Family, block: Block, latest: TensorProxy) -> TensorProxy:
        """A family's value with the data of ``latest``, emitted to be usable outside of a ``no_grad`` block too."""
        own = family.value or value_with_history(family, latest, block.root, self.emitter)
        if not self.emitter.may_record:
            own = self._detached(own)
        value = self.emitter.fresh(latest, requires_grad=own.requires_grad, storage=latest.storage)
        with self.emitter.recording() if own.requires_grad else nullcontext():
            self.emitter.call(operations.with_data, (own, latest), value)
        return value

    def _detached(self, value: TensorProxy) -> TensorProxy:
        detached = self.emitter.fresh(value, requires_grad=False, storage=value.storage)
        self.emitter.call(torch.Tensor.detach, (value,), detached)
        return detached

    def write(self, view: View, value: TensorProxy, family: Family, *, counted: bool) -> None:
        """Emit a write of ``value`` to ``view`` through ``family``; ``counted`` in its ``_version``."""
        block = view.block
        whole = self._written(view, value, family)
        block.version += 1
        block.context = self.emitter.context
        block.latest, block.uncounted = family, view.family.uncounted
        block.counted |= counted and not view.family.uncounted
        family.value, family.version = whole, block.version
        if view.family is family:
            view.value, view.version = value, block.version

    def prepare(self, view: View, family: Family) -> None:
        """Emit now the ops for the values before the write that `write` will use."""
        if view.shows_all:
            return
        self.refresh(view.block, family)
        parent = view.parent
        while parent is not None:
            self._in_family(parent, family)
            parent = parent.parent

    def _in_family(self, view: View, family: Family) -> TensorProxy:
        return self.current(view) if view.family is family else self.value_in(view, family)

    def _written(self, view: View, value: TensorProxy, family: Family) -> TensorProxy:
        if view.shows_all:
            return value
        if view.parent is None or _through_overlap(view):
            return self._strided_write(view, value, family)
        if view.shows_parent:
            return self._written(view.parent, value, family)
        base = self._in_family(view.parent, family)
        step = view.rebased(base)
        shown = list(step.outputs())[view.position]
        assert isinstance(shown, TensorProxy)
        return self._written(view.parent, write_back(self.emitter, base, shown, value, step), family)

    def _replay(self, view: View, parent: TensorProxy, family: Family) -> TensorProxy:
        step = view.rebased(parent)
        names: dict[str, str] = {}

        def rename(leaf: Any) -> Any:
            if not isinstance(leaf, TensorProxy):
                return leaf
            names[leaf.name] = self.emitter.name()
            return replace(leaf, name=names[leaf.name])

        fresh = replace(step, output=map_leaves(rename, step.output))
        self.emitter.ops.append(fresh)
        if view.family is family:  # otherwise it is another view to autograd
            self.regenerated.update({new: old for old, new in names.items()})
        value = list(fresh.outputs())[view.position]
        assert isinstance(value, TensorProxy)
        return value

    def _strided(self, view: View, whole: TensorProxy, family: Family) -> TensorProxy:
        """Emit a view that is given by geometry alone."""
        self._check_reachable(view)
        value = replace(
            whole,
            name=self.emitter.name(),
            shape=view.proxy.shape,
            stride=view.proxy.stride,
            offset=whole.offset + view.relative_offset,
        )
        arguments = (tuple(view.proxy.shape), tuple(view.proxy.stride), view.relative_offset)
        with self.emitter.modes_of(view.step):
            self.emitter.call(operations.strided_view, (whole, *arguments), value)
        if view.value is None or view.family is not family:  # to autograd it is not the same view
            return value
        self.regenerated[value.name] = view.value.name
        return value

    def _strided_write(self, view: View, value: TensorProxy, family: Family) -> TensorProxy:
        self._check_reachable(view)
        whole = self.refresh(view.block, family)
        result = self.emitter.fresh(whole, requires_grad=whole.requires_grad or value.requires_grad)
        arguments = (tuple(view.proxy.shape), tuple(view.proxy.stride), view.relative_offset)
        self.emitter.call(operations.strided_write, (whole, value, *arguments), result)
        return result

    def _check_reachable(self, view: View) -> None:
        if not known_at_most(0, view.relative_offset) or not covers(view.block.root, view.proxy):
            raise FunctionalizationError(
                f"{view.proxy.name} shares written storage with {view.block.root.name}, which does not cover it",
                location=self.emitter.location,
                advice=(
                    "create one of them as a view of the other inside of the compiled function, or copy one of them",
                ),
            )


def _through_overlap(view: View) -> bool:
    """Whether a view was taken of a self-overlapping one, whose strides no copy can have."""
    ancestor = view.parent
    while ancestor is not None and not overlaps_itself(ancestor.proxy):
        ancestor = ancestor.parent
    return ancestor is not None


def single_view(bound: BoundSymbol, base: TensorProxy) -> bool:
    """Whether an op only takes views of ``base``, so that it can be repeated on another value of ``base``."""
    outputs = list(bound.outputs())
    return bound.effects.pure and all(isinstance(p, TensorProxy) and p.storage == base.storage for p in outputs)


def views_of(views: Iterable[View]) -> list[View]:
    """Each view object once, in order."""
    return list({id(view): view for view in views}.values())
