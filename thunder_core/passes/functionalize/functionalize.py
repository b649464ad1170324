"""The pass `Functionalize`: an acquired trace becomes a functional computation and an epilogue."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from thunder_core.errors import LoweringError, ThunderError
from thunder_core.ir.proxy import PROXY_TYPES, Proxy, TensorProxy
from thunder_core.ir.trace import Stage, Trace
from thunder_core.passes.base import Pass, PassContext
from thunder_core.passes.functionalize.blocks import View
from thunder_core.passes.functionalize.epilogue import EpilogueBuilder
from thunder_core.passes.functionalize.result import (
    FromComputation,
    FromEpilogue,
    FromInput,
    Functionalized,
    Literal,
    ResultSource,
)
from thunder_core.passes.functionalize.rewriter import Rewriter


@dataclass(frozen=True)
class Functionalize(Pass[Functionalized]):
    """In-place calls become calls that return new values; writes to inputs move to the epilogue.

    Raises:
        FunctionalizationError: a write to storage that several tensors share in a way that cannot be functionalized.
        UnsupportedError: an in-place change of an input's shape or autograd metadata.

    Attributes:
        leaves: names of inputs that are leaves of the autograd graph and require grad.
        families: sets of inputs that are differentiable views of one tensor; other inputs share no autograd history.
    """

    name: ClassVar[str] = "Functionalize"
    consumes: ClassVar[frozenset[Stage]] = frozenset({Stage.ACQUIRED})
    produces: ClassVar[Stage | None] = Stage.FUNCTIONAL

    leaves: frozenset[str] = frozenset()
    families: tuple[frozenset[str], ...] = ()

    def run(self, trace: Trace, context: PassContext) -> Functionalized:
        return functional_form(trace, self.leaves, self.families)

    def traces(self, result: Functionalized) -> tuple[Trace, ...]:
        return result.traces


@dataclass(frozen=True)
class LeaveAsRecorded(Pass[Functionalized]):
    """Makes an acquired trace the computation without functionalizing it: all ops stay, in-place ops too."""

    name: ClassVar[str] = "LeaveAsRecorded"
    consumes: ClassVar[frozenset[Stage]] = frozenset({Stage.ACQUIRED})

    def run(self, trace: Trace, context: PassContext) -> Functionalized:
        return _unchanged(trace, "as recorded", trace.stage)

    def traces(self, result: Functionalized) -> tuple[Trace, ...]:
        return result.traces


def functional_form(
    trace: Trace, leaves: frozenset[str] = frozenset(), families: tuple[frozenset[str], ...] = ()
) -> Functionalized:
    """The result of `Functionalize` for the trace; see there for arguments and errors."""
    if not any(bound.effects.mutates for bound in trace.symbols):
        return _unchanged(trace, Functionalize.name, Stage.FUNCTIONAL)
    rewriter = Rewriter(trace, families)
    rewriter.run()
    return _Results(rewriter, leaves).collect(Functionalize.name)


def without_writes(trace: Trace) -> Trace:
    """The trace in functional form; its outputs have the same values.

    Raises:
        LoweringError: it writes to its inputs, or in a way that cannot be functionalized.
    """
    if not any(bound.effects.mutates for bound in trace.symbols):
        return trace
    try:
        functional = functional_form(trace)
    except ThunderError as error:
        raise LoweringError(str(error)) from error
    computation = functional.computation
    output: list[Any] = []
    for source in functional.results:
        if isinstance(source, FromComputation):
            output.append(computation.output[source.index])
        elif isinstance(source, FromInput):
            output.append(computation.inputs[source.index])
    if functional.epilogue is not None or len(output) < len(functional.results):
        raise LoweringError("it writes to its inputs")
    return replace(computation, output=tuple(output))


def _unchanged(trace: Trace, provenance: str, stage: Stage) -> Functionalized:
    """The program with unchanged ops, whose computation returns each value once and no inputs."""
    inputs = {proxy.name: index for index, proxy in enumerate(trace.inputs)}
    values: dict[str, Proxy] = {}
    for leaf in trace.output:
        if isinstance(leaf, PROXY_TYPES) and leaf.name not in inputs:
            values[leaf.name] = leaf
    positions = {name: index for index, name in enumerate(values)}

    def source(leaf: Any) -> ResultSource:
        if not isinstance(leaf, PROXY_TYPES):
            return Literal(leaf)
        return FromInput(inputs[leaf.name]) if leaf.name in inputs else FromComputation(positions[leaf.name])

    computation = replace(trace, output=tuple(values.values()), stage=stage, provenance=provenance, deletions={})
    return Functionalized(computation, None, (), tuple([source(leaf) for leaf in trace.output]))


class _Results:
    """Determines the source of each result of the program."""

    def __init__(self, rewriter: Rewriter, leaves: frozenset[str]) -> None:
        self.rewriter = rewriter
        self.trace = rewriter.trace
        self.views = rewriter.views
        self.state = rewriter.state
        self.epilogue = EpilogueBuilder(rewriter.emitter, rewriter.state, rewriter.views, leaves)
        self.inputs = {proxy.name: index for index, proxy in enumerate(self.trace.inputs)}
        self.outputs: dict[str, int] = {}
        self.values: list[Proxy] = []
        self.objects: dict[int, ResultSource] = {}

    def collect(self, provenance: str) -> Functionalized:
        """The functionalized program."""
        leaves = list(self.trace.output)
        self._join_blocks([self.views[leaf.name] for leaf in leaves if self._tracked(leaf)])
        self._write_inputs()
        results = tuple([self._result(leaf) for leaf in leaves])
        epilogue = self.epilogue.build() if self.epilogue.ops or self.epilogue.output else None
        arguments = tuple([self._argument(proxy) for proxy in epilogue.inputs]) if epilogue else ()
        computation = replace(
            self.trace.with_symbols(self.rewriter.emitter.ops, provenance),
            output=tuple(self.values),
            stage=Stage.FUNCTIONAL,
        )
        return Functionalized(
            computation, epilogue, arguments, results, tuple(self.rewriter.writes.mutations), self.state.regenerated
        )

    def _tracked(self, leaf: Any) -> bool:
        return isinstance(leaf, TensorProxy) and leaf.name in self.views

    def _join_blocks(self, results: list[View]) -> None:
        """Make results that share storage in the program views of one value."""
        objects: dict[int, set[int]] = {}
        for view in results:
            objects.setdefault(id(view.block), set()).add(id(view))
        shared = {block for block, views in objects.items() if len(views) > 1}
        for view in self.views.values():
            block = view.block
            if id(block) not in shared or not block.version or block.inputs or view.value is None:
                continue
            if view.value.storage != self.state.refresh(block, view.family).storage:
                view.version = -1

    def _write_inputs(self) -> None:
        for name, view in self.views.items():
            if name in self.inputs and view.block.version and view.block.root.name == name:
                self.epilogue.write(view.block)

    def _result(self, leaf: Any) -> ResultSource:
        if not isinstance(leaf, PROXY_TYPES):
            return Literal(leaf)
        if not self._tracked(leaf):
            return FromInput(self.inputs[leaf.name]) if leaf.name in self.inputs else self._output(leaf)
        view = self.views[leaf.name]
        source = self.objects.get(id(view))
        if source is None:
            source = self.objects[id(view)] = self._object(view)
        return source

    def _object(self, view: View) -> ResultSource:
        block = view.block
        if view.proxy.name in block.inputs:
            return FromInput(self.inputs[view.proxy.name])
        if block.version and block.inputs:
            return FromEpilogue(self.epilogue.result(view))
        value = self.state.current(view)
        if value.name in self.outputs or value.name in self.inputs:
            alias = replace(value, name=self.rewriter.emitter.name())
            self.rewriter.emitter.call(torch.ops.aten.alias.default, (value,), alias)
            value = alias
        return self._output(value)

    def _output(self, proxy: Proxy) -> FromComputation:
        index = self.outputs.get(proxy.name)
        if index is None:
            index = self.outputs[proxy.name] = len(self.values)
            self.values.append(proxy)
        return FromComputation(index)

    def _argument(self, proxy: Proxy) -> FromInput | FromComputation:
        return FromInput(self.inputs[proxy.name]) if proxy.name in self.inputs else self._output(proxy)
