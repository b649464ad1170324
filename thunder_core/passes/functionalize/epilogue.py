"""What happens after the computation: writes into inputs, and results that are views of written inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.context import Context
from thunder_core.ir.effects import Effects
from thunder_core.ir.proxy import PROXY_TYPES, Proxy, TensorProxy
from thunder_core.ir.trace import Stage, Trace, producers_of
from thunder_core.ir.tree import map_leaves
from thunder_core.passes import operations
from thunder_core.passes.functionalize.emitter import Emitter
from thunder_core.passes.functionalize.memory import Family, Memory, View
from thunder_core.passes.functionalize.state import State
from thunder_core.symbols.registry import registry


class EpilogueBuilder:
    """Collects the lines of the epilogue.

    Attributes:
        output: what it returns.
    """

    def __init__(self, emitter: Emitter, state: State, views: Mapping[str, View], leaves: frozenset[str]) -> None:
        self.emitter = emitter
        self.state = state
        self.views = views
        self.leaves = leaves
        self.lines: list[BoundSymbol] = []
        self.output: list[Proxy] = []
        self._made: dict[int, TensorProxy] = {}

    def write(self, memory: Memory) -> None:
        """Copy the final value of a written memory into the inputs that show it.

        Autograd sees the writes to those whose family it recorded writes of.
        """
        recorded = [
            self.views[head.name] for family in filter(self._is_recorded, memory.families) for head in family.heads
        ]
        recorded = [view for view in recorded if self.state.current(view).requires_grad]
        if not any(view.shows_all for view in recorded):
            value, context = memory.latest.value, memory.context
            assert value is not None
            if self.emitter.ambient.grad_enabled and not (context and context.inference):
                context = replace(self.emitter.ambient, grad_enabled=False)
            self._copy(memory.root, value, context)
        for view in recorded:
            self._copy(view.proxy, self.state.current(view), None)

    def _is_recorded(self, family: Family) -> bool:
        """Autograd lets nobody write a leaf while it records, so such a write came from inside of a call."""
        return family.recorded and self.leaves.isdisjoint(head.name for head in family.heads)

    def _copy(self, target: TensorProxy, value: TensorProxy, context: Context | None) -> None:
        symbol, args, kwargs = registry.resolve(torch.Tensor.copy_, (target, value), {})
        result = replace(target, name=self.emitter.name())
        self._add(BoundSymbol(symbol, args, kwargs, result, Effects(mutates=(target.name,)), context))

    def view(self, view: View) -> TensorProxy:
        """A view of the input after the write, by the program's calls."""
        made = self._made.get(id(view))
        if made is None:
            made = self._made[id(view)] = self._make(view)
        return made

    def result(self, view: View) -> int:
        """Return a view of a written input; its position in the epilogue's output."""
        value = self.view(view)
        if view.family.requires_grad and not self._is_of_input(view):
            gradient = self.state.current(view)
            joined = replace(value, name=self.emitter.name(), requires_grad=True)
            self._call(operations.with_data, (gradient, value), joined)
            value = joined
        if value not in self.output:
            self.output.append(value)
        return self.output.index(value)

    def _is_of_input(self, view: View) -> bool:
        """Whether autograd finds the gradient of a view by itself: it is one of an input."""
        made_of = view.parent or view.origin
        while made_of is not None and made_of.family is view.family:
            view, made_of = made_of, made_of.parent or made_of.origin
        return view.proxy.name in view.memory.inputs or (view.parent is None and view.family is view.memory.root_family)

    def build(self) -> Trace:
        """The epilogue. Its inputs are called like the values that it is to be given."""
        made = producers_of(self.lines)
        used = {proxy.name: proxy for line in self.lines for proxy in line.inputs() if proxy.name not in made}
        used.update((proxy.name, proxy) for proxy in self.output if proxy.name not in made)
        return Trace(
            "epilogue",
            tuple(used.values()),
            tuple(self.lines),
            tuple(self.output),
            Stage.ACQUIRED,
            "functionalization",
            self.emitter.ambient,
        )

    def _make(self, view: View) -> TensorProxy:
        memory = view.memory
        if view.proxy.name in memory.inputs:
            return view.proxy
        if view.parent is None:
            return self._strided(view)
        step = view.rebased(self.view(view.parent))
        step = replace(step, output=map_leaves(self._renamed, step.output))
        self._add(step)
        made = list(step.outputs())[view.position]
        assert isinstance(made, TensorProxy)
        return made

    def _strided(self, view: View) -> TensorProxy:
        """A view that is only known by its place in the storage: of its base, or else of the root."""
        base: TensorProxy = view.memory.root
        if view.origin is not None:
            base = self.view(view.origin)
        elif view.family is not view.memory.root_family:  # the root may have a gradient that the input did not have
            base = replace(base, name=self.emitter.name(), requires_grad=False)
            self._call(torch.Tensor.detach, (view.memory.root,), base)
        value = replace(view.proxy, name=self.emitter.name())
        arguments = (tuple(view.proxy.shape), tuple(view.proxy.stride), view.proxy.offset - base.offset)
        self._call(operations.strided_view, (base, *arguments), value, view.step)
        return value

    def _renamed(self, leaf: Any) -> Any:
        return replace(leaf, name=self.emitter.name()) if isinstance(leaf, PROXY_TYPES) else leaf

    def _call(self, function: Any, args: tuple[Any, ...], output: TensorProxy, step: BoundSymbol | None = None) -> None:
        symbol, args, kwargs = registry.resolve(function, args, {})
        self._add(BoundSymbol(symbol, args, kwargs, output, context=step.context if step else None))

    def _add(self, bound: BoundSymbol) -> None:
        self.lines.append(bound)
