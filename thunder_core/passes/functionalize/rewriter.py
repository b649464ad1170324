"""Walk an acquired trace and write down the same program without mutation."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

from thunder_core.errors import FunctionalizationError, UnsupportedError
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.proxy import PROXY_TYPES, TensorProxy
from thunder_core.ir.trace import Trace
from thunder_core.ir.tree import iterate_proxies, map_leaves
from thunder_core.passes.functionalize import geometry
from thunder_core.passes.functionalize.emitter import Emitter
from thunder_core.passes.functionalize.memory import Family, View, moved
from thunder_core.passes.functionalize.metadata import Metadata
from thunder_core.passes.functionalize.result import Mutation
from thunder_core.passes.functionalize.roots import ADDRESSING_VIEWS, DETACHING_VIEWS, RootFinder
from thunder_core.passes.functionalize.rules import Twin, call_on_copies, call_twin, find_twin, requires_grad
from thunder_core.passes.functionalize.state import State, single_view, views_of


class Rewriter:
    """The walk.

    Attributes:
        views: the object behind each name of a tensor that shows written memory.
        mutations: what was done for each in-place call.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.emitter = Emitter(trace)
        self.state = State(self.emitter)
        self.metadata = Metadata()
        self.roots = RootFinder(written_storages(trace))
        self.views: dict[str, View] = {}
        self.mutations: list[Mutation] = []

    def run(self) -> None:
        """Rewrite all lines."""
        for view in self.roots.of_inputs(self.trace.inputs):
            self.views[view.proxy.name] = view
        for bound in self.trace.symbols:
            self._line(bound)
        self.emitter.context = self.emitter.location = None

    def value(self, leaf: Any) -> Any:
        """An argument or output of the acquired trace as a functional value."""
        if isinstance(leaf, TensorProxy):
            view = self.views.get(leaf.name)
            return leaf if view is None else self.state.current(view)
        return leaf

    def _line(self, bound: BoundSymbol) -> None:
        views = self.views
        written = self.roots.written
        touched = any(proxy.name in views for proxy in bound.inputs())
        if not touched and not any(isinstance(p, TensorProxy) and p.storage in written for p in bound.outputs()):
            self.emitter.lines.append(bound)
            return
        self.emitter.context, self.emitter.location = bound.context, bound.location
        if bound.effects.mutates:
            self._mutate(bound)
        else:
            call = bound.map_arguments(self.value)
            if bound.symbol.name not in ADDRESSING_VIEWS or not self._addressing_view(bound, call):
                self._outputs(bound, call)

    # ---- calls that write nothing -------------------------------------------------------------------------------

    def _outputs(self, bound: BoundSymbol, call: BoundSymbol) -> None:
        """Add ``call``, which is ``bound`` on functional values, and take note of the views among its outputs."""
        arguments = [
            (proxy, self.views[proxy.name])
            for proxy in bound.inputs()
            if isinstance(proxy, TensorProxy) and proxy.name in self.views
        ]
        parents: dict[str, tuple[TensorProxy, View]] = {}
        values: dict[str, TensorProxy] = {}
        for proxy in bound.outputs():
            parent = _parent(proxy, arguments) if isinstance(proxy, TensorProxy) else None
            if isinstance(proxy, TensorProxy) and parent is not None:
                parents[proxy.name] = parent
                values[proxy.name] = moved(proxy, parent[0], self.state.current(parent[1]))
        line = replace(call, output=map_leaves(lambda leaf: _substitute(leaf, values), call.output))
        self.emitter.lines.append(line)
        fresh: list[TensorProxy] = []
        for position, proxy in enumerate(bound.outputs()):
            if not isinstance(proxy, TensorProxy) or proxy.storage not in self.roots.written:
                continue
            parent = parents.get(proxy.name)
            if parent is None:
                fresh.append(proxy)
            else:
                self._view(proxy, *parent, line, position, values[proxy.name])
        for view in self.roots.of_outputs(fresh):
            self.views[view.proxy.name] = view

    def _addressing_view(self, bound: BoundSymbol, call: BoundSymbol) -> bool:
        """A view by its place in memory that was written: the place is in the whole, not in the argument's value."""
        output, argument = bound.output, bound.args[0]
        view = self.views.get(argument.name) if isinstance(argument, TensorProxy) else None
        if view is None or not view.memory.version or not isinstance(output, TensorProxy):
            return False
        detached = argument.requires_grad and not output.requires_grad
        family = Family(None, -1) if detached else view.family
        self.views[output.name] = View(output, view.memory, family, step=call)
        return True

    def _view(
        self,
        proxy: TensorProxy,
        argument: TensorProxy,
        parent: View,
        line: BoundSymbol,
        position: int,
        value: TensorProxy,
    ) -> None:
        memory = parent.memory
        if line.effects.external and proxy.geometry == parent.proxy.geometry:
            self._changed_metadata(proxy, parent, value)
            return
        detached = (argument.requires_grad and not proxy.requires_grad) or line.symbol.name in DETACHING_VIEWS
        family = Family(None, -1) if detached else parent.family
        base = self.state.current(parent)
        view = View(proxy, memory, family, parent, line, base, position, value, memory.version)
        if not single_view(line, base) or line.symbol.name in ADDRESSING_VIEWS:
            view.parent = None
        self.views[proxy.name] = view

    def _changed_metadata(self, proxy: TensorProxy, view: View, value: TensorProxy) -> None:
        """``x.requires_grad_()`` and the like: the same object under a new name."""
        if view.memory.version and proxy.name not in self.views and view.proxy.name in view.memory.inputs:
            raise UnsupportedError(
                f"autograd metadata of the input {view.proxy.name} is changed after a write to it",
                location=self.emitter.location,
                advice=("do that before the first write, or outside of the compiled function",),
            )
        if view.shows_all:
            view.family.value = value
        view.value, view.proxy = value, replace(view.proxy, requires_grad=proxy.requires_grad)
        self.views[proxy.name] = view

    # ---- calls that write ---------------------------------------------------------------------------------------

    def _mutate(self, bound: BoundSymbol) -> None:
        targets = self._targets(bound)
        self._check(bound, targets)
        call = bound.map_arguments(self.value)
        before = [self.state.current(view) for view in targets]
        twin = None
        if len(targets) == 1:
            twin = find_twin(call, before[0], self.metadata, self.emitter)
        if twin is not None and twin.is_view:
            self._change_geometry(bound, call, targets[0], twin)
            return
        self._check_geometry(bound, targets)
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
            after = self._copies(bound, call, before, objects)
        for view, value, family in zip(targets, after, families, strict=True):
            self.state.write(view, value, family)
        for name, position in objects.items():
            self.views[name] = targets[position]
        written = self.roots.written
        fresh = [p for p in bound.outputs() if isinstance(p, TensorProxy) and p.name not in objects and p.storage in written]
        for view in self.roots.of_outputs(fresh):
            self.views[view.proxy.name] = view
        self._remember(call, start, before, after, wholes, families, objects)

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
        self, bound: BoundSymbol, call: BoundSymbol, before: list[TensorProxy], objects: dict[str, int]
    ) -> list[TensorProxy]:
        def output(leaf: Any) -> Any:
            if isinstance(leaf, TensorProxy) and leaf.name in objects:
                # later lines use the copy by its own name; this name is for the call's result alone
                return replace(leaf, storage=self.emitter.storage(), offset=0)
            return leaf

        return call_on_copies(call, before, map_leaves(output, bound.output), self.emitter)

    def _saved(self, call: BoundSymbol, view: View) -> bool:
        """Whether autograd may save an input that the epilogue writes later: then only a copy of it may be read."""
        return bool(view.memory.inputs) and not view.memory.version and requires_grad(call, self.emitter)

    def _written_family(self, view: View) -> Family:
        """The family that a write belongs to: under ``no_grad`` autograd does not see it."""
        if self.emitter.records_gradients:
            view.family.recorded = True
            return view.family
        whole = view.family.value
        if whole is None or not whole.requires_grad:
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
        for proxy in bound.outputs():
            if not isinstance(proxy, TensorProxy):
                continue
            same = [index for index, view in enumerate(targets) if view.shows_like(proxy)]
            unused = [index for index in same if index not in objects.values()]
            if same:
                objects[proxy.name] = (unused or same)[0]
        return objects

    def _remember(
        self,
        call: BoundSymbol,
        start: int,
        before: list[TensorProxy],
        after: list[TensorProxy],
        wholes: list[TensorProxy],
        families: list[Family],
        objects: dict[str, int],
    ) -> None:
        lines = tuple(next(bound.outputs()).name for bound in self.emitter.lines[start:])
        written = tuple(
            (old.name, new.name, whole.name, family.value.name)  # type: ignore[union-attr]
            for old, new, whole, family in zip(before, after, wholes, families, strict=True)
        )
        mutates = tuple(proxy.name for proxy in before)
        original = replace(call, effects=replace(call.effects, mutates=mutates))
        self.mutations.append(Mutation(original, self.emitter.lines[start].symbol, lines, written, objects))

    # ---- what cannot be done ------------------------------------------------------------------------------------

    def _check(self, bound: BoundSymbol, targets: list[View]) -> None:
        for view in targets:
            if view.memory.conflict is not None:
                raise FunctionalizationError(
                    view.memory.conflict,
                    location=bound.location,
                    advice=("pass tensors that do not overlap, or pass one of them and make views of it inside",),
                )
            if geometry.overlaps_itself(view.proxy):
                raise FunctionalizationError(
                    f"{bound.symbol.name} writes to an expanded tensor: several of its elements are one place in memory",
                    location=bound.location,
                    advice=("clone() the tensor before the write",),
                )
        for one, other in combinations(targets, 2):
            if one.memory is other.memory and not geometry.disjoint(one.proxy, other.proxy):
                raise FunctionalizationError(
                    f"{bound.symbol.name} writes to two tensors that overlap in memory",
                    location=bound.location,
                    advice=("clone() one of them before the call",),
                )

    def _check_geometry(self, bound: BoundSymbol, targets: list[View]) -> None:
        for proxy in bound.outputs():
            if not isinstance(proxy, TensorProxy) or any(view.shows_like(proxy) for view in targets):
                continue
            if any(view.proxy.storage == proxy.storage for view in targets):
                raise UnsupportedError(
                    f"{bound.symbol.name} changes the shape of its argument in place",
                    location=bound.location,
                    advice=("use the out-of-place function and rebind the variable",),
                )

    def _change_geometry(self, bound: BoundSymbol, call: BoundSymbol, view: View, twin: Twin) -> None:
        """``x.t_()`` and the like: the same data, and from here on the object is another view of it."""
        output = next(bound.outputs())
        assert isinstance(output, TensorProxy)
        if output.geometry == view.proxy.geometry:
            self.views[output.name] = view
            return
        if view.proxy.name in view.memory.inputs:
            raise UnsupportedError(
                f"{bound.symbol.name} changes the shape of the input {view.proxy.name} in place",
                location=bound.location,
                advice=("use the out-of-place function and rebind the variable",),
            )
        base = self.state.current(view)
        value = moved(output, view.proxy, base)
        line = replace(call, symbol=twin.symbol, output=value, effects=replace(call.effects, mutates=()))
        self.emitter.lines.append(line)
        self.views[output.name] = View(
            output, view.memory, view.family, view, line, base, 0, value, view.memory.version
        )


def written_storages(trace: Trace) -> frozenset[int]:
    """Numbers of the storages that the trace writes."""
    return frozenset(
        proxy.storage
        for bound in trace.symbols
        if bound.effects.mutates
        for proxy in bound.inputs()
        if isinstance(proxy, TensorProxy) and proxy.name in bound.effects.mutates
    )


def _parent(
    proxy: TensorProxy, arguments: list[tuple[TensorProxy, View]]
) -> tuple[TensorProxy, View] | None:
    """The argument whose memory a result shows."""
    sharing = [item for item in arguments if item[0].storage == proxy.storage]
    if len(sharing) < 2 or all(view.memory is sharing[0][1].memory for _, view in sharing):
        return sharing[0] if sharing else None
    return next((item for item in sharing if geometry.covers(item[1].memory.root, proxy)), sharing[0])


def _substitute(leaf: Any, values: dict[str, TensorProxy]) -> Any:
    return values.get(leaf.name, leaf) if isinstance(leaf, PROXY_TYPES) else leaf
