"""What autocast does to a call, seen on fake tensors, and the casts that do the same."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import torch

from thunder_core.errors import LoweringError
from thunder_core.ir.bound_symbol import BoundSymbol, tensor_inputs_of, tensor_outputs_of
from thunder_core.ir.context import Context
from thunder_core.ir.keys import name_key, value_key
from thunder_core.ir.proxy import Proxy, TensorProxy
from thunder_core.ir.symbol import Autocast, CallStyle
from thunder_core.ir.tree import iterate_leaves, map_leaves
from thunder_core.symbols.autocast import has_result_dtype
from thunder_core.symbols.registry import registry
from thunder_core.tracing.fake_tensors import make_derived
from thunder_core.tracing.sizes import operators_for_sizes
from thunder_core.tracing.trace_call import refuse_objects
from thunder_core.tracing.tracer import Level, Tracer


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A line without autocast that does what the line does under autocast.

    Attributes:
        device_type: of the arguments that are converted.
        argument_dtype: the arguments that autocast looks at are converted to it; None leaves them.
        result_dtype: the value of the call's option ``dtype``; None leaves it.
        cached: False where autocast converts views of the arguments: PyTorch keeps no conversions of views.
    """

    device_type: str = ""
    argument_dtype: torch.dtype | None = None
    result_dtype: torch.dtype | None = None
    cached: bool = True

    def conversion(self, leaf: Any) -> torch.dtype | None:
        """What an argument is converted to; None when it stays."""
        if self.argument_dtype is None or not is_eligible(leaf, self.device_type):
            return None
        return None if leaf.dtype is self.argument_dtype else self.argument_dtype

    def with_result_dtype(self, bound: BoundSymbol) -> BoundSymbol:
        """The line with its option. Raises LoweringError for a call that has no place for it."""
        if self.result_dtype is None:
            return bound
        kwargs = {**bound.kwargs, "dtype": self.result_dtype}
        symbol, args, kwargs = registry.resolve(bound.symbol.target, bound.args, kwargs)
        if symbol is not bound.symbol:
            raise LoweringError(f"{bound.symbol.name} takes no dtype")
        return replace(bound, args=args, kwargs=kwargs)


UNCHANGED = Rewrite()
CAST: Final = registry.symbol_named("to", CallStyle.METHOD)


def is_eligible(leaf: Any, device_type: str) -> bool:
    """Whether autocast for ``device_type`` converts a value at all."""
    return (
        isinstance(leaf, TensorProxy)
        and leaf.device.type == device_type
        and leaf.dtype.is_floating_point
        and leaf.dtype is not torch.float64
    )


def rewrite_by_class(bound: BoundSymbol, context: Context) -> Rewrite | None:
    """What the autocast class of a symbol says; None without a class, or for calls that autocast refuses."""
    found = _device(bound, context)
    if found is None:
        return None
    device_type, dtype = found
    match bound.symbol.autocast.get(device_type):
        case Autocast.LOWER_PRECISION:
            return _simplified(bound, Rewrite(device_type, dtype))
        case Autocast.FLOAT32 if has_result_dtype(bound.symbol.name, device_type):
            return _with_float32_result(bound, device_type)
        case Autocast.FLOAT32:
            return _simplified(bound, Rewrite(device_type, torch.float32))
        case Autocast.PROMOTE:
            return _promoting(bound, device_type, dtype)
    return None


def candidate_rewrites(bound: BoundSymbol, context: Context) -> Iterator[Rewrite]:
    """Rewrites that may be right, the likely ones first; each once."""
    seen: set[Rewrite] = set()
    for rewrite in _candidates(bound, context):
        if rewrite is not None and rewrite not in seen:
            seen.add(rewrite)
            yield rewrite


def _candidates(bound: BoundSymbol, context: Context) -> Iterator[Rewrite | None]:
    yield rewrite_by_class(bound, context)
    yield UNCHANGED
    found = _device(bound, context)
    if found is not None:
        device_type, dtype = found
        yield _simplified(bound, Rewrite(device_type, dtype))
        yield _simplified(bound, Rewrite(device_type, torch.float32))


def _device(bound: BoundSymbol, context: Context) -> tuple[str, torch.dtype] | None:
    """The kind of device, with its autocast dtype, that all eligible arguments are on."""
    proxies = tensor_inputs_of(bound)
    found = [pair for pair in context.autocast if any(is_eligible(proxy, pair[0]) for proxy in proxies)]
    return found[0] if len(found) == 1 else None


