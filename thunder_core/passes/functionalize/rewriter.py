"""Rewrite an acquired trace op by op to the equivalent functional trace."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from thunder_core.errors import UnsupportedError
from thunder_core.ir import geometry
from thunder_core.ir.aliases import Aliases
from thunder_core.ir.bound_symbol import BoundSymbol, tensor_inputs_of, tensor_outputs_of
from thunder_core.ir.proxy import PROXY_TYPES, TensorProxy
from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Trace
from thunder_core.ir.tree import map_leaves
from thunder_core.passes.functionalize.blocks import BlockFactory, View, moved
from thunder_core.passes.functionalize.emitter import Emitter
from thunder_core.passes.functionalize.state import State, single_view
from thunder_core.passes.functionalize.writes import Writes


class Rewriter:
    """Visits the ops of an acquired trace in order and emits functional ones.

    Attributes:
        views: the view (tensor object) for each name of a tensor in a written block.
        writes: rewrites the in-place ops.
    """

    def __init__(self, trace: Trace, families: tuple[frozenset[str], ...]) -> None:
        self.trace = trace
        self.emitter = Emitter(trace)
        self.state = State(self.emitter)
        self.blocks = BlockFactory(Aliases.of(trace).written, families)
        self.views: dict[str, View] = {}
        self.writes = Writes(self.emitter, self.state, self.views)

    def run(self) -> None:
        """Rewrite all ops."""
        for view in self.blocks.of_inputs(self.trace.inputs):
            self.views[view.proxy.name] = view
        for bound in self.trace.symbols:
            self._op(bound)
        self.emitter.context = self.emitter.location = None

    def value(self, leaf: Any) -> Any:
        """The current functional value of an argument or output of the acquired trace."""
        if isinstance(leaf, TensorProxy):
            view = self.views.get(leaf.name)
            return leaf if view is None else self.state.current(view)
        return leaf

    def _op(self, bound: BoundSymbol) -> None:
        views = self.views
        written = self.blocks.written
        touched = any(proxy.name in views for proxy in bound.inputs())
        if not touched and not any(proxy.storage in written for proxy in tensor_outputs_of(bound)):
            self.emitter.ops.append(bound)
            return
        self.emitter.context, self.emitter.location = bound.context, bound.location
        if Tag.SAME_OBJECT in bound.symbol.tags:
            self._same_object(bound)
        elif bound.effects.mutates:
            self.writes.rewrite(bound, bound.map_arguments(self.value))
            self._fresh(bound)
        else:
            call = bound.map_arguments(self.value)
            if Tag.STORAGE_VIEW not in bound.symbol.tags or not self._storage_view(bound, call):
                self._outputs(bound, call)

    # ---- calls that write nothing -------------------------------------------------------------------------------

    def _outputs(self, bound: BoundSymbol, call: BoundSymbol) -> None:
        """Emit ``call``, which is ``bound`` on functional values, and record the views among its outputs."""
        arguments = [(proxy, self.views[proxy.name]) for proxy in tensor_inputs_of(bound) if proxy.name in self.views]
        parents: dict[str, tuple[TensorProxy, View]] = {}
        values: dict[str, TensorProxy] = {}
        for proxy in tensor_outputs_of(bound):
            parent = _parent(proxy, arguments)
            if parent is not None:
                parents[proxy.name] = parent
                values[proxy.name] = moved(proxy, parent[0], self.state.current(parent[1]))
        op = replace(call, output=map_leaves(lambda leaf: _substitute(leaf, values), call.output))
        self.emitter.ops.append(op)
        positions = {proxy.name: position for position, proxy in enumerate(bound.outputs())}
        for proxy in tensor_outputs_of(bound):
            if proxy.name in parents:
                self._view(proxy, *parents[proxy.name], op, positions[proxy.name], values[proxy.name])
        self._fresh(bound)

    def _fresh(self, bound: BoundSymbol) -> None:
        """Record the results of an op in new storages that later ops write."""
        written = self.blocks.written
        fresh = [
            proxy for proxy in tensor_outputs_of(bound) if proxy.storage in written and proxy.name not in self.views
        ]
        for view in self.blocks.of_outputs(fresh):
            view.block.inference = self.emitter.modes.inference
            self.views[view.proxy.name] = view

    def _storage_view(self, bound: BoundSymbol, call: BoundSymbol) -> bool:
        """Emit a view whose offset counts from the start of written storage, as a view of the whole block's value.

        Returns whether ``bound`` is such a view.
        """
        output, argument = bound.output, bound.args[0]
        view = self.views.get(argument.name) if isinstance(argument, TensorProxy) else None
        if view is None or not view.block.version or not isinstance(output, TensorProxy):
            return False
        detached = argument.requires_grad and not output.requires_grad
        family = view.family.apart() if detached else view.family
        self.views[output.name] = result = View(output, view.block, family, step=call)
        if geometry.covers(argument, output):
            result.origin = view
            if family.requires_grad:
                self.state.place(result, view)
        return True

    def _view(
        self,
        proxy: TensorProxy,
        argument: TensorProxy,
        parent: View,
        op: BoundSymbol,
        position: int,
        value: TensorProxy,
    ) -> None:
        block = parent.block
        if op.effects.external and proxy.geometry == parent.proxy.geometry:
            self._changed_metadata(proxy, parent, value)
            return
        detached = (argument.requires_grad and not proxy.requires_grad) or Tag.DETACH in op.symbol.tags
        family = parent.family.apart(uncounted=Tag.UNCOUNTED in op.symbol.tags) if detached else parent.family
        base = self.state.current(parent)
        view = View(proxy, block, family, parent, op, base, position, value=value, version=block.version)
        if not single_view(op, base) or Tag.STORAGE_VIEW in op.symbol.tags:
            view.parent = None
            if geometry.covers(parent.proxy, proxy):
                view.origin = parent
            else:  # elements outside of the argument would get no gradient
                view.version = -1
        self.views[proxy.name] = view

    def _same_object(self, bound: BoundSymbol) -> None:
        """A tensor that requires grad since a write to another one: its family's value already does."""
        (argument,), (result,) = tensor_inputs_of(bound), tensor_outputs_of(bound)
        view = self.views[argument.name]
        view.proxy = replace(view.proxy, requires_grad=result.requires_grad)
        self.views[result.name] = view

    def _changed_metadata(self, proxy: TensorProxy, view: View, value: TensorProxy) -> None:
        """Rewrite ``x.requires_grad_()`` and the like, which return the same object under a new name."""
        if view.block.version and proxy.name not in self.views and view.proxy.name in view.block.inputs:
            raise UnsupportedError(
                f"the autograd metadata of the input {view.proxy.name} is changed after a write to it",
                location=self.emitter.location,
                advice=("do that before the first write, or outside of the compiled function",),
            )
        if view.shows_all:
            view.family.value = value
        view.value, view.proxy = value, replace(view.proxy, requires_grad=proxy.requires_grad)
        self.views[proxy.name] = view


def _parent(proxy: TensorProxy, arguments: list[tuple[TensorProxy, View]]) -> tuple[TensorProxy, View] | None:
    """The argument that a result is a view of."""
    sharing = [item for item in arguments if item[0].storage == proxy.storage]
    if len(sharing) < 2 or all(view.block is sharing[0][1].block for _, view in sharing):
        return sharing[0] if sharing else None
    return next((item for item in sharing if geometry.covers(item[1].block.root, proxy)), sharing[0])


def _substitute(leaf: Any, values: dict[str, TensorProxy]) -> Any:
    return values.get(leaf.name, leaf) if isinstance(leaf, PROXY_TYPES) else leaf
