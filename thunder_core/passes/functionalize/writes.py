"""In-place calls, as calls that return new values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.context import Context
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.symbol import Tag
from thunder_core.ir.tensors import tensor_outputs_of
from thunder_core.ir.tree import iterate_proxies, map_leaves
from thunder_core.passes.functionalize.checks import check_shapes, check_writable
from thunder_core.passes.functionalize.emitter import Emitter
from thunder_core.passes.functionalize.memory import Family, View
from thunder_core.passes.functionalize.metadata import Metadata
from thunder_core.passes.functionalize.recomputed import call_recomputed
from thunder_core.passes.functionalize.result import Mutation
from thunder_core.passes.functionalize.rules import call_on_copies, call_twin, find_twin, requires_grad
from thunder_core.passes.functionalize.state import State, views_of


class Writes:
    """Rewrites in-place calls.

    Attributes:
        mutations: what was done for each.
    """

    def __init__(self, emitter: Emitter, state: State, views: dict[str, View]) -> None:
        self.emitter = emitter
        self.state = state
        self.views = views
        self.metadata = Metadata()
        self.mutations: list[Mutation] = []

    def rewrite(self, bound: BoundSymbol, call: BoundSymbol) -> None:
        """Add the functional form of ``bound``; ``call`` is the same call on functional values."""
        targets = self._targets(bound)
        check_writable(bound, targets)
        check_shapes(bound, targets)
        modes = self._modes(targets)
        with self.emitter.modes_of(replace(call, context=modes)):
            self._rewrite(bound, replace(call, context=modes), targets)
        for view in targets:
            view.memory.context = bound.context

    def _modes(self, targets: list[View]) -> Context | None:
        """Those of a write. Inference mode, where the program enters it, leaves what is from outside as it was.

        What a call returns there could not be saved for backward, and would stand for such a tensor from then on.
        """
        emitter = self.emitter
        entered = emitter.modes.inference and not emitter.ambient.inference
        if not entered or any(view.memory.inference for view in targets):
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
        start = len(self.emitter.lines)
        objects = self._objects(bound, targets)
        names = [proxy.name for proxy in bound.outputs()]
        if twin is not None and names == list(objects) and not self._saved(call, targets[0]):
            after = [call_twin(call, before[0], twin, names[0] if names else None, self.emitter)]
        else:
            after = self._copies(bound, call, targets, before, objects)
        for view, value, family in zip(targets, after, families, strict=True):
            self.state.write(view, value, family)
        for name, position in objects.items():
            self.views[name] = targets[position]
        self._remember(call, bound.context, start, before, after, wholes, families, objects)

    def _targets(self, bound: BoundSymbol) -> list[View]:
        """The arguments that are written.

        Effects name every argument whose memory is written. Of several that show one memory those are written which are
        given as ``out``, or else those which the call returns, or else all.
        """
        names = set(bound.effects.mutates)
        out = [proxy.name for proxy in iterate_proxies(bound.kwargs.get("out")) if proxy.name in names]
        candidates = views_of(self.views[proxy.name] for proxy in bound.inputs() if proxy.name in names)
        returned = [self.views[name] for name in out]
        returned = returned or [candidates[index] for index in self._objects(bound, candidates).values()]
        return [
            view
            for view in candidates
            if view in returned or not any(view.memory is other.memory for other in returned)
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
                # later lines use the copy by its name; this name is for the call's result alone
                return replace(leaf, storage=self.emitter.storage(), offset=0)
            return leaf

        named = map_leaves(output, bound.output)
        if Tag.RECOMPUTED in call.symbol.tags:
            return call_recomputed(call, before, targets, named, self.emitter)
        return call_on_copies(call, before, named, self.metadata, self.emitter)

    def _saved(self, call: BoundSymbol, view: View) -> bool:
        """Whether autograd may save an input that the epilogue writes later: then only a copy of it may be read."""
        return bool(view.memory.inputs) and not view.memory.version and requires_grad(call, self.emitter)

    def _written_family(self, view: View) -> Family:
        """The family that a write belongs to: under ``no_grad`` autograd does not see it."""
        if self.emitter.records_gradients:
            view.family.recorded = True
            return view.family
        if not view.family.requires_grad:
            return view.family
        memory = view.memory
        if memory.shadow is None:
            memory.shadow = Family(None, -1, differentiable=False)
        return memory.shadow

    def _whole(self, view: View, family: Family) -> TensorProxy:
        """The value of the whole memory before a write, as some family has it."""
        if family.value is not None and family.version == view.memory.version:
            return family.value
        return view.memory.latest.value  # type: ignore[return-value]

    def _objects(self, bound: BoundSymbol, targets: list[View]) -> dict[str, int]:
        """Outputs that are a written argument itself, by its position."""
        objects: dict[str, int] = {}
        for proxy in tensor_outputs_of(bound):
            same = [index for index, view in enumerate(targets) if view.shows_like(proxy)]
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
        lines = tuple(bound.outputs()[0].name for bound in self.emitter.lines[start:])
        written = tuple(
            (old.name, new.name, whole.name, family.value.name)  # type: ignore[union-attr]
            for old, new, whole, family in zip(before, after, wholes, families, strict=True)
        )
        mutates = tuple(proxy.name for proxy in before)
        original = replace(call, context=context, effects=replace(call.effects, mutates=mutates))
        self.mutations.append(Mutation(original, self.emitter.lines[start].symbol, lines, written, objects))
