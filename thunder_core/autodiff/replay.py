"""Record the lines of a finished trace once more, as ordinary calls of the program that is being recorded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from thunder_core.acquire.recorder import Recorder
from thunder_core.acquire.traced_tensor import variable_of
from thunder_core.acquire.variable import Variable
from thunder_core.autodiff.by_eager import gradients_of
from thunder_core.errors import UnsupportedError
from thunder_core.ir.bound_symbol import BoundSymbol, tensor_outputs_of
from thunder_core.ir.context import Context, current_context, modes_for_fakes
from thunder_core.ir.location import SourceLocation
from thunder_core.ir.proxy import PROXY_TYPES, OpaqueProxy, TensorProxy
from thunder_core.ir.symbol import Tag
from thunder_core.ir.tree import iterate_leaves, map_leaves
from thunder_core.pytorch_internals import DisableTorchFunction
from thunder_core.symbols.generators import STATEFUL


class Replay:
    """Records lines with the user's objects in place of the trace's values.

    The results are traced tensors of the program like any other. Autograd records the lines if it is recording where
    the replay was made, autocast is that of each line.

    Args:
        recorder: of the program.
        values: the objects that the lines take from outside, by name; what the lines compute is added.
        names: how the results of the lines are called; those that are absent get a name like any computed value.
        location: the user's line that lines without one come from.
    """

    def __init__(
        self, recorder: Recorder, values: dict[str, Any], names: dict[str, str], location: SourceLocation | None
    ) -> None:
        self.recorder = recorder
        self.values = values
        self.names = names
        self.location = location
        self.ambient = current_context()

    def lines(self, lines: Iterable[BoundSymbol], context: Context, constant: frozenset[str] = frozenset()) -> None:
        """Record lines that run under ``context``, where they have no modes of their own.

        Lines whose results are in ``constant`` are recorded without gradients.
        """
        for line in lines:
            grad = self.ambient.grad_enabled and not any(proxy.name in constant for proxy in line.outputs())
            modes = self._modes(replace(line.context or context, grad_enabled=grad))
            with modes, self.at(line.location or self.location):
                self._line(line)

    @contextmanager
    def at(self, location: SourceLocation | None) -> Iterator[None]:
        """What is recorded meanwhile comes from the user's line ``location``."""
        first = len(self.recorder.trace.lines)
        yield
        lines = self.recorder.trace.lines
        for index in range(first, len(lines)):
            lines[index] = replace(lines[index], location=location)

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

    def _line(self, line: BoundSymbol) -> None:
        if line.symbol in STATEFUL or not line.outputs():
            self._copy(line)
            return
        if Tag.HIGHER_ORDER in line.symbol.tags or len(tensor_outputs_of(line)) < len(line.outputs()):
            raise UnsupportedError(
                f"a function that calls {line.symbol.name} cannot be differentiated by a functional transformation",
                location=line.location,
                advice=("use torch.where instead of a choice between programs", "use Tensor.backward"),
            )
        args, kwargs = map_leaves(self._value, line.args), map_leaves(self._value, line.kwargs)
        first = len(self.recorder.trace.lines)
        with DisableTorchFunction():
            result = self.recorder.call_symbol(line.symbol, args, kwargs)
        self.define(line, result)
        self._rename(line, first)

    def define(self, line: BoundSymbol, result: Any) -> None:
        """Know the tensors in ``result`` as the outputs of ``line``."""
        tensors = [leaf for leaf in iterate_leaves(result) if isinstance(leaf, torch.Tensor)]
        for proxy, tensor in zip(tensor_outputs_of(line), tensors, strict=True):
            self.values[proxy.name] = tensor

    def _copy(self, line: BoundSymbol) -> None:
        """A line that computes no tensor from tensors: it is recorded as it stands."""

        def proxy_of(leaf: Any) -> Any:
            value = self._value(leaf)
            return self.recorder.tensors.proxy_of(value) if isinstance(value, torch.Tensor) else value

        def made(leaf: Any) -> Any:
            if not isinstance(leaf, TensorProxy):
                return leaf
            proxy = replace(
                leaf, name=self.recorder.trace.names.intermediate(), storage=self.recorder.trace.storages.new()
            )
            self.values[leaf.name] = self.recorder.tensors.traced(Variable(proxy, location=line.location))
            return proxy

        context = self.recorder.trace.own_context(current_context())
        copied = line.map_arguments(proxy_of)
        self.recorder.trace.lines.append(replace(copied, output=map_leaves(made, line.output), context=context))

    def _rename(self, line: BoundSymbol, first: int) -> None:
        """Call the results of the lines from ``first`` on as the trace that is replayed does."""
        lines = self.recorder.trace.lines
        made = {proxy.name for new in lines[first:] for proxy in new.outputs()}
        renamed: dict[str, str] = {}
        for proxy in tensor_outputs_of(line):
            name, tensor = self.names.get(proxy.name), self.values[proxy.name]
            if name is None or (variable := variable_of(tensor)) is None or variable.proxy.name not in made:
                continue
            variable.location = line.location
            if variable.proxy.name not in renamed:
                renamed[variable.proxy.name] = name
                variable.proxy = replace(variable.proxy, name=name)

        def current(leaf: Any) -> Any:
            if isinstance(leaf, PROXY_TYPES) and not isinstance(leaf, OpaqueProxy) and leaf.name in renamed:
                return replace(leaf, name=renamed[leaf.name])
            return leaf

        for index in range(first, len(lines)) if renamed else ():
            new = lines[index].map_arguments(current)
            lines[index] = replace(new, output=map_leaves(current, new.output))


