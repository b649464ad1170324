"""Build the epilogue, which runs after the computation: it writes inputs and takes views of written inputs."""

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
from thunder_core.passes.functionalize.blocks import Block, Family, View
from thunder_core.passes.functionalize.emitter import Emitter
from thunder_core.passes.functionalize.state import State
from thunder_core.symbols.registry import registry


class EpilogueBuilder:
    """Collects the ops of the epilogue.

    Attributes:
        output: the values that it returns.
    """

    def __init__(self, emitter: Emitter, state: State, views: Mapping[str, View], leaves: frozenset[str]) -> None:
        self.emitter = emitter
        self.state = state
        self.views = views
        self.leaves = leaves
        self.ops: list[BoundSymbol] = []
        self.output: list[Proxy] = []
        self._values: dict[int, TensorProxy] = {}

    def write(self, block: Block) -> None:
        """Copy the final value of a written block into the inputs that share it.

        Autograd records the copy into an input if it recorded a write to the input's family.
        """
        recorded = [
            self.views[head.name] for family in filter(self._is_recorded, block.families) for head in family.heads
        ]
        recorded = [view for view in recorded if self.state.current(view).requires_grad]
        if not any(view.shows_all for view in recorded):
            value, context = block.latest.value, block.context
            assert value is not None
            if self.emitter.ambient.grad_enabled and not (context and context.inference):
                context = replace(self.emitter.ambient, grad_enabled=False)
            self._copy(block.root, value, context, counted=block.counted)
        for view in recorded:
            self._copy(view.proxy, self.state.current(view), None)

    def _is_recorded(self, family: Family) -> bool:
        """Whether autograd recorded writes to a family without leaves.

        Autograd refuses recorded writes to leaves, so a write to a leaf came from inside an op and is not recorded.
        """
        return family.recorded and self.leaves.isdisjoint(head.name for head in family.heads)

    def _copy(self, target: TensorProxy, value: TensorProxy, context: Context | None, *, counted: bool = True) -> None:
        function = torch.Tensor.copy_ if counted else operations.copy_uncounted
        symbol, args, kwargs = registry.resolve(function, (target, value), {})
        result = replace(target, name=self.emitter.name())
        self.ops.append(BoundSymbol(symbol, args, kwargs, result, Effects(mutates=(target.name,)), context))

    def view(self, view: View) -> TensorProxy:
        """A view of the input after the write, taken by the program's view ops."""
        value = self._values.get(id(view))
        if value is None:
            value = self._values[id(view)] = self._take(view)
        return value

    def result(self, view: View) -> int:
        """Add a view of a written input to the epilogue's output; return its position there."""
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
        """Whether a view descends from an input within its family, so that autograd derives its gradient itself."""
        base = view.parent or view.origin
        while base is not None and base.family is view.family:
            view, base = base, base.parent or base.origin
        return view.proxy.name in view.block.inputs or (view.parent is None and view.family is view.block.root_family)

    def build(self) -> Trace:
        """The epilogue. Its inputs have the names of the program's inputs and computed values that it takes."""
        produced = producers_of(self.ops)
        used = {proxy.name: proxy for op in self.ops for proxy in op.inputs() if proxy.name not in produced}
        used.update((proxy.name, proxy) for proxy in self.output if proxy.name not in produced)
        return Trace(
            "epilogue",
            tuple(used.values()),
            tuple(self.ops),
            tuple(self.output),
            Stage.ACQUIRED,
            "functionalization",
            self.emitter.ambient,
        )

    def _take(self, view: View) -> TensorProxy:
        block = view.block
        if view.proxy.name in block.inputs:
            return view.proxy
        if view.parent is None:
            return self._strided(view)
        step = view.rebased(self.view(view.parent))
        step = replace(step, output=map_leaves(self._renamed, step.output))
        self.ops.append(step)
        value = list(step.outputs())[view.position]
        assert isinstance(value, TensorProxy)
        return value

    def _strided(self, view: View) -> TensorProxy:
        """A view that is given by geometry alone, taken of its base or else of the root."""
        base: TensorProxy = view.block.root
        if view.origin is not None:
            base = self.view(view.origin)
        elif view.family is not view.block.root_family:  # the root may require grad although the input did not
            base = replace(base, name=self.emitter.name(), requires_grad=False)
            self._call(torch.Tensor.detach, (view.block.root,), base)
        value = replace(view.proxy, name=self.emitter.name())
        arguments = (tuple(view.proxy.shape), tuple(view.proxy.stride), view.proxy.offset - base.offset)
        self._call(operations.strided_view, (base, *arguments), value, view.step)
        return value

    def _renamed(self, leaf: Any) -> Any:
        return replace(leaf, name=self.emitter.name()) if isinstance(leaf, PROXY_TYPES) else leaf

    def _call(self, function: Any, args: tuple[Any, ...], output: TensorProxy, step: BoundSymbol | None = None) -> None:
        symbol, args, kwargs = registry.resolve(function, args, {})
        self.ops.append(BoundSymbol(symbol, args, kwargs, output, context=step.context if step else None))
