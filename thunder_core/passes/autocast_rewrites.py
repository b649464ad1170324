"""Determine, by calls on fake tensors, which explicit casts have the effect of autocast on an op."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import torch

from thunder_core.errors import LoweringError
from thunder_core.ir.bound_symbol import BoundSymbol, tensor_inputs_of, tensor_outputs_of
from thunder_core.ir.bounded_cache import BoundedCache
from thunder_core.ir.context import Context
from thunder_core.ir.keys import call_key, name_key, value_key
from thunder_core.ir.proxy import Proxy, TensorProxy
from thunder_core.ir.symbol import CallStyle, Tag
from thunder_core.ir.tree import iterate_leaves, map_leaves, tensors_in
from thunder_core.symbols.registry import registry
from thunder_core.tracing.fake_tensors import make_derived
from thunder_core.tracing.signal_handlers import lowering_error
from thunder_core.tracing.sizes import operators_for_sizes
from thunder_core.tracing.trace_call import refuse_objects
from thunder_core.tracing.tracer import Level, Tracer


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Explicit casts that make an op without autocast equivalent to the op under autocast.

    Attributes:
        device_type: the device type of the arguments to cast.
        argument_dtype: the dtype to which the eligible arguments are cast; None if they are not cast.
        result_dtype: the value of the op's option ``dtype``; None if it is not changed.
        cached: whether the casts may use autocast's cache. False if autocast casts views of the arguments: PyTorch does
            not cache casts of views.
    """

    device_type: str = ""
    argument_dtype: torch.dtype | None = None
    result_dtype: torch.dtype | None = None
    cached: bool = True

    def cast_dtype(self, leaf: Any) -> torch.dtype | None:
        """The dtype to which an argument is cast; None if it is not cast."""
        if self.argument_dtype is None or not _is_eligible(leaf, self.device_type):
            return None
        return None if leaf.dtype is self.argument_dtype else self.argument_dtype

    def with_result_dtype(self, bound: BoundSymbol) -> BoundSymbol:
        """The op with its option ``dtype`` set. Raises LoweringError for an op without that option."""
        if self.result_dtype is None:
            return bound
        kwargs = {**bound.kwargs, "dtype": self.result_dtype}
        symbol, args, kwargs = registry.resolve(bound.symbol.target, bound.args, kwargs)
        if symbol is not bound.symbol:
            raise LoweringError(f"{bound.symbol.name} takes no dtype")
        return replace(bound, args=args, kwargs=kwargs)


UNCHANGED = Rewrite()
_unchanged: Final = BoundedCache[bool](1024)
CAST: Final = registry.symbol_named("to", CallStyle.METHOD)


def _is_eligible(leaf: Any, device_type: str) -> bool:
    """Whether autocast for ``device_type`` can cast a value."""
    return (
        isinstance(leaf, TensorProxy)
        and leaf.device.type == device_type
        and leaf.dtype.is_floating_point
        and leaf.dtype is not torch.float64
    )


def candidate_rewrites(bound: BoundSymbol, context: Context, log: CallLog) -> Iterator[Rewrite]:
    """The rewrites that may have the effect of autocast on an op, the most likely first.

    Autocast casts to a dtype that occurs in the log of the call, or sets the option ``dtype`` to float32.
    """
    device_type = _active_autocast(bound, context)
    if device_type is None:
        yield UNCHANGED
        return
    dtypes = [op.args[1] for op in log.ops if op.is_cast()]
    rewrites = [Rewrite(device_type, dtype) for dtype in dict.fromkeys(dtypes)]
    rewrites = [rewrite for rewrite in rewrites if any(map(rewrite.cast_dtype, tensor_inputs_of(bound)))]
    has_dtype = any(isinstance(leaf, torch.dtype) for leaf in iterate_leaves((bound.args, bound.kwargs)))
    casts_itself = has_dtype or len(dtypes) == len(log.ops)
    yield from (UNCHANGED, *rewrites) if casts_itself else (*rewrites, UNCHANGED)
    if not has_dtype:
        yield Rewrite(device_type, result_dtype=torch.float32)


def _active_autocast(bound: BoundSymbol, context: Context) -> str | None:
    """The device type of the eligible arguments, if autocast is enabled for it; None unless there is exactly one."""
    proxies = tensor_inputs_of(bound)
    eligible = [kind for kind, _ in context.autocast if any(_is_eligible(proxy, kind) for proxy in proxies)]
    return eligible[0] if len(eligible) == 1 else None