def _simplified(bound: BoundSymbol, rewrite: Rewrite) -> Rewrite:
    """`UNCHANGED` in place of a rewrite that converts nothing."""
    return rewrite if any(map(rewrite.conversion, tensor_inputs_of(bound))) else UNCHANGED


def _with_float32_result(bound: BoundSymbol, device_type: str) -> Rewrite:
    first = next(iter(tensor_inputs_of(bound)))
    given = any(isinstance(leaf, torch.dtype) for leaf in iterate_leaves((bound.args, bound.kwargs)))
    if given or not is_eligible(first, device_type) or first.dtype is torch.float32:
        return UNCHANGED
    return Rewrite(device_type, result_dtype=torch.float32)


def _promoting(bound: BoundSymbol, device_type: str, dtype: torch.dtype) -> Rewrite:
    dtypes = {proxy.dtype for proxy in tensor_inputs_of(bound) if is_eligible(proxy, device_type)}
    return _simplified(bound, Rewrite(device_type, torch.float32 if torch.float32 in dtypes else dtype))


@dataclass(frozen=True, slots=True)
class CallLog:
    """The ATen operations of one call.

    Attributes:
        lines: the operations; conversions by a `Rewrite` are among them.
        inputs: the tensors among the call's arguments in order, under other names and in new storages.
        outputs: the tensors that it returned, in order.
        converted: memories of arguments that were converted for the call.
        recording: names of values that require grad.
        differentiable: autograd, recording the operations one by one, gives the gradients of the call: nothing was
            detached, and no operation ran under another grad mode than the call.
    """

    lines: tuple[BoundSymbol, ...]
    inputs: tuple[Proxy, ...]
    outputs: tuple[TensorProxy, ...]
    converted: frozenset[int]
    recording: frozenset[str]
    differentiable: bool


def log_call(bound: BoundSymbol, context: Context, rewrite: Rewrite = UNCHANGED) -> CallLog:
    """Make the call on fake tensors, under ``context`` and without autocast's cache of weights.

    Raises:
        LoweringError: that is not possible, with the reason.
    """
    if bound.effects.external or bound.effects.mutates:
        raise LoweringError("it does more than to compute")
    refuse_objects(bound)
    try:
        return _Logging(bound, context).run(rewrite)
    except LoweringError:
        raise
    except Exception as error:  # whatever the call cannot do with fake tensors, or with other dtypes
        raise LoweringError(f"{type(error).__name__}: {error}") from error


