"""Read one printed function back as a trace."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from thunder_core.errors import TraceError
from thunder_core.ir.annotation_syntax import (
    Storages,
    TensorAnnotation,
    read_input,
    read_storages,
    read_tensor_annotation,
    split_annotations,
)
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.context import Context
from thunder_core.ir.context_syntax import read_context, read_header_context
from thunder_core.ir.effects import PURE, Effects, joined
from thunder_core.ir.expressions import ExpressionReader
from thunder_core.ir.module_syntax import CallSyntax, FunctionSyntax, ModuleSyntax
from thunder_core.ir.proxy import NumberProxy, OpaqueProxy, Proxy, TensorProxy
from thunder_core.ir.symbol import as_recorded
from thunder_core.ir.trace import Stage, Trace, bodies_of
from thunder_core.ir.tree import map_leaves
from thunder_core.saving.assumption import assumed_outcome, count_names
from thunder_core.saving.calls import CallReader
from thunder_core.saving.fakes import DEPENDS_ON_VALUES, FakeRun
from thunder_core.saving.targets import bind_target
from thunder_core.symbols.generators import NEW_GENERATOR, STATEFUL
from thunder_core.symbols.opaque import CHANGES_AUTOGRAD
from thunder_core.tracing.outcome import Outcome, Slot


class LeafWritten(Exception):
    """An in-place call on a leaf of the autograd graph."""


class FunctionReader:
    """Reads one function."""

    def __init__(
        self,
        module: ModuleSyntax,
        function: FunctionSyntax,
        traces: dict[str, Trace],
        targets: Mapping[str, Any],
        *,
        leaves: bool,
    ) -> None:
        self.module = module
        self.function = function
        self.leaves = leaves
        self.names: dict[str, Any] = dict(traces)
        self.expressions = ExpressionReader(module, self.names)
        self.calls = CallReader(module, self.expressions, targets)

    def read(self) -> Trace:
        header = self.function.header
        self.storages = self._storages(header.get("memories", ""))
        context = self._header_context(header.get("context"))
        inputs = tuple(self._input(argument) for argument in self._parameters())
        self.fakes = FakeRun(inputs, leaves=self.leaves)
        symbols = tuple([self._line(call, context) for call in self.function.calls])
        deletions = {index: tuple(call.deletions) for index, call in enumerate(self.function.calls) if call.deletions}
        if self.function.deletions:
            deletions[-1] = self.function.deletions
        output = None if self.function.output is None else self.expressions.value(self.function.output)
        return Trace(
            header.get("trace", self.function.node.name),
            inputs,
            symbols,
            output,
            self._stage(header.get("stage")),
            header.get("provenance", f"read from {self.module.filename}"),
            context,
            deletions,
        )

    def _parameters(self) -> list[ast.arg]:
        given = self.function.node.args
        if given.vararg or given.kwarg or given.kwonlyargs or given.posonlyargs or given.defaults:
            raise self.module.error("the inputs of a trace are plain parameters", self.function.node)
        return given.args

    def _input(self, parameter: ast.arg) -> Proxy:
        annotation = parameter.annotation
        if not isinstance(annotation, ast.Constant) or not isinstance(annotation.value, str):
            raise self.module.error(
                f"the input {parameter.arg!r} has no annotation", annotation, f'write {parameter.arg}: "f32[2, 3]"'
            )
        try:
            proxy = read_input(parameter.arg, annotation.value, self.storages)
        except ValueError as error:
            raise self.module.error(f"the annotation of {parameter.arg!r}: {error}", annotation) from error
        self.names[proxy.name] = proxy
        return proxy

    def _storages(self, text: str) -> Storages:
        try:
            return Storages(read_storages(text))
        except ValueError as error:
            raise self.module.error(f"the header '# memories: {text}' is not understood") from error

    def _stage(self, text: str | None) -> Stage:
        try:
            return Stage.ACQUIRED if text is None else Stage(text)
        except ValueError as error:
            raise self.module.error(str(error)) from error

    def _header_context(self, text: str | None) -> Context:
        try:
            return Context(True, False) if text is None else read_header_context(text)
        except (ValueError, KeyError, AttributeError) as error:
            raise self.module.error(f"the header '# context: {text}' is not understood") from error

    def _line(self, syntax: CallSyntax, ambient: Context) -> BoundSymbol:
        symbol, args, kwargs, flattened = self.calls.read(syntax.value)
        context = read_context(syntax.contexts, ambient, self.expressions)
        bound = BoundSymbol(symbol, args, kwargs, None, PURE, context, syntax.location)
        if symbol is NEW_GENERATOR and isinstance(syntax.target, ast.Name):
            generator = self._defined(OpaqueProxy(syntax.target.id, "Generator"), syntax.target)
            return replace(bound, output=generator, effects=Effects(random=True, external=True))
        number = self._number(syntax)
        if number is not None:
            return replace(bound, output=number)
        outcome = self._run(bound, syntax, ambient)
        names = bind_target(self.module, syntax, outcome, flattened)
        proxies = self._results(bound, syntax, outcome, names)
        self.fakes.name_results(proxies)
        output = None
        if syntax.target is not None:
            structure = outcome.structure
            output = map_leaves(lambda leaf: proxies[leaf.index] if isinstance(leaf, Slot) else leaf, structure)
        if _reshapes(bound, outcome):
            bound = replace(bound, symbol=as_recorded(symbol))
        return replace(bound, output=output, effects=_effects(bound, outcome))

    def _number(self, syntax: CallSyntax) -> Proxy | None:
        """The result of a line that gives a Python number, which only its annotation says."""
        kind = getattr(builtins, syntax.annotation.partition(";")[0], None)
        if not isinstance(syntax.target, ast.Name) or kind not in (bool, int, float, complex):
            return None
        return self._defined(NumberProxy(syntax.target.id, kind), syntax.target)

    def _defined(self, proxy: Proxy, target: ast.expr) -> Proxy:
        """The result of a line, which is no tensor, under its name."""
        if proxy.name in self.names:
            raise self.module.error(f"{proxy.name!r} is defined twice", target)
        self.names[proxy.name] = proxy
        return proxy

    def _run(self, bound: BoundSymbol, syntax: CallSyntax, ambient: Context) -> Outcome:
        try:
            return self.fakes.call(bound, ambient)
        except DEPENDS_ON_VALUES:
            annotations = _annotations(syntax.annotation, count_names(syntax.target))
            return assumed_outcome(self.module, syntax, bound, annotations, self.storages.by_owner)
        except TraceError:
            raise
        except Exception as error:  # whatever PyTorch says about the arguments
            if self.leaves and "leaf Variable that requires grad" in str(error):
                raise LeafWritten from error
            raise self.module.error(f"{ast.unparse(syntax.value)}: {error}", syntax.value) from error

    def _results(
        self, bound: BoundSymbol, syntax: CallSyntax, outcome: Outcome, names: tuple[str | None, ...]
    ) -> list[TensorProxy | None]:
        arguments = _arguments(bound)
        proxies: list[TensorProxy | None] = []
        numbers: list[int | None] = []  # storages of the results so far
        for name, result in zip(names, outcome.results, strict=True):
            if name is None:
                proxies.append(None)
                numbers.append(None)
                continue
            if name in self.names:
                raise self.module.error(f"{name!r} is defined twice", syntax.target or syntax.value)
            known = None
            if max(result.same_as, result.shares) >= 0:
                known = arguments[result.same_as if result.same_as >= 0 else result.shares].storage
            elif result.shares_result >= 0:
                known = numbers[result.shares_result]
            number = self.storages.number(name, known)
            proxy = TensorProxy(
                name,
                result.shape,
                tuple(result.stride),
                result.dtype,
                result.device,
                result.requires_grad,
                number,
                result.offset,
                result.layout,
            )
            proxies.append(proxy)
            numbers.append(number)
            self.names[name] = proxy
        return proxies


def _annotations(text: str, count: int) -> list[TensorAnnotation | None]:
    """The annotations behind a line; None for each when there are not as many as outputs."""
    parts = split_annotations(text.partition(";")[0]) if text else []
    if len(parts) != count:
        return [None] * count
    found: list[TensorAnnotation | None] = []
    for part in parts:
        try:
            found.append(read_tensor_annotation(part))
        except ValueError:  # a comment of the user
            found.append(None)
    return found


def _reshapes(bound: BoundSymbol, outcome: Outcome) -> bool:
    """Whether the line gives one of its arguments another size, as ``resize_`` and ``out=`` do."""
    arguments = _arguments(bound)
    return bound.symbol.functional is None and any(
        result.same_as >= 0 and (result.shape, result.stride, result.offset) != arguments[result.same_as].geometry
        for result in outcome.results
    )


def _arguments(bound: BoundSymbol) -> list[TensorProxy]:
    return [proxy for proxy in bound.inputs() if isinstance(proxy, TensorProxy)]


def _effects(bound: BoundSymbol, outcome: Outcome) -> Effects:
    arguments = _arguments(bound)
    mutates = tuple(dict.fromkeys(arguments[index].name for index in outcome.written))
    inner = [line.effects for body in bodies_of(bound) for line in body.symbols]
    silent = not (outcome.results or outcome.written or outcome.channels)
    external = bound.symbol.target in CHANGES_AUTOGRAD or outcome.external or silent
    own = Effects((), outcome.random, external, outcome.channels)
    if bound.symbol in STATEFUL:
        own = Effects(random=True, external=True)
    return joined([own, *inner], mutates)
