"""Numbers that the program reads from tensors: results of ops, which it may use in other ops."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import torch

from thunder_core.ir.effects import Effects
from thunder_core.ir.number_functions import is_close
from thunder_core.ir.proxy import NumberProxy
from thunder_core.symbols.checks import CHECK_TRUE
from thunder_core.tracing.frames import calls_program, user_location
from thunder_frontend.record.arguments import CallArguments
from thunder_frontend.record.data_dependence import Declined, Resolved, ValueNeeded, ValueRequest, error
from thunder_frontend.record.prefix import NotEvaluated
from thunder_frontend.record.recorder import Recorder
from thunder_frontend.record.speculation import NO_VALUES, speculate, speculate_size
from thunder_frontend.record.traced_number import Numbers, TracedNumber, are_numbers, as_argument, value_of

_ITEM: Final[Any] = torch.Tensor.item
_LIST: Final[Any] = torch.Tensor.tolist
_INTS: Final = frozenset({torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8})
_LONGEST: Final = 32
"""The maximum length of a list of ints that become sizes; those of a longer list are constants."""


class Deferred:
    """Resolver that records ``item()`` of one number as an op; the program gets a `TracedNumber`, or a size."""

    def resolve(self, recorder: Recorder, request: ValueRequest) -> Resolved | Declined:
        """As `thunder_frontend.record.data_dependence.Resolver`."""
        if recorder.attempt.guesses is None or not recorder.attempt.guesses.numbers:
            return Declined("numbers are constants in this recording")
        if request.symbol.target is _LIST:
            return _list(recorder, request)
        if request.symbol.target is not _ITEM or not request.call.proxies:
            return Declined("it does not read one number")
        (proxy,) = request.call.proxies
        if math.prod(proxy.shape) != 1 or proxy.dtype is torch.bool or proxy.dtype.is_complex:
            return Declined("it is neither an int nor a float")
        kind = float if proxy.dtype.is_floating_point else int
        result = recorder.trace.write_number(request.symbol, request.call.args, kind)
        if kind is int and recorder.definable_sizes is not None:
            with suppress(NotEvaluated):  # the size is not available while the program is recorded
                return Resolved(speculate_size(recorder, result))
        return Resolved(TensorNumbers(recorder).traced(result, request.symbol, tuple(request.call.variables)))


def _list(recorder: Recorder, request: ValueRequest) -> Resolved | Declined:
    """``tolist()`` of a few ints, each a size."""
    (proxy,) = request.call.proxies
    count = proxy.shape[0] if len(proxy.shape) == 1 else None
    if type(count) is not int or count > _LONGEST or proxy.dtype not in _INTS or recorder.definable_sizes is None:
        return Declined("it does not return a short list of ints that may be sizes")
    results = [NumberProxy(recorder.trace.names.intermediate(), int) for _ in range(count)]
    position = len(recorder.trace.ops)
    recorder.trace.write(request.symbol, request.call.args, {}, results)
    try:
        return Resolved([speculate_size(recorder, number) for number in results])
    except NotEvaluated as reason:  # raised for the first int or for none
        del recorder.trace.ops[position:]
        return Declined(str(reason))


@calls_program
def predicate(recorder: Recorder, original: Callable[..., bool], number: Any, /) -> bool:
    """The interception of a predicate of `math`: each run checks the bool that it returns, not the number."""
    if type(number) is not TracedNumber:
        return original(number)
    return number.numbers.decided(original, (number,), number)


@dataclass(frozen=True)
class TensorNumbers(Numbers):
    """Numbers that the program reads from tensors, and what is computed from them."""

    recorder: Recorder

    def value(self, number: TracedNumber) -> Any:
        return self._evaluated(number, lambda: speculate(self.recorder, "number", (number.proxy,)))

    def size(self, number: TracedNumber) -> Any:
        return self._evaluated(number, lambda: speculate_size(self.recorder, number.proxy))

    def hint(self, number: TracedNumber) -> Any:
        return self._evaluated(number, lambda: self.recorder.prefix.call(_itself, (number.proxy,), {}))

    def computed(self, function: Callable[..., Any], operands: tuple[Any, ...], first: TracedNumber) -> TracedNumber:
        args = tuple(map(as_argument, operands))
        kind = type(self._evaluated(first, lambda: self.recorder.prefix.call(function, args, {})))
        return self.traced(self.write(function, operands, kind), first.symbol, first.variables)

    def integer(self, function: Callable[..., int], operands: tuple[Any, ...], first: TracedNumber) -> Any:
        number = self.write(function, operands, int)
        return self._evaluated(first, lambda: speculate_size(self.recorder, number))

    def decided(self, function: Callable[..., Any], operands: tuple[Any, ...], first: TracedNumber) -> bool:
        number = self.computed(function, operands, first)
        if number.proxy.python_type is not bool:  # one of NumPy's
            number = self.computed(operator.truth, (number,), first)
        return bool(value_of(number))

    def _evaluated(self, number: TracedNumber, evaluate: Callable[[], Any]) -> Any:
        if self.recorder.attempt.guesses is None:
            raise _refusal(number, NO_VALUES)
        with self.recorder.suspension:
            try:
                return evaluate()
            except NotEvaluated as reason:
                raise _refusal(number, str(reason)) from reason


def _itself(value: Any) -> Any:
    return value


def _refusal(number: TracedNumber, reason: str) -> Exception:
    return error(number.symbol, number.variables, user_location(), ValueNeeded(number.symbol.name), reasons=(reason,))


@calls_program
def close(
    recorder: Recorder, original: Callable[..., bool], a: Any, b: Any, *, rel_tol: Any = 1e-9, abs_tol: Any = 0.0
) -> bool:
    """The interception of `math.isclose`, as `predicate`."""
    operands = a, b, rel_tol, abs_tol
    first = next((item for item in operands if type(item) is TracedNumber), None)
    if first is None or not are_numbers(operands):
        return original(a, b, rel_tol=rel_tol, abs_tol=abs_tol)
    return first.numbers.decided(is_close, operands, first)


def _is_unknown(recorder: Recorder, value: Any) -> bool:
    """Whether a value is a tensor, or a number from one, that depends on an input or on random numbers."""
    if type(value) is TracedNumber:
        return True
    return type(value) is torch.Tensor and not recorder.tensors.is_constant(recorder.tensors.variable(value))


def assert_true(recorder: Recorder, original: Callable[..., None], condition: Any, message: Any) -> None:
    """The interception of `torch._assert`: a data-dependent condition is checked in each run."""
    if not _is_unknown(recorder, condition):
        original(condition, message)
        return
    with recorder.suspension:
        if type(condition) is TracedNumber:
            args = condition.proxy, *CallArguments(recorder.inputs, (message,), {}).args
        else:
            args = CallArguments(recorder.inputs, (condition, message), {}).args
        recorder.trace.write(CHECK_TRUE, args, {}, effects=Effects(external=True))