class _Autograd:
    """Watches whether the operators alone tell autograd what the call tells it."""

    def __init__(self, grad: bool) -> None:
        self.grad = grad
        self.differentiable = True
        self.detached: dict[int, torch.Tensor] = {}

    def watch(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        if self.grad:
            self.differentiable &= torch.is_grad_enabled() and not self.are_detached((args, kwargs))
        if func is torch.ops.aten.detach.default:
            self.detached[id(result)] = result

    def are_detached(self, values: Any) -> bool:
        """Whether a tensor among the values was detached."""
        return any(id(leaf) in self.detached for leaf in iterate_leaves(values))


class _Logging:
    """One run."""

    def __init__(self, bound: BoundSymbol, context: Context) -> None:
        self.bound = bound
        self.context = context
        self.autograd = _Autograd(_records_gradients(bound, context))
        self.tracer = Tracer(Level.ATEN, watch=self.autograd.watch)
        self.fakes: dict[str, torch.Tensor] = {}
        self.converted: set[int] = set()

    def run(self, rewrite: Rewrite) -> CallLog:
        for proxy in tensor_inputs_of(self.bound):
            if proxy.name not in self.fakes:
                self.fakes[proxy.name] = make_derived(self.tracer.mode, proxy)
            self.tracer.input(self.fakes[proxy.name], proxy)
        fork = torch.random.fork_rng(devices=[])
        with fork, self.tracer.recording(self.context), operators_for_sizes(self.bound):
            results = self._call(rewrite)
            outputs = tuple([self.tracer.proxy(tensor) for tensor in results])
        detached = self.autograd.grad and self.autograd.are_detached(results)
        return CallLog(
            tuple(self.tracer.ops),
            tuple(self.tracer.inputs),
            outputs,
            frozenset(self.converted),
            self._recording(),
            self.autograd.differentiable and not detached,
        )

    def _recording(self) -> frozenset[str]:
        """Names of values that require grad: tensors know it; what one was before it was written follows from that."""
        known, names = self.tracer.computed(), set(self.tracer.requiring_grad())
        for line in self.tracer.ops:
            if any(proxy.name in names for proxy in tensor_inputs_of(line)):
                outputs = [proxy for proxy in tensor_outputs_of(line) if proxy.name not in known]
                names.update(p.name for p in outputs if p.dtype.is_floating_point or p.dtype.is_complex)
        return frozenset(names)

    def _call(self, rewrite: Rewrite) -> list[torch.Tensor]:
        def value(leaf: Any) -> Any:
            if not isinstance(leaf, TensorProxy):
                return leaf
            dtype = rewrite.conversion(leaf)
            if dtype is None:
                return self.fakes[leaf.name]
            converted = self.fakes[leaf.name].to(dtype)
            self.converted.add(self.tracer.proxy(converted).storage)
            return converted

        bound = rewrite.with_result_dtype(self.bound)
        result = bound.symbol.target(*map_leaves(value, bound.args), **map_leaves(value, bound.kwargs))
        results = [leaf for leaf in iterate_leaves(result) if isinstance(leaf, torch.Tensor)]
        if [tensor.dtype for tensor in results] != [proxy.dtype for proxy in tensor_outputs_of(bound)]:
            raise LoweringError("it returns something else than when it was recorded")
        return results


def _records_gradients(bound: BoundSymbol, context: Context) -> bool:
    if not context.grad_enabled or context.inference:
        return False
    return any(proxy.requires_grad for proxy in tensor_inputs_of(bound))


Numbers = dict[Hashable, int]


def same_operations(one: CallLog, other: CallLog) -> bool:
    """Whether two logs of a call compute the same values by as many and the same operations.

    Their order does not count where results do not depend on it; nor does it count whether a value is converted before
    or after a view of all its elements.
    """
    numbers: Numbers = {}
    if len(one.lines) != len(other.lines) or one.differentiable != other.differentiable:
        return False
    return _Numbering(one, numbers).meaning() == _Numbering(other, numbers).meaning()


class _Numbering:
    """Numbers the values of a log; equal expressions of two logs that share ``numbers`` have equal numbers."""

    def __init__(self, log: CallLog, numbers: Numbers) -> None:
        self.log = log
        self.numbers = numbers
        self.values = {proxy.name: self._number(("input", proxy.name)) for proxy in log.inputs}
        self.views: dict[str, BoundSymbol] = {}
        self.effects: list[int] = []

    def meaning(self) -> tuple[list[int], list[int]]:
        """The operations with effects, in order, and the outputs."""
        for line in self.log.lines:
            self._visit(line)
        return self.effects, [self.values[proxy.name] for proxy in self.log.outputs]

    def _visit(self, line: BoundSymbol) -> None:
        if line.is_cast():
            self.values[line.output.name] = self._converted(*line.args)
            return
        if is_rearrangement(line):
            (view,) = line.outputs()  # the output may be a list of one, as that of unbind
            self.views[view.name] = line
        key = self._key(line, self.values)
        for index, proxy in enumerate(line.outputs()):
            self.values[proxy.name] = self._number((key, index))
        if not line.effects.pure:
            self.effects.append(self._number(key))

    def _converted(self, proxy: TensorProxy, dtype: torch.dtype) -> int:
        view = self.views.get(proxy.name)
        if view is None:
            return self._number(("conversion", self.values[proxy.name], dtype))
        (source,) = tensor_inputs_of(view)
        return self._number((self._key(view, {source.name: self._converted(source, dtype)}), 0))

    def _key(self, line: BoundSymbol, values: dict[str, int]) -> Hashable:
        def number(value: Any) -> Hashable:
            return values[value.name] if isinstance(value, TensorProxy) else name_key(value)

        kwargs = {name: value for name, value in line.kwargs.items() if not _is_implied(line, name, value)}
        arguments = value_key(line.args, number), value_key(kwargs, number)
        # between two effects nothing is written: only there is the order of no account
        return line.symbol, arguments, len(self.effects)

    def _number(self, key: Hashable) -> int:
        return self.numbers.setdefault(key, len(self.numbers))


def is_rearrangement(line: BoundSymbol) -> bool:
    """Whether a line gives a view of all elements of its only tensor, each once."""
    sources, results = tensor_inputs_of(line), line.outputs()
    if len(sources) != 1 or len(results) != 1 or not line.effects.pure:
        return False
    (source,), (result,) = sources, results
    return (
        isinstance(result, TensorProxy)
        and result.storage == source.storage
        and result.dtype is source.dtype
        and result.numel == source.numel
    )


def _is_implied(line: BoundSymbol, name: str, value: Any) -> bool:
    """Whether an option is what a call has without it: a floating-point result has its argument's dtype."""
    first = next(iter(line.inputs()), None)
    return name == "dtype" and isinstance(first, TensorProxy) and value is first.dtype and value.is_floating_point
