"""Reader of printed programs, edited or not, as traces."""

from __future__ import annotations

import ast
import builtins
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from thunder_core.errors import EndsRecording, TraceError, TraceSyntaxError
from thunder_core.ir.annotation import (
    StorageNumbers,
    TensorAnnotation,
    read_input,
    read_storages,
    read_tensor_annotation,
    split_annotations,
)
from thunder_core.ir.bound_symbol import BoundSymbol, tensor_inputs_of
from thunder_core.ir.context import AUTOCAST_DEVICE_TYPES, Context
from thunder_core.ir.effects import PURE, Effects, joined
from thunder_core.ir.profiler_ranges import RECORD_FUNCTION, RECORD_FUNCTIONS, ProfilerRange
from thunder_core.ir.proxy import NumberProxy, OpaqueProxy, Proxy, TensorProxy
from thunder_core.ir.switches import read_switches, set_switches
from thunder_core.ir.symbol import Tag, as_recorded
from thunder_core.ir.trace import Stage, Trace, bodies_of
from thunder_core.ir.tree import iterate_leaves, map_leaves
from thunder_core.ir.verifier import verify
from thunder_core.symbols.generators import NEW_GENERATOR, STATEFUL
from thunder_core.tracing.outcome import Outcome, Slot
from thunder_saving.calls import CallReader
from thunder_saving.expressions import ExpressionReader
from thunder_saving.fakes import DEPENDS_ON_VALUES, FakeRun, assumed_outcome, count_names
from thunder_saving.module_syntax import CallSyntax, FunctionSyntax, ModuleSyntax, parse_module
from thunder_saving.names import Names
from thunder_saving.verified_source import dotted


def bind_target(module: ModuleSyntax, syntax: CallSyntax, outcome: Outcome, flattened: bool) -> tuple[str | None, ...]:
    """The names of the tensors that a call returns, in order; None for an unused result.

    Raises TraceSyntaxError if the target does not have the structure of the result.
    """
    structure = tuple(iterate_leaves(outcome.structure)) if flattened else outcome.structure
    names: dict[int, str] = {}
    if syntax.target is not None:
        _bind(module, syntax.target, structure, names)
    return tuple([names.get(index) for index in range(len(outcome.results))])


def _bind(module: ModuleSyntax, target: ast.expr, structure: Any, names: dict[int, str]) -> None:
    if isinstance(structure, Slot):
        if not isinstance(target, ast.Name):
            raise module.error(f"{ast.unparse(target)!r} is not a name for a tensor", target)
        if target.id != "_":
            names[structure.index] = target.id
        return
    if not isinstance(structure, tuple | list):
        if not (isinstance(target, ast.Name) and target.id == "_"):
            raise module.error(f"{ast.unparse(target)!r} names {structure!r}, which is not a tensor", target, "write _")
        return
    if not isinstance(target, ast.Tuple | ast.List) or len(target.elts) != len(structure):
        raise module.error(
            f"the call returns {len(structure)} values, which do not match {ast.unparse(target)!r}", target
        )
    for part, item in zip(target.elts, structure, strict=True):
        _bind(module, part, item, names)


def read_context(items: tuple[ast.expr, ...], ambient: Context, expressions: ExpressionReader) -> Context | None:
    """The context inside of ``with`` items; None without any. Raises TraceSyntaxError for other context managers."""
    context = ambient
    for item in items:
        name = dotted(item.func) if isinstance(item, ast.Call) else None
        if not isinstance(item, ast.Call) or name not in _CHANGES:
            known = ", ".join(_CHANGES)
            raise expressions.module.error(f"{ast.unparse(item)!r} is not one of the contexts {known}", item)
        args = [expressions.value(argument) for argument in item.args]
        try:
            context = _CHANGES[name](context, *args, **expressions.keywords(item))
            _check_context(context)
        except (TypeError, ValueError, AttributeError, RuntimeError) as error:
            raise expressions.module.error(f"{ast.unparse(item)}: {error}", item) from error
    return context if items else None


def read_ranges(
    items: tuple[ast.expr, ...], expressions: ExpressionReader
) -> tuple[tuple[ProfilerRange, ...], tuple[ast.expr, ...]]:
    """The ranges of the profiler that ``with`` items enter, and the other items.

    Raises:
        TraceSyntaxError: a range has other arguments than a name and a text.
    """
    ranges: list[ProfilerRange] = []
    others: list[ast.expr] = []
    for item in items:
        name = dotted(item.func) if isinstance(item, ast.Call) else None
        if not isinstance(item, ast.Call) or name not in (RECORD_FUNCTION, RECORD_FUNCTIONS):
            others.append(item)
            continue
        args = tuple([expressions.value(argument) for argument in item.args])
        pairs = args if name == RECORD_FUNCTIONS else (args,)
        for index, pair in enumerate(pairs):
            texts = (*pair, None)[:2] if isinstance(pair, tuple) and 0 < len(pair) <= 2 else (None, None)
            if item.keywords or type(texts[0]) is not str or not isinstance(texts[1], str | None):
                raise expressions.module.error(f"{ast.unparse(item)!r} is no range of the profiler", item)
            ranges.append(ProfilerRange(texts[0], texts[1], (item.lineno, item.col_offset, index)))
    return tuple(ranges), tuple(others)


