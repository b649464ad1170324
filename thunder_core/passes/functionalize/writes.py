"""Rewrite in-place ops to ops that return new values."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

from thunder_core.errors import FunctionalizationError, UnsupportedError
from thunder_core.ir import geometry
from thunder_core.ir.bound_symbol import BoundSymbol, tensor_outputs_of
from thunder_core.ir.context import Context
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.symbol import Tag
from thunder_core.ir.tree import iterate_proxies, map_leaves
from thunder_core.passes.functionalize.blocks import Family, View
from thunder_core.passes.functionalize.emitter import Emitter
from thunder_core.passes.functionalize.metadata import Metadata
from thunder_core.passes.functionalize.result import Mutation, WrittenArgument
from thunder_core.passes.functionalize.rules import (
    call_on_copies,
    call_recomputed,
    call_twin,
    find_twin,
    requires_grad,
)
from thunder_core.passes.functionalize.state import State, views_of


def _check_writable(bound: BoundSymbol, targets: list[View]) -> None:
    """Raise FunctionalizationError if the writes of ``bound`` cannot be functionalized."""
    for view in targets:
        if view.block.conflict is not None:
            raise FunctionalizationError(
                view.block.conflict,
                location=bound.location,
                advice=("pass tensors that do not overlap, or pass one of them and create views of it inside",),
            )
        if geometry.expanded(view.proxy):
            raise _overlapping(bound, "an expanded tensor")
        if geometry.overlaps_itself(view.proxy) and not _fills(bound):
            raise _overlapping(bound, "a tensor that overlaps itself")
    for one, other in combinations(targets, 2):
        if one.block is other.block and not geometry.disjoint(one.proxy, other.proxy):
            raise FunctionalizationError(
                f"{bound.symbol.name} writes to two tensors that overlap in memory",
                location=bound.location,
                advice=("clone() one of them before the call",),
            )


def _check_read(bound: BoundSymbol, target: View, arguments: list[View]) -> None:
    """Raise FunctionalizationError if ``bound`` reads a part of what it writes, which PyTorch refuses."""
    if Tag.ASSIGNMENT in bound.symbol.tags:
        return
    for view in arguments:
        if view.block is target.block and geometry.overlap_in_part(view.proxy, target.proxy):
            raise FunctionalizationError(
                f"{bound.symbol.name} writes to {target.proxy.name} and reads {view.proxy.name}, a part of it",
                location=bound.location,
                advice=("clone() the tensor that is read before the write",),
            )


def _fills(bound: BoundSymbol) -> bool:
    """Whether an op writes one value to all elements, so that overlapping elements get the same value."""
    values = [leaf for leaf in bound.args[1:] if isinstance(leaf, TensorProxy)]
    return Tag.FILL in bound.symbol.tags and all(value.numel == 1 for value in values)


def _overlapping(bound: BoundSymbol, description: str) -> FunctionalizationError:
    return FunctionalizationError(
        f"{bound.symbol.name} writes to {description}: several elements have the same address",
        location=bound.location,
        advice=("clone() the tensor before the write",),
    )


def check_shapes(bound: BoundSymbol, targets: list[View]) -> None:
    """Raise UnsupportedError if ``bound`` returns a written argument with another shape."""
    for proxy in tensor_outputs_of(bound):
        if any(view.has_elements_of(proxy) for view in targets):
            continue
        if any(view.proxy.storage == proxy.storage for view in targets):
            raise UnsupportedError(
                f"{bound.symbol.name} changes the shape of its argument in place",
                location=bound.location,
                advice=("use the out-of-place function and rebind the variable",),
            )


class Writes:
    """Rewrites in-place ops.

    Attributes:
        mutations: the functional form of each.
    """

    def __init__(self, emitter: Emitter, state: State, views: dict[str, View]) -> None:
        self.emitter = emitter
        self.state = state
        self.views = views
        self.metadata = Metadata()
        self.mutations: list[Mutation] = []

    def rewrite(self, bound: BoundSymbol, call: BoundSymbol) -> None:
        """Emit the functional form of ``bound``; ``call`` is ``bound`` on functional values."""
        targets = self._targets(bound)
        _check_writable(bound, targets)
        views = [self.views[proxy.name] for proxy in bound.inputs() if proxy.name in self.views]
        for target in targets:
            _check_read(bound, target, views)
        check_shapes(bound, targets)
        modes = self._modes(targets)
        with self.emitter.modes_of(replace(call, context=modes)):
            self._rewrite(bound, replace(call, context=modes), targets)
        for view in targets:
            view.block.context = bound.context

    def _modes(self, targets: list[View]) -> Context | None:
        """The modes of a write's functional form.

        In inference mode, a write to a normal tensor leaves it a normal tensor. The functional form returns a new one,
        which would be an inference tensor that autograd cannot save; so it runs under ``no_grad`` instead.
        """
        emitter = self.emitter
        entered = emitter.modes.inference and not emitter.ambient.inference
        if not entered or any(view.block.inference for view in targets):
            return emitter.context
        return replace(emitter.modes, inference=False, grad_enabled=False)

    def _rewrite(self, bound: BoundSymbol, call: BoundSymbol, targets: list[View]) -> None:
        before = [self.state.current(view) for view in targets]
        twin = None
        if len(targets) == 1:
            twin = find_twin(call, before[0], self.metadata, self.emitter)
        families = [self._written_family(view) for view in targets]
        for view, family in zip(targets, families, strict=True):
            self.state.prepare(view, family)
        wholes = [self._whole(view, family) for view, family in zip(targets, families, strict=True)]
        start = len(self.emitter.ops)
        objects = self._objects(bound, targets)
        names = [proxy.name for proxy in bound.outputs()]
        if twin is not None and names == list(objects) and not self._saved(call, targets[0]):
            after = [call_twin(call, before[0], twin, names[0] if names else None, self.emitter)]
        else:
            after = self._copies(bound, call, targets, before, objects)
        for view, value, family in zip(targets, after, families, strict=True):
            self.state.write(view, value, family, counted=not bound.effects.uncounted)
        for name, position in objects.items():
            self.views[name] = targets[position]
        self._remember(call, bound.context, start, before, after, wholes, families, objects)

    def _targets(self, bound: BoundSymbol) -> list[View]:
        """The arguments that are written.

        Effects name all arguments in a written storage. Of several in one block, the written ones are those passed as
        ``out``; without such, those that the op returns; without such, all.
        """
        names = set(bound.effects.mutates)
        out = [proxy.name for proxy in iterate_proxies(bound.kwargs.get("out")) if proxy.name in names]
        candidates = views_of(self.views[proxy.name] for proxy in bound.inputs() if proxy.name in names)
        returned = [self.views[name] for name in out]
        returned = returned or [candidates[index] for index in self._objects(bound, candidates).values()]
        return [
            view for view in candidates if view in returned or not any(view.block is other.block for other in returned)
        ]

    def _copies(
        self,
        bound: BoundSymbol,
        call: BoundSymbol,
        targets: list[View],
        before: list[TensorProxy],
        objects: dict[str, int],
    ) -> list[TensorProxy]:
        def output(leaf: Any) -> Any:
            if isinstance(leaf, TensorProxy) and leaf.name in objects:
                # later ops use the copy under its own name; this name is only for the op's result
                return replace(leaf, storage=self.emitter.storage(), offset=0)
            return leaf

        named = map_leaves(output, bound.output)
        if Tag.RECOMPUTED in call.symbol.tags:
            return call_recomputed(call, before, targets, named, self.emitter)
        return call_on_copies(call, before, named, self.metadata, self.emitter)

    def _saved(self, call: BoundSymbol, view: View) -> bool:
        """Whether autograd may save an input that the epilogue writes later: the op must then read a copy of it."""
        return bool(view.block.inputs) and not view.block.version and requires_grad(call, self.emitter)

    def _written_family(self, view: View) -> Family:
        """The family of a write; for writes that autograd does not record, the block's shadow."""
        if self.emitter.records_gradients:
            view.family.recorded = True
            return view.family
        if not view.family.requires_grad:
            return view.family
        block = view.block
        if block.shadow is None:
            block.shadow = Family(None, -1, differentiable=False)
        return block.shadow

    def _whole(self, view: View, family: Family) -> TensorProxy:
        """The value of the whole block before a write: the family's if it is up to date, else the latest."""
        if family.value is not None and family.version == view.block.version:
            return family.value
        return view.block.latest.value  # type: ignore[return-value]

    def _objects(self, bound: BoundSymbol, targets: list[View]) -> dict[str, int]:
        """From the names of outputs that are written arguments themselves to the argument's position in ``targets``."""
        objects: dict[str, int] = {}
        for proxy in tensor_outputs_of(bound):
            same = [index for index, view in enumerate(targets) if view.has_elements_of(proxy)]
            unused = [index for index in same if index not in objects.values()]
            if same:
                objects[proxy.name] = (unused or same)[0]
        return objects

    def _remember(
        self,
        call: BoundSymbol,
        context: Context | None,
        start: int,
        before: list[TensorProxy],
        after: list[TensorProxy],
        wholes: list[TensorProxy],
        families: list[Family],
        objects: dict[str, int],
    ) -> None:
        ops = tuple(bound.outputs()[0].name for bound in self.emitter.ops[start:])
        written = tuple(
            WrittenArgument(old.name, new.name, whole.name, family.value.name)  # type: ignore[union-attr]
            for old, new, whole, family in zip(before, after, wholes, families, strict=True)
        )
        mutates = tuple(proxy.name for proxy in before)
        original = replace(call, context=context, effects=replace(call.effects, mutates=mutates))
        self.mutations.append(Mutation(original, self.emitter.ops[start].symbol, ops, written, objects))
