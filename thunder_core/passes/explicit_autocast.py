"""Write the conversions that autocast makes into the program."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import torch

from thunder_core.errors import LoweringError
from thunder_core.ir.annotation import SHORT_DTYPES
from thunder_core.ir.bound_symbol import BoundSymbol, tensor_inputs_of, tensor_outputs_of
from thunder_core.ir.bounded_cache import BoundedCache
from thunder_core.ir.builder import Builder
from thunder_core.ir.context import Context
from thunder_core.ir.keys import call_key
from thunder_core.ir.proxy import Proxy, TensorProxy
from thunder_core.ir.size import from_fake
from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Stage, Trace, bodies_of, producers_of
from thunder_core.passes.autocast_rewrites import (
    CAST,
    UNCHANGED,
    CallLog,
    Rewrite,
    candidate_rewrites,
    log_call,
    rewrite_by_class,
    same_operations,
)
from thunder_core.passes.base import Pass, PassContext
from thunder_core.passes.dead_code import without_dead_code
from thunder_core.passes.functionalize import without_writes
from thunder_core.pytorch_internals import is_view
from thunder_core.symbols.autocast import CLEAR_CACHE
from thunder_core.tracing.fake_tensors import ObservingFakeMode, make_fake

_cache: Final = BoundedCache["Form"](1024)
Form = Rewrite | Trace | None
"""A trace has the operators that a line consists of, for `Builder.inline`. None: the line stays under autocast."""


def explicit_form(bound: BoundSymbol, context: Context) -> Form:
    """What to write for a line under ``context``. Lines with equal symbols and metadata are looked at once."""
    return _cache.get(call_key(bound, context), lambda: _decide(bound, context))


def _decide(bound: BoundSymbol, context: Context) -> Form:
    try:
        wanted = log_call(bound, context)
    except LoweringError:
        return rewrite_by_class(bound, context)
    if _converts_inside(bound, wanted):
        return None
    plain = replace(context, autocast=())
    for rewrite in candidate_rewrites(bound, context):
        if _does(bound, plain, rewrite, wanted):
            return rewrite if _converts_inputs(bound, rewrite, wanted) else replace(rewrite, cached=False)
    try:
        return _parts(plain, wanted)
    except LoweringError:
        return None


def _converts_inside(bound: BoundSymbol, log: CallLog) -> bool:
    """Whether a kernel meets autocast below all that a log shows. Inside of what has a class autocast is off."""
    return any(
        Tag.DISPATCHES in line.symbol.tags and proxy.device.type not in bound.symbol.autocast
        for line in log.lines
        for proxy in tensor_inputs_of(line)
    )


def _does(bound: BoundSymbol, plain: Context, rewrite: Rewrite, wanted: CallLog) -> bool:
    """Whether a rewrite performs the wanted operations, and no result shows the memory of a converted argument.

    (The line's results then have new storages, as in the recorded program.)
    """
    try:
        log = log_call(bound, plain, rewrite)
    except LoweringError:
        return False
    return same_operations(log, wanted) and log.converted.isdisjoint(proxy.storage for proxy in log.outputs)


def _converts_inputs(bound: BoundSymbol, rewrite: Rewrite, log: CallLog) -> bool:
    """Whether autocast converts the arguments themselves that a rewrite converts."""
    direct = {line.args[0].name for line in log.lines if line.is_cast()}
    pairs = reversed(list(zip(bound.inputs(), log.inputs, strict=True)))
    logged = {proxy: own for proxy, own in pairs if rewrite.conversion(proxy) is not None}  # the first of equal ones
    return all(own.name in direct for own in logged.values())


def _parts(plain: Context, log: CallLog) -> Trace:
    """Raises LoweringError: the operations are no substitute for the line."""
    if not log.differentiable:
        raise LoweringError("its gradients are its own")
    trace = Trace("call", log.inputs, log.lines, log.outputs, Stage.ACQUIRED, "tracer", plain)
    trace = without_dead_code(without_writes(trace))
    names = [proxy.name for proxy in trace.output]
    if len(set(names)) < len(names) or any(trace.producer(name) is None for name in names):
        raise LoweringError("an output of it is an input, or another output")
    return _recording_gradients(replace(trace, inputs=log.inputs), log)


def _recording_gradients(trace: Trace, log: CallLog) -> Trace:
    """The trace with the values that autograd records requiring grad."""
    recording = set(log.recording)
    logged = producers_of(log.lines).keys()
    for line in trace.symbols:
        flows = any(proxy.name in recording for proxy in line.inputs())
        for proxy in tensor_outputs_of(line):
            if proxy.name not in logged and flows and proxy.dtype.is_floating_point:
                recording.add(proxy.name)  # computed by functionalization
    return trace.with_gradients(recording)


@dataclass(frozen=True)
class ExplicitAutocast(Pass[Trace]):
    """Makes the lines independent of autocast, with the values, dtypes and gradients that they have under it.

    A line becomes the first of these that is right: itself; itself on converted arguments, or with an option ``dtype``;
    the operations that it consists of. What is right is seen by making the call on fake tensors, with autocast and
    without. It stays under autocast, as its context then says, if

    - autocast changes its operations, and they write to its arguments, or hide something from autograd (``detach``, a
      custom backward);
    - or it has no autocast class and cannot run on fake tensors (modules that run eagerly, user functions).

    Programs among the arguments of a line, such as the body of a checkpoint, are treated in the same way; the line
    itself then needs no autocast.

    The trace must run without autocast: its context says so, also where the program ran under it (`without_autocast` in
    `thunder_core/runtime/compile.py`).

    Attributes:
        leaves: inputs that are leaves of autograd's graph, and no views. PyTorch converts those of them that require
            grad once in a region of autocast, and so does the program; the body of a checkpoint converts for itself.
            Everything else is converted for each use: the gradients of its uses are summed in its dtype.
    """

    name: ClassVar[str] = "ExplicitAutocast"
    consumes: ClassVar[frozenset[Stage]] = frozenset({Stage.FUNCTIONAL})

    leaves: frozenset[str] = frozenset()

    def run(self, trace: Trace, context: PassContext) -> Trace:
        if not _mentions_autocast(trace):
            return trace
        return _Writer(trace, self.leaves, Builder.of(trace)).write(self.name)


def leaves_among(proxies: Iterable[Proxy], objects: Iterable[Any]) -> frozenset[str]:
    """The names of the inputs that `ExplicitAutocast` calls leaves; ``objects`` are what the inputs stand for."""
    return frozenset(
        proxy.name
        for proxy, value in zip(proxies, objects, strict=True)
        if isinstance(value, torch.Tensor) and value.is_leaf and not is_view(value)
    )


class _Writer:
    """Writes one trace, line by line."""

    def __init__(self, trace: Trace, leaves: frozenset[str], builder: Builder) -> None:
        self.trace = trace
        self.leaves = leaves
        self.builder = builder
        self.ambient = _plain(trace.context)
        self.lines: list[BoundSymbol] = []
        self.converted: dict[tuple[str, torch.dtype, bool], TensorProxy] = {}
        self.replaced: dict[str, TensorProxy] = {}

    def write(self, provenance: str) -> Trace:
        for bound in self.trace.symbols:
            self._visit(bound)
        return replace(self.trace.with_symbols(self.lines, provenance), context=self.ambient)

    def _visit(self, bound: BoundSymbol) -> None:
        if bound.symbol is CLEAR_CACHE:
            self.converted.clear()
            return
        context = bound.context or self.trace.context
        plain = replace(bound, context=self._shown(_plain(context)))
        if bodies_of(bound):
            self.lines.append(plain.map_arguments(self._body))
        elif not context.autocast or _computes_nothing(bound):
            self.lines.append(plain)
        else:
            self._write(bound, plain, context)

    def _write(self, bound: BoundSymbol, plain: BoundSymbol, context: Context) -> None:
        form = None if Tag.LOCAL in bound.symbol.tags else explicit_form(bound, context)
        if form == UNCHANGED:
            self.lines.append(plain)
        elif isinstance(form, Rewrite):
            self._convert_arguments(plain, form, context)
        elif isinstance(form, Trace):
            for line in self.builder.inline(form, plain):
                self._emit(line, context, {proxy.storage for proxy in tensor_outputs_of(bound)})
        else:
            self.lines.append(replace(bound, context=self._shown(context)))

    def _convert_arguments(self, plain: BoundSymbol, rewrite: Rewrite, context: Context) -> None:
        context = replace(context, autocast_cache=context.autocast_cache and rewrite.cached)

        def converted(leaf: Any) -> Any:
            dtype = rewrite.conversion(leaf)
            return leaf if dtype is None else self._convert(plain, leaf, dtype, context)

        self.lines.append(rewrite.with_result_dtype(plain.map_arguments(converted)))

    def _convert(self, plain: BoundSymbol, proxy: TensorProxy, dtype: torch.dtype, context: Context) -> TensorProxy:
        mode = ObservingFakeMode()
        with mode:
            copy = make_fake(mode, replace(proxy, requires_grad=False)).to(dtype)
        made = TensorProxy(
            self.builder.name(f"{proxy.name}_{SHORT_DTYPES.get(dtype, 'cast')}"),
            proxy.shape,
            from_fake(copy.stride()),
            dtype,
            proxy.device,
            proxy.requires_grad and context.grad_enabled and not context.inference,
            self.builder.new_storage(),
        )
        line = BoundSymbol(CAST, (proxy, dtype), {}, made, context=plain.context, location=plain.location)
        self._emit(line, context, set())
        return self.replaced.get(made.name, made)

    def _emit(self, line: BoundSymbol, context: Context, outer: set[int]) -> None:
        """Append a line, unless it converts a leaf that was converted before. ``outer``: memories that others see."""
        if self.replaced:
            line = line.map_arguments(self._current)
        if not self._is_cached(line, context) or line.output.storage in outer:
            self.lines.append(line)
            return
        # a copy without history is no use where one is needed
        recorded = context.grad_enabled and not context.inference
        key = (line.args[0].name, line.args[1], recorded)
        if key in self.converted:
            self.replaced[line.output.name] = self.converted[key]
        else:
            self.converted[key] = line.output
            self.lines.append(line)

    def _is_cached(self, line: BoundSymbol, context: Context) -> bool:
        """Whether PyTorch caches this conversion."""
        if not line.is_cast() or not context.autocast_cache:
            return False
        proxy, dtype = line.args
        if proxy.name not in self.leaves or not proxy.requires_grad:
            return False
        return proxy.dtype is torch.float32 and (proxy.device.type, dtype) in context.autocast

    def _current(self, leaf: Any) -> Any:
        return self.replaced.get(leaf.name, leaf) if isinstance(leaf, TensorProxy) else leaf

    def _body(self, leaf: Any) -> Any:
        """A program among the arguments of a line, which runs under the modes that it says itself."""
        if not isinstance(leaf, Trace):
            return leaf
        return _Writer(leaf, self.leaves, self.builder).write(leaf.provenance)

    def _shown(self, context: Context) -> Context | None:
        return None if context == self.ambient else context


def _plain(context: Context) -> Context:
    return replace(context, autocast=()) if context.autocast else context


def _computes_nothing(bound: BoundSymbol) -> bool:
    """Whether a line is there for an effect alone: no value depends on what it casts."""
    return bound.effects.visible and not bound.effects.mutates and not tensor_outputs_of(bound)


def _mentions_autocast(trace: Trace) -> bool:
    contexts = [trace.context, *[bound.context for bound in trace.symbols]]
    if any(context is not None and context.autocast for context in contexts):
        return True
    return any(_mentions_autocast(body) for body in trace.bodies())