@dataclass(frozen=True, slots=True)
class CallLog:
    """The ATen ops of one call.

    Attributes:
        ops: the ops, including the casts of a `Rewrite`.
        inputs: the tensors among the call's arguments in order, with new names and storages.
        outputs: the tensors that it returned, in order.
        cast_storages: the storages of the casts of a `Rewrite`.
        recording: names of values that require grad.
        differentiable: whether autograd computes the gradients of the call from ``ops``: it uses no detached tensor,
            and no op runs under another grad mode than the call.
    """

    ops: tuple[BoundSymbol, ...]
    inputs: tuple[Proxy, ...]
    outputs: tuple[TensorProxy, ...]
    cast_storages: frozenset[int]
    recording: frozenset[str]
    differentiable: bool


def log_call(bound: BoundSymbol, context: Context, rewrite: Rewrite = UNCHANGED) -> CallLog:
    """Log the ATen ops of the call on fake tensors, under ``context`` and without autocast's cache of weights.

    Raises:
        LoweringError: the op has effects or objects as arguments, or the call fails; with the reason.
    """
    if bound.effects.external or bound.effects.mutates:
        raise LoweringError("it has effects besides its result")
    refuse_objects(bound)
    try:
        return _LoggedCall(bound, context).run(rewrite)
    except LoweringError:
        raise
    except Exception as error:  # any failure on fake tensors or with other dtypes
        raise lowering_error(error, f"{type(error).__name__}: {error}") from error


