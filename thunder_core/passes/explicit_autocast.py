"""Make the casts of autocast explicit in the program."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import astuple, dataclass, replace
from typing import Any, ClassVar, Final

import torch

from thunder_core.errors import LoweringError
from thunder_core.executors.disk_tables import OpTable, is_form
from thunder_core.ir.annotation import SHORT_DTYPES
from thunder_core.ir.bound_symbol import BoundSymbol, tensor_outputs_of
from thunder_core.ir.bounded_cache import BoundedCache
from thunder_core.ir.builder import Builder
from thunder_core.ir.context import Context
from thunder_core.ir.geometry import dense
from thunder_core.ir.keys import call_key
from thunder_core.ir.proxy import Proxy, TensorProxy
from thunder_core.ir.size import Size, are_constant, from_fake
from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Stage, Trace, bodies_of, producers_of
from thunder_core.passes.autocast_rewrites import (
    CAST,
    UNCHANGED,
    CallLog,
    Rewrite,
    acts_below,
    candidate_rewrites,
    log_call,
    same_operations,
)
from thunder_core.passes.base import Pass, PassContext
from thunder_core.passes.dead_code import without_dead_code
from thunder_core.passes.functionalize import without_writes
from thunder_core.pytorch_internals import is_view
from thunder_core.symbols.functions import CLEAR_CACHE
from thunder_core.tracing.fake_tensors import ObservingFakeMode, make_fake

_cache: Final = BoundedCache["Form"](1024)
Form = Rewrite | Trace | None
"""A `Trace` has the operators that replace an op, for `Builder.inline`. None: the op stays under autocast."""


def explicit_form(bound: BoundSymbol, context: Context) -> Form:
    """The form of an op under ``context``, cached for ops with equal symbols and metadata, on disk, too."""
    key = call_key(bound, context)
    return _cache.get(key, lambda: _stored(key, bound, context))


def _is_stored_form(value: Any) -> bool:
    """Whether this is what `_stored` stores: the fields of a `Rewrite`, or a trace."""
    if type(value) is not tuple:
        return is_form(value)
    kinds = ((str,), (torch.dtype, type(None)), (torch.dtype, type(None)), (bool,))
    return len(value) == len(kinds) and all(map(isinstance, value, kinds))


_TABLE: Final = OpTable("explicit autocast 1", _is_stored_form)


def _stored(key: Hashable, bound: BoundSymbol, context: Context) -> Form:
    """The form that another process stored, or that is decided now."""
    if key is None:
        return _decide(bound, context)
    if (entry := _TABLE.read(key, bound)) is not None:
        _, value = entry
        return Rewrite(*value) if isinstance(value, tuple) else value
    form = _decide(bound, context)
    if form is not None:  # None may be due to an exception of this process
        _TABLE.write(key, bound, astuple(form) if isinstance(form, Rewrite) else form)
    return form


def _decide(bound: BoundSymbol, context: Context) -> Form:
    try:
        wanted = log_call(bound, context)
    except LoweringError:
        return None
    if acts_below(wanted):
        return None
    plain = replace(context, autocast=())
    for rewrite in candidate_rewrites(bound, context, wanted):
        if _does(bound, plain, rewrite, wanted):
            return rewrite if _casts_inputs(bound, rewrite, wanted) else replace(rewrite, cached=False)
    try:
        return _parts(plain, wanted)
    except LoweringError:
        return None


def _does(bound: BoundSymbol, plain: Context, rewrite: Rewrite, wanted: CallLog) -> bool:
    """Whether a rewrite performs the wanted ops, and no result shares storage with an argument that it casts.

    (The op's results then have new storages, as in the recorded program.)
    """
    try:
        log = log_call(bound, plain, rewrite)
    except LoweringError:
        return False
    return same_operations(log, wanted) and log.cast_storages.isdisjoint(proxy.storage for proxy in log.outputs)


def _casts_inputs(bound: BoundSymbol, rewrite: Rewrite, log: CallLog) -> bool:
    """Whether autocast casts the same arguments as the rewrite, and not views of them."""
    direct = {op.args[0].name for op in log.ops if op.is_cast()}
    pairs = reversed(list(zip(bound.inputs(), log.inputs, strict=True)))
    logged = {proxy: one for proxy, one in pairs if rewrite.cast_dtype(proxy) is not None}  # the first of equal ones
    return all(one.name in direct for one in logged.values())


def _parts(plain: Context, log: CallLog) -> Trace:
    """The logged ops as a trace. Raises LoweringError if they cannot replace the op."""
    if not log.differentiable:
        raise LoweringError("its gradients are not those of its operators")
    trace = Trace("call", log.inputs, log.ops, log.outputs, Stage.ACQUIRED, "tracer", plain)
    trace = without_dead_code(without_writes(trace))
    names = [proxy.name for proxy in trace.output]
    if len(set(names)) < len(names) or any(trace.producer(name) is None for name in names):
        raise LoweringError("an output of it is an input, or another output")
    return _recording_gradients(replace(trace, inputs=log.inputs), log)


def _recording_gradients(trace: Trace, log: CallLog) -> Trace:
    """The trace in which the values that autograd records require grad."""
    recording = set(log.recording)
    logged = producers_of(log.ops).keys()
    for op in trace.symbols:
        flows = any(proxy.name in recording for proxy in op.inputs())
        for proxy in tensor_outputs_of(op):
            if proxy.name not in logged and flows and proxy.dtype.is_floating_point:
                recording.add(proxy.name)  # computed by functionalization
    return trace.with_gradients(recording)


@dataclass(frozen=True)
class ExplicitAutocast(Pass[Trace]):
    """Makes ops independent of autocast; their values, dtypes and gradients stay those under autocast.

    An op becomes the first of these that is equivalent: itself; itself with cast arguments or an option ``dtype``; the
    operators that it dispatches to. Equivalence is determined by calls on fake tensors with and without autocast. The
    op stays under autocast, with a context that enables it, if

    - autocast changes its operators, and these write to its arguments or hide something from autograd (``detach``, a
      custom backward);
    - or it cannot run on fake tensors (modules that run eagerly, user functions), or its kernels call others.

    Traces among the arguments of an op, such as the body of a checkpoint, are transformed in the same way; the op
    itself then needs no autocast.

    The resulting trace must run without autocast: its context disables it even if the program ran under autocast
    (`thunder_core/runtime/run_function.py`).

    Attributes:
        leaves: names of inputs that are leaves of the autograd graph and no views. As PyTorch, the program casts those
            that require grad once per autocast region; the body of a checkpoint casts them again. All other values are
            cast for each use, so that the gradients of their uses are summed in their own dtype.
    """

    name: ClassVar[str] = "ExplicitAutocast"
    consumes: ClassVar[frozenset[Stage]] = frozenset({Stage.FUNCTIONAL})

    leaves: frozenset[str] = frozenset()

    def run(self, trace: Trace, context: PassContext) -> Trace:
        if not _mentions_autocast(trace):
            return trace
        return _Writer(trace, self.leaves, Builder.of(trace)).write(self.name)


def leaves_among(proxies: Iterable[Proxy], objects: Iterable[Any]) -> frozenset[str]:
    """The names for `ExplicitAutocast.leaves`; ``objects`` are the values of the inputs ``proxies``, in order."""
    return frozenset(
        proxy.name
        for proxy, value in zip(proxies, objects, strict=True)
        if isinstance(value, torch.Tensor) and value.is_leaf and not is_view(value)
    )


class _Writer:
    """Writes one trace, op by op."""

    def __init__(self, trace: Trace, leaves: frozenset[str], builder: Builder) -> None:
        self.trace = trace
        self.leaves = leaves
        self.builder = builder
        self.ambient = _plain(trace.context)
        self.ops: list[BoundSymbol] = []
        self.casts: dict[tuple[str, torch.dtype, bool], TensorProxy] = {}
        self.replaced: dict[str, TensorProxy] = {}

    def write(self, provenance: str) -> Trace:
        for bound in self.trace.symbols:
            self._visit(bound)
        return replace(self.trace.with_symbols(self.ops, provenance), context=self.ambient)

    def _visit(self, bound: BoundSymbol) -> None:
        if bound.symbol is CLEAR_CACHE:
            self.casts.clear()
            return
        context = bound.context or self.trace.context
        plain = replace(bound, context=self._shown(_plain(context)))
        if bodies_of(bound):
            self.ops.append(plain.map_arguments(self._body))
        elif not context.autocast or _computes_nothing(bound):
            self.ops.append(plain)
        else:
            self._write(bound, plain, context)

    def _write(self, bound: BoundSymbol, plain: BoundSymbol, context: Context) -> None:
        form = None if Tag.LOCAL in bound.symbol.tags else explicit_form(bound, context)
        if form == UNCHANGED:
            self.ops.append(plain)
        elif isinstance(form, Rewrite):
            self._cast_arguments(plain, form, context)
        elif isinstance(form, Trace):
            for op in self.builder.inline(form, plain):
                self._emit(op, context, {proxy.storage for proxy in tensor_outputs_of(bound)})
        else:
            self.ops.append(replace(bound, context=self._shown(context)))

    def _cast_arguments(self, plain: BoundSymbol, rewrite: Rewrite, context: Context) -> None:
        context = replace(context, autocast_cache=context.autocast_cache and rewrite.cached)

        def cast(leaf: Any) -> Any:
            dtype = rewrite.cast_dtype(leaf)
            return leaf if dtype is None else self._cast(plain, leaf, dtype, context)

        self.ops.append(rewrite.with_result_dtype(plain.map_arguments(cast)))

    def _cast(self, plain: BoundSymbol, proxy: TensorProxy, dtype: torch.dtype, context: Context) -> TensorProxy:
        result = TensorProxy(
            self.builder.name(f"{proxy.name}_{SHORT_DTYPES.get(dtype, 'cast')}"),
            proxy.shape,
            _strides_of_copy(proxy, dtype),
            dtype,
            proxy.device,
            proxy.requires_grad and context.grad_enabled and not context.inference,
            self.builder.new_storage(),
        )
        op = BoundSymbol(CAST, (proxy, dtype), {}, result, context=plain.context, location=plain.location)
        self._emit(op, context, set())
        return self.replaced.get(result.name, result)

    def _emit(self, op: BoundSymbol, context: Context, outer: set[int]) -> None:
        """Append an op, unless it repeats the cast of a leaf. ``outer``: storages of the replaced op's results."""
        if self.replaced:
            op = op.map_arguments(self._current)
        if not self._is_cached(op, context) or op.output.storage in outer:
            self.ops.append(op)
            return
        # a cast without autograd history cannot replace one with it
        recorded = context.grad_enabled and not context.inference
        key = (op.args[0].name, op.args[1], recorded)
        if key in self.casts:
            self.replaced[op.output.name] = self.casts[key]
        else:
            self.casts[key] = op.output
            self.ops.append(op)

    def _is_cached(self, op: BoundSymbol, context: Context) -> bool:
        """Whether PyTorch caches this cast."""
        if not op.is_cast() or not context.autocast_cache:
            return False
        proxy, dtype = op.args
        if proxy.name not in self.leaves or not proxy.requires_grad:
            return False
        return proxy.dtype is torch.float32 and (proxy.device.type, dtype) in context.autocast

    def _current(self, leaf: Any) -> Any:
        return self.replaced.get(leaf.name, leaf) if isinstance(leaf, TensorProxy) else leaf

    def _body(self, leaf: Any) -> Any:
        """A trace among the arguments of an op, transformed in its own context; other leaves unchanged."""
        if not isinstance(leaf, Trace):
            return leaf
        return _Writer(leaf, self.leaves, self.builder).write(leaf.provenance)

    def _shown(self, context: Context) -> Context | None:
        return None if context == self.ambient else context


def _strides_of_copy(proxy: TensorProxy, dtype: torch.dtype) -> tuple[Size, ...]:
    """The strides of ``proxy.to(dtype)``: those of a dense tensor stay."""
    if are_constant(proxy.sizes) and 0 not in proxy.shape and dense(proxy):
        return proxy.stride
    mode = ObservingFakeMode()
    with mode:
        copy = make_fake(mode, replace(proxy, requires_grad=False)).to(dtype)
    strides: tuple[Size, ...] = from_fake(copy.stride())
    return strides


def _plain(context: Context) -> Context:
    return replace(context, autocast=()) if context.autocast else context


def _computes_nothing(bound: BoundSymbol) -> bool:
    """Whether an op has effects but no results, so that no value depends on a cast."""
    return bound.effects.visible and not bound.effects.mutates and not tensor_outputs_of(bound)


def _mentions_autocast(trace: Trace) -> bool:
    contexts = [
        context for part in trace.programs() for context in (part.context, *[op.context for op in part.symbols])
    ]
    return any(context is not None and context.autocast for context in contexts)
