"""Python floats that vary between calls: numbers of the trace, which the prologue reads.

The program computes with them, stores and returns them, and hands them to elementwise functions of PyTorch. What needs
the number itself, a comparison included, ends the recording: the next one takes the float as a constant.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Final, Protocol

from thunder_core.acquire.traced_number import TracedNumber, as_argument, symbol_of
from thunder_core.errors import EndsRecording
from thunder_core.guards.source import Source
from thunder_core.ir.location import SourceLocation
from thunder_core.ir.proxy import NumberProxy
from thunder_core.ir.size import from_fake, hint_of
from thunder_core.ir.symbol import Symbol
from thunder_core.tracing.user_frames import user_location

_READ: Final = Symbol("number", float)
_UNNAMED: Final = NumberProxy("", float)


class ConstantNeeded(EndsRecording):
    """The program needs floats themselves.

    Attributes:
        needed: their paths, each with the line that needs it.
    """

    def __init__(self, needed: dict[Source, SourceLocation | None]) -> None:
        super().__init__()
        self.needed = needed


class RecordsNumbers(Protocol):
    """What this needs of a recorder."""

    trace: Any
    inputs: Any
    tensors: Any
    suspension: Any


class InputNumbers:
    """The floats of one recording; the `thunder_core.acquire.traced_number.Numbers` of what is computed with them."""

    def __init__(self) -> None:
        self._recorder: RecordsNumbers | None = None
        self._waiting: list[tuple[TracedNumber, Source, float]] = []
        self._hints: dict[str, Any] = {}
        self._origins: dict[str, frozenset[Source]] = {}

    def new(self, value: float, source: Source) -> TracedNumber:
        """What the program gets for the float at a path."""
        number = TracedNumber(self, _UNNAMED, _READ, ())
        self._waiting.append((number, source, value))
        return number

    def bind(self, recorder: RecordsNumbers) -> None:
        """Make them inputs of the trace that a recorder writes."""
        self._recorder = recorder
        for number, source, value in self._waiting:
            number.proxy = recorder.inputs.number(value, source)
            self._note(number, value, frozenset({source}))
        self._waiting.clear()

    def constants(self, location: SourceLocation | None) -> ConstantNeeded:
        """The error that makes constants of all of them."""
        return ConstantNeeded({source: location for sources in self._origins.values() for source in sources})

    @property
    def any(self) -> bool:
        """Whether there are floats."""
        return bool(self._origins)

    def value(self, number: TracedNumber) -> Any:
        """As `thunder_core.acquire.traced_number.Numbers`. Raises ConstantNeeded."""
        location = user_location()
        raise ConstantNeeded(dict.fromkeys(self._origins[number.proxy.name], location))

    size = value

    def hint(self, number: TracedNumber) -> Any:
        """As `thunder_core.acquire.traced_number.Numbers`."""
        return self._hints[number.proxy.name]

    def computed(self, function: Callable[..., Any], operands: tuple[Any, ...], first: TracedNumber) -> TracedNumber:
        """As `thunder_core.acquire.traced_number.Numbers`."""
        recorder = self._recorder
        assert recorder is not None
        numbers = [item for item in operands if type(item) is TracedNumber]
        read = next((item for item in numbers if item.numbers is not self), None)
        if read is not None:  # from a tensor: what comes of both is known as that is
            return read.numbers.computed(function, operands, read)
        args = tuple(map(as_argument, operands))
        result = function(
            *[self.hint(item) if type(item) is TracedNumber else hint_of(from_fake(item)) for item in operands]
        )
        with recorder.suspension:
            proxy = NumberProxy(recorder.trace.names.intermediate(), type(result))
            recorder.trace.write(symbol_of(function), args, {}, proxy)
            made = TracedNumber(self, proxy, first.symbol, ())
        self._note(made, result, frozenset().union(*[self._origins[item.proxy.name] for item in numbers]))
        return made

    def _note(self, number: TracedNumber, value: Any, origins: frozenset[Source]) -> None:
        assert self._recorder is not None
        self._hints[number.proxy.name], self._origins[number.proxy.name] = value, origins
        self._recorder.tensors.numbers.append(weakref.ref(number))