def _check_context(context: Context) -> None:
    """Raise TypeError for a field of another type: contexts are printed as code."""
    if not all(type(mode) is bool for mode in (context.grad_enabled, context.inference, context.autocast_cache)):
        raise TypeError("a mode is True or False")
    for kind, dtype in context.autocast:
        if type(kind) is not str or not kind.isidentifier() or not isinstance(dtype, torch.dtype):
            raise TypeError("autocast has types of devices and dtypes")


def read_header_context(text: str) -> Context:
    """The context in the header of a trace. Raises ValueError."""
    fields = dict(item.split("=", 1) for item in text.split())
    pairs = [] if fields["autocast"] == "none" else [pair.split(":") for pair in fields["autocast"].split(",")]
    autocast = tuple((kind, getattr(torch, dtype)) for kind, dtype in pairs)
    grad, inference, cache = (fields[key] == "True" for key in ("grad", "inference", "cache"))
    context = Context(grad, inference, autocast, cache)
    _check_context(context)
    return context


def _grad(context: Context, mode: bool) -> Context:
    return replace(context, grad_enabled=mode)


def _inference(context: Context, mode: bool = True) -> Context:
    return replace(context, inference=mode, grad_enabled=not mode)


def _autocast(
    context: Context, device_type: str, dtype: Any = None, enabled: bool = True, cache_enabled: bool | None = None
) -> Context:
    pairs = dict(context.autocast)
    pairs.pop(device_type, None)
    if enabled:
        pairs[device_type] = dtype or torch.get_autocast_dtype(device_type)
    kinds = [*AUTOCAST_DEVICE_TYPES, *[kind for kind in pairs if kind not in AUTOCAST_DEVICE_TYPES]]
    autocast = tuple((kind, pairs[kind]) for kind in kinds if kind in pairs)
    cache = context.autocast_cache if cache_enabled is None else cache_enabled
    return replace(context, autocast=autocast, autocast_cache=cache)


def _attention(context: Context, backends: list[Any]) -> Context:
    from torch.nn.attention import SDPBackend

    if not all(isinstance(backend, SDPBackend) for backend in backends):
        raise TypeError("its argument is a list of members of torch.nn.attention.SDPBackend")
    return replace(context, attention=tuple([backend.name for backend in backends]))


_CHANGES: dict[str, Any] = {
    "torch.no_grad": lambda context: _grad(context, False),
    "torch.enable_grad": lambda context: _grad(context, True),
    "torch.set_grad_enabled": _grad,
    "torch.inference_mode": _inference,
    "torch.autocast": _autocast,
    "torch.nn.attention.sdpa_kernel": _attention,
}


class LeafWritten(Exception):
    """An in-place call on a leaf of the autograd graph."""


class FunctionReader:
    """Reads a function."""

    def __init__(
        self,
        module: ModuleSyntax,
        function: FunctionSyntax,
        traces: dict[str, Trace],
        known: Names,
        *,
        leaves: bool,
    ) -> None:
        self.module = module
        self.function = function
        self.leaves = leaves
        self.names: dict[str, Any] = dict(traces)
        self.expressions = ExpressionReader(module, self.names, known)
        self.calls = CallReader(module, self.expressions)

    def read(self) -> Trace:
        header = self.function.header
        self.storages = self._storages(header.get("storages", ""))
        context = self._header_context(header.get("context"))
        inputs = tuple(self._input(argument) for argument in self._parameters())
        self.fakes = FakeRun(inputs, leaves=self.leaves)
        symbols = tuple([self._op(call, context) for call in self.function.calls])
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
        if isinstance(proxy, OpaqueProxy) and not _is_type_name(proxy.type_name):
            raise self.module.error(f"{proxy.type_name!r} is not the name of a type", annotation)
        self.names[proxy.name] = proxy
        return proxy

    def _storages(self, text: str) -> StorageNumbers:
        try:
            return StorageNumbers(read_storages(text))
        except ValueError as error:
            raise self.module.error(f"the header '# storages: {text}' is not understood") from error

    def _stage(self, text: str | None) -> Stage:
        try:
            return Stage.ACQUIRED if text is None else Stage(text)
        except ValueError as error:
            raise self.module.error(str(error)) from error

    def _header_context(self, text: str | None) -> Context:
        try:
            return Context(True, False) if text is None else read_header_context(text)
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise self.module.error(f"the header '# context: {text}' is not understood") from error

    def _op(self, syntax: CallSyntax, ambient: Context) -> BoundSymbol:
        symbol, args, kwargs, flattened = self.calls.read(syntax.value)
        ranges, contexts = read_ranges(syntax.contexts, self.expressions)
        context = read_context(contexts, ambient, self.expressions)
        location = syntax.location
        if ranges and location is not None:
            location = replace(location, ranges=ranges)
        bound = BoundSymbol(symbol, args, kwargs, None, PURE, context, location)
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
        """The result of a call that returns a Python number, from its annotation."""
        kind = getattr(builtins, syntax.annotation.partition(";")[0], None)
        if not isinstance(syntax.target, ast.Name) or kind not in (bool, int, float, complex):
            return None
        return self._defined(NumberProxy(syntax.target.id, kind), syntax.target)

    def _defined(self, proxy: Proxy, target: ast.expr) -> Proxy:
        """The result of a call, which is not a tensor, under its name."""
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
        except Exception as error:  # any error of PyTorch about the arguments
            if self.leaves and "leaf Variable that requires grad" in str(error):
                raise LeafWritten from error
            raise self.module.error(f"{ast.unparse(syntax.value)}: {error}", syntax.value) from error

    def _results(
        self, bound: BoundSymbol, syntax: CallSyntax, outcome: Outcome, names: tuple[str | None, ...]
    ) -> list[TensorProxy | None]:
        arguments = tensor_inputs_of(bound)
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


