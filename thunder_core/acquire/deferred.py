"""Numbers that the program reads from tensors: lines, whose results it may use in other lines."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch

from thunder_core.acquire.data_dependence import ValueNeeded, error
from thunder_core.acquire.prefix import NotEvaluated
from thunder_core.acquire.recorder import Recorder
from thunder_core.acquire.speculation import speculate
from thunder_core.acquire.traced_number import TracedNumber, as_argument, symbol_of, value_of
from thunder_core.acquire.value_request import Declined, Resolved, ValueRequest
from thunder_core.acquire.variable import Variable
from thunder_core.ir.proxy import NumberProxy
from thunder_core.ir.symbol import Symbol
from thunder_core.tracing.user_frames import user_location

_ITEM: Final[Any] = torch.Tensor.item


class Deferred:
    """``item()`` of a tensor of one number is a line, and the program gets a `TracedNumber`."""

    def resolve(self, recorder: Recorder, request: ValueRequest) -> Resolved | Declined:
        """As `thunder_core.acquire.recorder.Resolver`."""
        if recorder.attempt.guesses is None or not recorder.attempt.guesses.numbers:
            return Declined("this recording keeps no numbers")
        if request.symbol.target is not _ITEM or not request.call.proxies:
            return Declined("it does not read one number")
        (proxy,) = request.call.proxies
        if math.prod(proxy.shape) != 1 or proxy.dtype is torch.bool or proxy.dtype.is_complex:
            return Declined("it is neither an int nor a float")
        kind = float if proxy.dtype.is_floating_point else int
        made = NumberProxy(recorder.trace.names.intermediate(), kind)
        recorder.trace.write(request.symbol, request.call.args, {}, made)
        return Resolved(number(recorder, made, request.symbol, tuple(request.call.variables)))


def number(recorder: Recorder, proxy: NumberProxy, symbol: Symbol, variables: tuple[Variable, ...]) -> TracedNumber:
    """The number that a line computes, as the program gets it."""
    made = TracedNumber(_Numbers(recorder), proxy, symbol, variables)
    recorder.tensors.numbers.append(weakref.ref(made))
    return made


def tells(recorder: Recorder, original: Callable[..., bool], number: Any, /) -> bool:
    """The interception of a function of `math` that gives a bool, whose outcome is checked, not the number."""
    if type(number) is not TracedNumber:
        return original(number)
    answer: bool = value_of(number.numbers.computed(original, (number,), number))
    return answer


@dataclass(frozen=True, slots=True)
class _Numbers:
    """What a recorder knows of the numbers of a program: see `thunder_core.acquire.traced_number.Numbers`."""

    recorder: Recorder

    def value(self, number: TracedNumber) -> Any:
        return self._evaluated(number, lambda: speculate(self.recorder, "number", (number.proxy,)))

    def size(self, number: TracedNumber) -> Any:
        return self._evaluated(number, lambda: speculate(self.recorder, "number", (number.proxy,), as_size=True))

    def hint(self, number: TracedNumber) -> Any:
        return self._evaluated(number, lambda: self.recorder.prefix.call(self.recorder, _itself, (number.proxy,), {}))

    def computed(self, function: Callable[..., Any], operands: tuple[Any, ...], first: TracedNumber) -> TracedNumber:
        recorder = self.recorder
        args = tuple(map(as_argument, operands))
        kind = type(self._evaluated(first, lambda: recorder.prefix.call(recorder, function, args, {})))
        with recorder.suspension:
            made = NumberProxy(recorder.trace.names.intermediate(), kind)
            recorder.trace.write(symbol_of(function), args, {}, made)
            return number(recorder, made, first.symbol, first.variables)

    def _evaluated(self, number: TracedNumber, evaluate: Callable[[], Any]) -> Any:
        if self.recorder.attempt.guesses is None:
            raise _refusal(number)
        with self.recorder.suspension:
            try:
                return evaluate()
            except NotEvaluated as reason:
                raise _refusal(number) from reason


def _itself(value: Any) -> Any:
    return value


def _refusal(number: TracedNumber) -> Exception:
    return error(number.symbol, number.variables, user_location(), ValueNeeded(number.symbol.name))