class ReplayWithGraphs(Replay):
    """A `Replay` that knows the lines of `thunder_core.autodiff.by_eager`.

    The graph that such a line leaves for its backward exists when the program runs, and can be gone through once. So
    the line is recorded under `torch.func.vjp` instead, operator by operator, and so is its backward: those lines can
    be differentiated again. What `torch.func` asks of a user's `torch.autograd.Function` (a ``setup_context``) is asked
    here.

    Args:
        originals: the lines before differentiation, by name of an output.
    """

    def __init__(
        self,
        recorder: Recorder,
        values: dict[str, Any],
        names: dict[str, str],
        location: SourceLocation | None,
        originals: Mapping[str, BoundSymbol],
    ) -> None:
        super().__init__(recorder, values, names, location)
        self.originals = originals

    def _line(self, line: BoundSymbol) -> None:
        outputs = line.outputs()
        if outputs and isinstance(outputs[-1], OpaqueProxy) and outputs[-1].type_name == "EagerGraph":
            self._record_graph(line, outputs[-1])
        elif line.symbol.target is gradients_of:
            self._gradients_of(line)
        else:
            super()._line(line)

    def _record_graph(self, line: BoundSymbol, graph: OpaqueProxy) -> None:
        original = self.originals[tensor_outputs_of(line)[0].name]
        arguments = map_leaves(self._value, (original.args, original.kwargs))
        leaves = list(iterate_leaves(arguments))
        wanted = [leaves[position] for position in line.args[-3]]
        places: list[bool] = []
        differentiable: list[bool] = []

        def function(*tensors: torch.Tensor) -> tuple[Any, Any]:
            given = {id(old): new for old, new in zip(wanted, tensors, strict=True)}
            args, kwargs = map_leaves(lambda leaf: given.get(id(leaf), leaf), arguments)
            result = original.symbol.target(*args, **kwargs)
            places[:] = [isinstance(leaf, torch.Tensor) for leaf in iterate_leaves(result)]
            found = [leaf for leaf in iterate_leaves(result) if isinstance(leaf, torch.Tensor)]
            differentiable[:] = [leaf.is_floating_point() or leaf.is_complex() for leaf in found]
            pairs = list(zip(found, differentiable, strict=True))
            return tuple([leaf for leaf, yes in pairs if yes]), tuple([leaf for leaf, yes in pairs if not yes])

        recorded: Any = torch.func.vjp(function, *wanted, has_aux=True)
        outputs, pull, others = recorded
        floating, rest = iter(outputs), iter(others)
        results = [next(floating if yes else rest) for yes in differentiable]
        self.define(line, results)
        self.values[graph.name] = pull, places, differentiable, results

    def _gradients_of(self, line: BoundSymbol) -> None:
        graph, _, cotangents = map_leaves(self._value, line.args)
        pull, places, differentiable, results = graph
        cotangents = [cotangent for cotangent, tensor in zip(cotangents, places, strict=True) if tensor]
        given = [
            self.call(torch.zeros_like, result) if cotangent is None else cotangent
            for result, cotangent, yes in zip(results, cotangents, differentiable, strict=True)
            if yes
        ]
        for proxy, gradient in zip(line.outputs(), pull(tuple(given)), strict=True):
            self.values[proxy.name] = gradient