def _is_type_name(text: str) -> bool:
    """Whether this can be printed between quotes."""
    return text.isprintable() and not {'"', "\\"} & set(text)


def _annotations(text: str, count: int) -> list[TensorAnnotation | None]:
    """The annotations of a line; None for each if their number differs from that of the outputs."""
    parts = split_annotations(text.partition(";")[0]) if text else []
    if len(parts) != count:
        return [None] * count
    annotations: list[TensorAnnotation | None] = []
    for part in parts:
        try:
            annotations.append(read_tensor_annotation(part))
        except ValueError:  # a user's comment
            annotations.append(None)
    return annotations


def _reshapes(bound: BoundSymbol, outcome: Outcome) -> bool:
    """Whether the call changes the size of one of its arguments, like ``resize_`` and ``out=``."""
    arguments = tensor_inputs_of(bound)
    return bound.symbol.functional is None and any(
        result.same_as >= 0 and (result.shape, result.stride, result.offset) != arguments[result.same_as].geometry
        for result in outcome.results
    )


def _effects(bound: BoundSymbol, outcome: Outcome) -> Effects:
    arguments = tensor_inputs_of(bound)
    mutates = tuple(dict.fromkeys(arguments[index].name for index in outcome.written))
    inner = [op.effects for body in bodies_of(bound) for op in body.symbols]
    silent = not (outcome.results or outcome.written or outcome.channels)
    external = Tag.CHANGES_AUTOGRAD in bound.symbol.tags or outcome.external or silent
    effects = Effects((), outcome.random, external, outcome.channels)
    if bound.symbol in STATEFUL:
        effects = Effects(random=True, external=True)
    return replace(joined([effects, *inner], mutates), uncounted=outcome.uncounted)


def read_trace(
    source: str, *, filename: str = "<trace>", targets: Mapping[str, Callable[..., Any]] | None = None
) -> Trace:
    """The trace of printed, possibly edited source.

    Names, calls, contexts and deletions are read from the code; the user's source locations from comments; the metadata
    of inputs from their annotations. All other metadata is derived by running each call on fake tensors, so annotations
    of edited lines may be out of date.

    Args:
        source: the text.
        filename: for error messages.
        targets: functions of the user's that the source may name, by name.

    Raises:
        TraceSyntaxError: the source is not a trace, or a name, function or argument is wrong. The message has the line.
    """
    return read_module(source, filename, targets or {})[0]


def read_module(source: str, filename: str, targets: Mapping[str, Any]) -> tuple[Trace, ast.Dict | None]:
    """The trace as of `read_trace`, and the dict of constants of a saved program. Raises as that does."""
    with errors_of(filename):
        module = parse_module(source, filename)
        traces: dict[str, Trace] = {}
        known = Names(targets)
        for function in module.functions:
            traces[function.node.name] = _read_function(module, function, traces, known)
        trace = traces[module.main]
        verify(trace)
    return trace, module.constants


@contextmanager
def errors_of(filename: str, keep: type[Exception] = TraceSyntaxError) -> Iterator[None]:
    """A context that raises TraceSyntaxError for whatever a file causes, as by its size or depth, except ``keep``."""
    try:
        yield
    except (TraceSyntaxError, keep):
        raise
    except TraceError as error:
        raise TraceSyntaxError(f"{filename}: {error.problem}", location=error.location, advice=error.advice) from error
    except (RecursionError, MemoryError) as error:
        raise TraceSyntaxError(f"{filename}: it is nested too deep, or too large: {error}") from error
    except (Exception, EndsRecording) as error:  # whatever PyTorch or Thunder raise about it
        raise TraceSyntaxError(f"{filename}: {type(error).__name__}: {error}") from error


def _read_function(module: ModuleSyntax, function: FunctionSyntax, traces: dict[str, Trace], known: Names) -> Trace:
    switches = read_switches()
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the calls warn when the program runs
        try:
            return FunctionReader(module, function, traces, known, leaves=True).read()
        except LeafWritten:  # an input that requires grad is written, so it is not a leaf
            return FunctionReader(module, function, traces, known, leaves=False).read()
        finally:
            set_switches(switches)