class _AutogradObserver:
    """Observes whether the autograd history of a call follows from its ATen ops alone.

    Args:
        grad: whether autograd records the call.

    Attributes:
        differentiable: as in `CallLog`, for the ops so far.
        detached: the results of ``detach``, by id.
    """

    def __init__(self, grad: bool) -> None:
        self.grad = grad
        self.differentiable = True
        self.detached: dict[int, torch.Tensor] = {}

    def watch(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Observe one ATen op and its result."""
        if self.grad:
            self.differentiable &= torch.is_grad_enabled() and not self.any_detached((args, kwargs))
        if Tag.DETACH in registry.symbol_of(func).tags:
            self.detached[id(result)] = result

    def any_detached(self, values: Any) -> bool:
        """Whether any tensor among the values is a result of ``detach``."""
        return any(id(leaf) in self.detached for leaf in iterate_leaves(values))


class _LoggedCall:
    """One execution of an op on fake tensors, for `log_call`."""

    def __init__(self, bound: BoundSymbol, context: Context) -> None:
        self.bound = bound
        self.context = context
        self.autograd = _AutogradObserver(_records_gradients(bound, context))
        self.tracer = Tracer(Level.ATEN, watch=self.autograd.watch)
        self.fakes: dict[str, torch.Tensor] = {}
        self.cast_storages: set[int] = set()

    def run(self, rewrite: Rewrite) -> CallLog:
        for proxy in tensor_inputs_of(self.bound):
            if proxy.name not in self.fakes:
                self.fakes[proxy.name] = make_derived(self.tracer.mode, proxy)
            self.tracer.input(self.fakes[proxy.name], proxy)
        fork = torch.random.fork_rng(devices=[])
        with fork, self.tracer.recording(self.context), operators_for_sizes(self.bound):
            results = self._call(rewrite)
            outputs = tuple([self.tracer.proxy(tensor) for tensor in results])
        detached = self.autograd.grad and self.autograd.any_detached(results)
        return CallLog(
            tuple(self.tracer.ops),
            tuple(self.tracer.inputs),
            outputs,
            frozenset(self.cast_storages),
            self._recording(),
            self.autograd.differentiable and not detached,
        )

    def _recording(self) -> frozenset[str]:
        """Names of values that require grad: read from the tensors; derived for values that were overwritten."""
        known, names = self.tracer.computed(), set(self.tracer.requiring_grad())
        for op in self.tracer.ops:
            if any(proxy.name in names for proxy in tensor_inputs_of(op)):
                outputs = [proxy for proxy in tensor_outputs_of(op) if proxy.name not in known]
                names.update(proxy.name for proxy in outputs if proxy.can_require_grad)
        return frozenset(names)

    def _call(self, rewrite: Rewrite) -> list[torch.Tensor]:
        """The tensors that the rewritten op returns.

        Raises:
            LoweringError: their dtypes differ from the recorded ones.
        """

        def value(leaf: Any) -> Any:
            if not isinstance(leaf, TensorProxy):
                return leaf
            dtype = rewrite.cast_dtype(leaf)
            if dtype is None:
                return self.fakes[leaf.name]
            cast = self.fakes[leaf.name].to(dtype)
            self.cast_storages.add(self.tracer.proxy(cast).storage)
            return cast

        bound = rewrite.with_result_dtype(self.bound)
        result = bound.symbol.target(*map_leaves(value, bound.args), **map_leaves(value, bound.kwargs))
        results = tensors_in(result)
        if [tensor.dtype for tensor in results] != [proxy.dtype for proxy in tensor_outputs_of(bound)]:
            raise LoweringError("its result differs from the recorded one")
        return results


def _records_gradients(bound: BoundSymbol, context: Context) -> bool:
    """Whether autograd records an op."""
    if not context.grad_enabled or context.inference:
        return False
    return any(proxy.requires_grad for proxy in tensor_inputs_of(bound))


Numbers = dict[Hashable, int]


def same_operations(one: CallLog, other: CallLog) -> bool:
    """Whether two logs of a call compute the same values with the same ops, and equally many of them.

    The order of independent ops may differ, and so may the order of a cast and a view with all elements of a tensor.
    """
    numbers: Numbers = {}
    if len(one.ops) != len(other.ops) or one.differentiable != other.differentiable:
        return False
    return _Numbering(one, numbers).results() == _Numbering(other, numbers).results()


def is_same_without_autocast(bound: BoundSymbol, context: Context) -> bool:
    """Whether an op calls the same operators under ``context`` as without autocast; cached."""
    return _unchanged.get(call_key(bound, context), lambda: _is_unchanged(bound, context))


def _is_unchanged(bound: BoundSymbol, context: Context) -> bool:
    try:
        log, plain = log_call(bound, context), log_call(bound, replace(context, autocast=()))
    except LoweringError:
        return False
    return not acts_below(log) and same_operations(log, plain)


def acts_below(log: CallLog) -> bool:
    """Whether autocast may act on calls that an op of the log makes itself."""
    return any(Tag.DISPATCHES in op.symbol.tags for op in log.ops)


class _Numbering:
    """Assigns a number to each value of a log: equal expressions have equal numbers (value numbering).

    Args:
        numbers: the numbers of expressions; shared by the logs that are compared.

    Attributes:
        values: the numbers of values, by name.
        views: the ops that are rearrangements (`is_rearrangement`), by the name of their result.
        effects: the numbers of the ops with effects.
    """

    def __init__(self, log: CallLog, numbers: Numbers) -> None:
        self.log = log
        self.numbers = numbers
        self.values = {proxy.name: self._number(("input", proxy.name)) for proxy in log.inputs}
        self.views: dict[str, BoundSymbol] = {}
        self.effects: list[int] = []

    def results(self) -> tuple[list[int], list[int]]:
        """The numbers of the ops with effects, in order, and those of the outputs."""
        for op in self.log.ops:
            self._visit(op)
        return self.effects, [self.values[proxy.name] for proxy in self.log.outputs]

    def _visit(self, op: BoundSymbol) -> None:
        if op.is_cast():
            self.values[op.output.name] = self._cast(*op.args)
            return
        if is_rearrangement(op):
            (view,) = op.outputs()  # the output may be a list of one item, as for unbind
            self.views[view.name] = op
        key = self._key(op, self.values)
        for index, proxy in enumerate(op.outputs()):
            self.values[proxy.name] = self._number((key, index))
        if not op.effects.pure:
            self.effects.append(self._number(key))

    def _cast(self, proxy: TensorProxy, dtype: torch.dtype) -> int:
        """The number of ``proxy.to(dtype)``. A cast of a rearrangement has that of the rearranged cast."""
        view = self.views.get(proxy.name)
        if view is None:
            return self._number(("cast", self.values[proxy.name], dtype))
        (source,) = tensor_inputs_of(view)
        return self._number((self._key(view, {source.name: self._cast(source, dtype)}), 0))

    def _key(self, op: BoundSymbol, values: dict[str, int]) -> Hashable:
        """The expression of an op, where ``values`` has the numbers of its arguments."""

        def number(value: Any) -> Hashable:
            return values[value.name] if isinstance(value, TensorProxy) else name_key(value)

        kwargs = {name: value for name, value in op.kwargs.items() if not _is_implied(op, name, value)}
        arguments = value_key(op.args, number), value_key(kwargs, number)
        # The number of effects before the op: ops may only be reordered where no effect is between them.
        return op.symbol, arguments, len(self.effects)

    def _number(self, key: Hashable) -> int:
        return self.numbers.setdefault(key, len(self.numbers))


def is_rearrangement(op: BoundSymbol) -> bool:
    """Whether an op returns a view with all elements of its only tensor, each once."""
    sources, results = tensor_inputs_of(op), op.outputs()
    if len(sources) != 1 or len(results) != 1 or not op.effects.pure:
        return False
    (source,), (result,) = sources, results
    return (
        isinstance(result, TensorProxy)
        and result.storage == source.storage
        and result.dtype is source.dtype
        and result.numel == source.numel
    )


def _is_implied(op: BoundSymbol, name: str, value: Any) -> bool:
    """Whether an option has its default: a floating-point ``dtype`` that is the dtype of the first argument."""
    first = next(iter(op.inputs()), None)
    return name == "dtype" and isinstance(first, TensorProxy) and value is first.dtype and value.is_floating_point
