"""Record the lines of a finished trace once more, as ordinary calls of the program that is being recorded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from thunder_core.acquire.recorder import Recorder
from thunder_core.acquire.traced_tensor import variable_of
from thunder_core.acquire.variable import Variable
from thunder_core.errors import UnsupportedError
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.context import Context, current_context
from thunder_core.ir.location import SourceLocation
from thunder_core.ir.modes import modes_for_fakes
from thunder_core.ir.proxy import PROXY_TYPES, OpaqueProxy, TensorProxy
from thunder_core.ir.symbol import Tag
from thunder_core.ir.tensors import tensor_outputs_of
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
