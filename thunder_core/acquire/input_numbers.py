"""Python floats that vary between calls: numbers of the trace, which the prologue reads.

The program computes with them, stores and returns them, and hands them to elementwise functions of PyTorch. What needs
the number itself, a comparison included, ends the recording: the next one takes the float as a constant.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any, Final, Protocol

import torch

from thunder_core.acquire.traced_number import TracedNumber, as_argument, hint_of, symbol_of
from thunder_core.errors import EndsRecording, SizeVariesError
from thunder_core.guards.source import Source
from thunder_core.ir.location import SourceLocation
from thunder_core.ir.proxy import NumberProxy
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
        self._thread = threading.get_ident()
        self._waiting: list[tuple[TracedNumber, Source, float]] = []
        self._hints: dict[str, Any] = {}
        self._origins: dict[str, frozenset[Source]] = {}
        self._sizes: dict[str, list[torch.SymInt]] = {}

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

    def constants(self, location: SourceLocation | None) -> ConstantNeeded | SizeVariesError:
        """The error that makes constants of all of them, and of the sizes that they come from."""
        needed = {source: location for sources in self._origins.values() for source in sources}
        if needed:
            return ConstantNeeded(needed)
        return SizeVariesError(
            "the function asks for classes, of which a number of sizes has another", location=location
        )

    @property
    def any(self) -> bool:
        """Whether there are floats."""
        return bool(self._origins)

    def value(self, number: TracedNumber) -> Any:
        """As `thunder_core.acquire.traced_number.Numbers`. Raises ConstantNeeded."""
        if self._in_other_thread:
            return self.hint(number)
        for size in self._sizes.get(number.proxy.name, ()):
            int(size)  # a constant from now on
        origins = self._origins[number.proxy.name]
        if origins:
            raise ConstantNeeded(dict.fromkeys(origins, user_location()))
        return self.hint(number)

    size = value

    def hint(self, number: TracedNumber) -> Any:
        """As `thunder_core.acquire.traced_number.Numbers`."""
        early = [value for waiting, _, value in self._waiting if waiting is number]  # another thread reads it
        return early[0] if early else self._hints[number.proxy.name]

    def computed(
        self, function: Callable[..., Any], operands: tuple[Any, ...], first: TracedNumber | None = None
    ) -> Any:
        """As `thunder_core.acquire.traced_number.Numbers`."""
        if self._in_other_thread:
            return function(*map(hint_of, operands))
        recorder = self._recorder
        assert recorder is not None
        read = next((item for item in operands if type(item) is TracedNumber and item.numbers is not self), None)
        if read is not None:  # from a tensor: what comes of both is known as that is
            return read.numbers.computed(function, operands, read)
        result = function(*map(hint_of, operands))
        with recorder.suspension:
            proxy = NumberProxy(recorder.trace.names.intermediate(), type(result))
            recorder.trace.write(symbol_of(function), tuple(map(as_argument, operands)), {}, proxy)
            made = TracedNumber(self, proxy, _READ, ())
        numbers = [item.proxy.name for item in operands if type(item) is TracedNumber]
        sizes = [item for item in operands if isinstance(item, torch.SymInt)]
        self._note(made, result, frozenset().union(*[self._origins[name] for name in numbers]))
        self._sizes[proxy.name] = [*sizes, *[size for name in numbers for size in self._sizes.get(name, ())]]
        return made

    @property
    def _in_other_thread(self) -> bool:
        """Whether a thread that does not record read a number where the program reads it, too: it gets a plain one."""
        return threading.get_ident() != self._thread

    def _note(self, number: TracedNumber, value: Any, origins: frozenset[Source]) -> None:
        assert self._recorder is not None
        self._hints[number.proxy.name], self._origins[number.proxy.name] = value, origins
        self._recorder.tensors.numbers.append(weakref.ref(number))
