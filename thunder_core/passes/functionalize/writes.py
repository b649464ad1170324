"""In-place calls, as calls that return new values."""

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
from thunder_core.ir.trace import Trace, bodies_of
from thunder_core.ir.tree import iterate_leaves, iterate_proxies, map_leaves
from thunder_core.passes import operations
from thunder_core.passes.functionalize.emitter import Emitter
from thunder_core.passes.functionalize.memory import Family, View
from thunder_core.passes.functionalize.metadata import Metadata
from thunder_core.passes.functionalize.result import Mutation
from thunder_core.passes.functionalize.rules import call_on_copies, call_twin, find_twin, position_of, requires_grad
from thunder_core.passes.functionalize.state import State, views_of
from thunder_core.symbols.registry import registry


def call_recomputed(
    call: BoundSymbol, targets: list[TensorProxy], views: list[View], output: Any, emitter: Emitter
) -> list[TensorProxy]:
    """Make ``call`` on copies of the arguments that it writes.

    Args:
        call: on functional values.
        targets: those that it writes.
        views: the objects of the program that they are.
        output: names for its result.
    """
    leaves = list(iterate_leaves((call.args, call.kwargs)))
    positions = tuple([position_of(leaves, target) for target in targets])
    memories = tuple([_memory(view) for view in views])
    operation, arguments, _ = registry.resolve(
        operations.recomputed_call, (call.symbol.target, positions, memories, call.args, call.kwargs), {}
    )
    body, _, *operands = call.args
    inside = {operand.name: proxy.storage for operand, proxy in zip(operands, body.inputs, strict=True)}
    recorded = _recorded(body) if requires_grad(call, emitter) else frozenset()
    copies = [
        emitter.fresh(target, requires_grad=target.requires_grad or inside[target.name] in recorded)
        for target in targets
    ]
    effects = replace(call.effects, mutates=())
    emitter.lines.append(BoundSymbol(operation, arguments, {}, (output, *copies), effects, call.context, call.location))
    return copies


def _memory(view: View) -> tuple[Any, ...] | None:
    """Where the program's inputs have what a view shows, as `operations.recomputed_call` takes it."""
    memory, proxy = view.memory, view.proxy
    if not memory.inputs or proxy.dtype != memory.root.dtype:
        return None
    return memory.root, tuple(proxy.shape), tuple(proxy.stride), view.relative_offset


def _recorded(body: Trace) -> frozenset[int]:
    """The storages in which lines of a body leave values that have a gradient.

    What a call writes besides (running statistics, say) autograd does not record.
    """
    found: set[int] = set()
    for line in body.symbols:
        found |= {proxy.storage for proxy in line.outputs() if isinstance(proxy, TensorProxy) and proxy.requires_grad}
        for inner in bodies_of(line):
            found |= _recorded(inner)
    return frozenset(found)


def check_writable(bound: BoundSymbol, targets: list[View]) -> None:
    """Raise FunctionalizationError when the memory that ``bound`` writes cannot be followed."""
    for view in targets:
        if view.memory.conflict is not None:
            raise FunctionalizationError(
                view.memory.conflict,
                location=bound.location,
                advice=("pass tensors that do not overlap, or pass one of them and make views of it inside",),
            )
        if geometry.expanded(view.proxy):
            raise _several_in_one_place(bound, "an expanded tensor")
        if geometry.overlaps_itself(view.proxy) and not _fills(bound):
            raise _several_in_one_place(bound, "a tensor that overlaps itself")
    for one, other in combinations(targets, 2):
        if one.memory is other.memory and not geometry.disjoint(one.proxy, other.proxy):
            raise FunctionalizationError(
                f"{bound.symbol.name} writes to two tensors that overlap in memory",
                location=bound.location,
                advice=("clone() one of them before the call",),
            )


def _fills(bound: BoundSymbol) -> bool:
    """Whether the order does not matter in which a call writes elements that are one place in memory."""
    values = [leaf for leaf in bound.args[1:] if isinstance(leaf, TensorProxy)]
    return Tag.FILL in bound.symbol.tags and all(value.numel == 1 for value in values)


def _several_in_one_place(bound: BoundSymbol, what: str) -> FunctionalizationError:
    return FunctionalizationError(
        f"{bound.symbol.name} writes to {what}: several elements are one place in memory",
        location=bound.location,
        advice=("clone() the tensor before the write",),
    )


def check_shapes(bound: BoundSymbol, targets: list[View]) -> None:
    """Raise UnsupportedError when ``bound`` returns a written argument with another shape."""
    for proxy in tensor_outputs_of(bound):
        if any(view.shows_like(proxy) for view in targets):
            continue
        if any(view.proxy.storage == proxy.storage for view in targets):
            raise UnsupportedError(
                f"{bound.symbol.name} changes the shape of its argument in place",
                location=bound.location,
                advice=("use the out-of-place function and rebind the variable",),
            )


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
