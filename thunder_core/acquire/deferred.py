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
from thunder_core.acquire.speculation import speculate, speculate_size
from thunder_core.acquire.traced_number import TracedNumber, as_argument, symbol_of, value_of
from thunder_core.acquire.value_request import Declined, Resolved, ValueRequest
from thunder_core.acquire.variable import Variable
from thunder_core.ir.proxy import NumberProxy
from thunder_core.ir.symbol import Symbol
from thunder_core.tracing.user_frames import user_location

_ITEM: Final[Any] = torch.Tensor.item
_LIST: Final[Any] = torch.Tensor.tolist
_INTS: Final = frozenset({torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8})
_LONGEST: Final = 32
"""How many ints of a list are sizes; those of a longer one are constants."""


class Deferred:
    """``item()`` of a tensor of one number is a line, and the program gets a `TracedNumber`; a size for an int."""

    def resolve(self, recorder: Recorder, request: ValueRequest) -> Resolved | Declined:
        """As `thunder_core.acquire.recorder.Resolver`."""
        if recorder.attempt.guesses is None or not recorder.attempt.guesses.numbers:
            return Declined("this recording keeps no numbers")
        if request.symbol.target is _LIST:
            return _list(recorder, request)
        if request.symbol.target is not _ITEM or not request.call.proxies:
            return Declined("it does not read one number")
        (proxy,) = request.call.proxies
        if math.prod(proxy.shape) != 1 or proxy.dtype is torch.bool or proxy.dtype.is_complex:
            return Declined("it is neither an int nor a float")
        kind = float if proxy.dtype.is_floating_point else int
        made = NumberProxy(recorder.trace.names.intermediate(), kind)
        recorder.trace.write(request.symbol, request.call.args, {}, made)
        size = _size(recorder, made) if kind is int else None
        if size is not None:
            return Resolved(size)
        return Resolved(number(recorder, made, request.symbol, tuple(request.call.variables)))


def _list(recorder: Recorder, request: ValueRequest) -> Resolved | Declined:
    """``tolist()`` of a few ints, each a size."""
    (proxy,) = request.call.proxies
    count = proxy.shape[0] if len(proxy.shape) == 1 else None
    if type(count) is not int or count > _LONGEST or proxy.dtype not in _INTS or not _defines(recorder):
        return Declined("it gives no short list of ints that may be sizes")
    made = [NumberProxy(recorder.trace.names.intermediate(), int) for _ in range(count)]
    position = len(recorder.trace.lines)
    recorder.trace.write(request.symbol, request.call.args, {}, made)
    try:
        return Resolved([speculate_size(recorder, number) for number in made])
    except NotEvaluated as reason:  # the first is not known, else all are
        del recorder.trace.lines[position:]
        return Declined(str(reason))


def _defines(recorder: Recorder) -> bool:
    """Whether lines may define sizes here."""
    return recorder.defined_sizes is not None and recorder.defined_sizes.allowed


def _size(recorder: Recorder, number: NumberProxy) -> Any:
    """An int as a size, which PyTorch takes for one; None where it is not known while the program is recorded."""
    if not _defines(recorder):
        return None
    try:
        return speculate_size(recorder, number)
    except NotEvaluated:
        return None


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
        return self._evaluated(number, lambda: speculate_size(self.recorder, number.proxy))

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
