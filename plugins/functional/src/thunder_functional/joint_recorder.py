"""Recording of the ops of a joint trace as calls of the program that is being recorded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from thunder_core.autodiff.derivatives.by_eager import gradients_of
from thunder_core.errors import UnsupportedError
from thunder_core.ir.bound_symbol import BoundSymbol, tensor_outputs_of
from thunder_core.ir.context import Context, current_context, modes_for_fakes
from thunder_core.ir.location import SourceLocation
from thunder_core.ir.proxy import PROXY_TYPES, OpaqueProxy, TensorProxy
from thunder_core.ir.size import on_fakes
from thunder_core.ir.symbol import Tag
from thunder_core.ir.tree import iterate_leaves, map_leaves, tensors_in
from thunder_core.pytorch_internals import DisableTorchFunction
from thunder_core.symbols.generators import STATEFUL
from thunder_frontend.record.recorder import Recorder
from thunder_frontend.record.traced_tensor import Variable, variable_of


class JointRecorder:
    """Records the ops of a joint trace with the user's objects in place of the trace's proxies.

    The results are ordinary traced tensors of the program. Autograd records the ops if grad mode was on when the
    recorder was created; autocast is that of each op.

    The autograd graph of an op of `thunder_core.autodiff.derivatives.by_eager` exists only at run time, and can be run
    backward once. So such an op is recorded under `torch.func.vjp` instead, operator by operator, and so is its
    backward: the recorded ops can be differentiated again. As for `torch.func`, a user's `torch.autograd.Function`
    needs a ``setup_context``.

    Args:
        recorder: the recorder of the program.
        values: the objects for the inputs of the ops, by name; the results of the ops are added.
        names: new names for the results of the ops; absent results get a default name.
        location: the user's source location for ops without one.
        originals: the ops before differentiation, by name of an output.
    """

    def __init__(
        self,
        recorder: Recorder,
        values: dict[str, Any],
        names: Mapping[str, str],
        location: SourceLocation | None,
        originals: Mapping[str, BoundSymbol],
    ) -> None:
        self.recorder = recorder
        self.values = values
        self.names = names
        self.location = location
        self.originals = originals
        self.ambient = current_context()

    def record(self, ops: Iterable[BoundSymbol], context: Context, constant: frozenset[str] = frozenset()) -> None:
        """Record ops; those without modes run under ``context``.

        Ops whose results are in ``constant`` are recorded with grad mode off.
        """
        for op in ops:
            grad = self.ambient.grad_enabled and not any(proxy.name in constant for proxy in op.outputs())
            modes = self._modes(replace(op.context or context, grad_enabled=grad))
            with modes, self.at(op.location or self.location):
                self._op(op)

    @contextmanager
    def at(self, location: SourceLocation | None) -> Iterator[None]:
        """A context in which recorded ops have the source location ``location``."""
        first = len(self.recorder.trace.ops)
        yield
        recorded = self.recorder.trace.ops
        for index in range(first, len(recorded)):
            recorded[index] = replace(recorded[index], location=location)

    def call(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """Record one call of a torch function on the user's objects."""
        with DisableTorchFunction():
            return self.recorder.call(function, args, kwargs)

    @contextmanager
    def _modes(self, context: Context) -> Iterator[None]:
        ambient = self.ambient
        if context.grad_enabled == ambient.grad_enabled and context.autocast == ambient.autocast:
            yield
            return
        with modes_for_fakes(replace(context, inference=False)):
            if not ambient.inference:
                yield
                return
            with torch.inference_mode():
                yield

    def _value(self, leaf: Any) -> Any:
        return self.values[leaf.name] if isinstance(leaf, PROXY_TYPES) else leaf

    def _argument(self, leaf: Any) -> Any:
        """A value as the argument of a call of the user's objects."""
        return on_fakes(self._value(leaf))

    def _op(self, op: BoundSymbol) -> None:
        outputs = op.outputs()
        if outputs and isinstance(outputs[-1], OpaqueProxy) and outputs[-1].type_name == "EagerGraph":
            self._record_graph(op, outputs[-1])
        elif op.symbol.target is gradients_of:
            self._gradients_of(op)
        elif op.symbol in STATEFUL or not outputs:
            self._copy(op)
        else:
            self._call(op)

    def _call(self, op: BoundSymbol) -> None:
        if Tag.HIGHER_ORDER in op.symbol.tags or len(tensor_outputs_of(op)) < len(op.outputs()):
            raise UnsupportedError(
                f"a function that calls {op.symbol.name} cannot be differentiated by a functional transformation",
                location=op.location,
                advice=("use torch.where instead of a choice between programs", "use Tensor.backward"),
            )
        args, kwargs = map_leaves(self._argument, (op.args, op.kwargs))
        first = len(self.recorder.trace.ops)
        with DisableTorchFunction():
            result = self.recorder.call_symbol(op.symbol, args, kwargs)
        self._define(op, result)
        self._rename(op, first)

    def _define(self, op: BoundSymbol, result: Any) -> None:
        """Register the tensors in ``result`` as the outputs of ``op``."""
        tensors = tensors_in(result)
        for proxy, tensor in zip(tensor_outputs_of(op), tensors, strict=True):
            self.values[proxy.name] = tensor

    def _copy(self, op: BoundSymbol) -> None:
        """Record an op that computes no tensor from tensors, without a call of its function."""

        def proxy_of(leaf: Any) -> Any:
            value = self._value(leaf)
            return self.recorder.tensors.proxy_of(value) if isinstance(value, torch.Tensor) else value

        def output(leaf: Any) -> Any:
            if not isinstance(leaf, TensorProxy):
                return leaf
            trace = self.recorder.trace
            proxy = replace(leaf, name=trace.names.intermediate(), storage=trace.storages.new())
            self.values[leaf.name] = self.recorder.tensors.traced(Variable(proxy, location=op.location))
            return proxy

        context = self.recorder.trace.relative_context(current_context())
        copied = op.map_arguments(proxy_of)
        self.recorder.trace.ops.append(replace(copied, output=map_leaves(output, op.output), context=context))

    def _rename(self, op: BoundSymbol, first: int) -> None:
        """Rename the results of the recorded ops from index ``first`` on to the names in the joint trace."""
        recorded = self.recorder.trace.ops
        new_names = {proxy.name for new in recorded[first:] for proxy in new.outputs()}
        renamed: dict[str, str] = {}
        for proxy in tensor_outputs_of(op):
            name, tensor = self.names.get(proxy.name), self.values[proxy.name]
            if name is None or (variable := variable_of(tensor)) is None or variable.proxy.name not in new_names:
                continue
            variable.location = op.location
            if variable.proxy.name not in renamed:
                renamed[variable.proxy.name] = name
                variable.proxy = replace(variable.proxy, name=name)

        def current(leaf: Any) -> Any:
            if isinstance(leaf, PROXY_TYPES) and not isinstance(leaf, OpaqueProxy) and leaf.name in renamed:
                return replace(leaf, name=renamed[leaf.name])
            return leaf

        for index in range(first, len(recorded)) if renamed else ():
            new = recorded[index].map_arguments(current)
            recorded[index] = replace(new, output=map_leaves(current, new.output))

    def _record_graph(self, op: BoundSymbol, graph: OpaqueProxy) -> None:
        original = self.originals[tensor_outputs_of(op)[0].name]
        arguments = map_leaves(self._argument, (original.args, original.kwargs))
        leaves = list(iterate_leaves(arguments))
        wanted = [leaves[position] for position in op.args[-3]]
        are_tensors: list[bool] = []
        differentiable: list[bool] = []

        def function(*tensors: torch.Tensor) -> tuple[Any, Any]:
            primals = {id(old): new for old, new in zip(wanted, tensors, strict=True)}
            args, kwargs = map_leaves(lambda leaf: primals.get(id(leaf), leaf), arguments)
            result = original.symbol.target(*args, **kwargs)
            are_tensors[:] = [isinstance(leaf, torch.Tensor) for leaf in iterate_leaves(result)]
            outputs = tensors_in(result)
            differentiable[:] = [leaf.is_floating_point() or leaf.is_complex() for leaf in outputs]
            pairs = list(zip(outputs, differentiable, strict=True))
            return tuple([leaf for leaf, yes in pairs if yes]), tuple([leaf for leaf, yes in pairs if not yes])

        recorded: Any = torch.func.vjp(function, *wanted, has_aux=True)
        outputs, pull, others = recorded
        floating, rest = iter(outputs), iter(others)
        results = [next(floating if yes else rest) for yes in differentiable]
        self._define(op, results)
        self.values[graph.name] = pull, are_tensors, differentiable, results

    def _gradients_of(self, op: BoundSymbol) -> None:
        graph, _, cotangents = map_leaves(self._value, op.args)
        pull, are_tensors, differentiable, results = graph
        of_tensors = [cotangent for cotangent, tensor in zip(cotangents, are_tensors, strict=True) if tensor]
        present = [
            self.call(torch.zeros_like, result) if cotangent is None else cotangent
            for result, cotangent, yes in zip(results, of_tensors, differentiable, strict=True)
            if yes
        ]
        for proxy, gradient in zip(op.outputs(), pull(tuple(present)), strict=True):
            self.values[proxy.name] = gradient
