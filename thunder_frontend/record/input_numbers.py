"""Python floats that vary between calls, as numbers of the trace."""

from __future__ import annotations

import operator
import re
import threading
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any, Final

import torch

from thunder_core.checks.sizes import NUMBER, NumberFacts
from thunder_core.checks.source import Source
from thunder_core.errors import SizeVariesError
from thunder_core.ir.location import SourceLocation
from thunder_core.ir.number_functions import text_of_call, text_of_number
from thunder_core.ir.proxy import NumberProxy
from thunder_core.ir.size import SizeExpr, from_fake
from thunder_core.ir.symbol import Symbol
from thunder_core.tracing.frames import user_location
from thunder_core.tracing.sizes import SizeFact
from thunder_frontend.record.attempt import RecordAgain
from thunder_frontend.record.deferred import TensorNumbers
from thunder_frontend.record.recorder import Recorder
from thunder_frontend.record.traced_number import Numbers, TracedNumber, numpy_result, operand_hint, value_of
from thunder_frontend.record.traced_size import TracedSize, untraced

_READ: Final = Symbol("number", float)
_UNNAMED: Final = NumberProxy("", float)
_LONGEST_CONDITION: Final = 1000
"""The maximum number of characters of a guard on floats; the values of longer ones are constants."""


class InputNumbers(Numbers):
    """The floats of one recording, and the numbers that are computed from them and from sizes."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._waiting: list[tuple[TracedNumber, Source, float]] = []
        self._hints: dict[str, Any] = {}
        self._origins: dict[str, frozenset[Source]] = {}
        self._sizes: dict[str, list[torch.SymInt]] = {}
        self._texts: dict[str, str] = {}
        self._sources: dict[str, Source] = {}
        self._facts: list[SizeFact] = []
        self._computed: dict[str, str] = {}

    def new(self, value: float, source: Source) -> TracedNumber:
        """The `TracedNumber` that the program gets for the float at a path."""
        number = TracedNumber(self, _UNNAMED, _READ, ())
        self._waiting.append((number, source, value))
        return number

    def bind(self, recorder: Recorder) -> None:
        """Make the floats inputs of the trace that ``recorder`` writes."""
        self.recorder = recorder
        for number, source, value in self._waiting:
            number.proxy = recorder.inputs.number(value, source)
            self._note(number, value, frozenset({source}), number.proxy.name)
            self._sources[number.proxy.name] = source
        self._waiting.clear()

    def facts(self) -> NumberFacts:
        """The conditions of the program on the floats."""
        text = " ".join([*[fact.condition for fact in self._facts], *self._computed.values()])
        floats = {name: source for name, source in self._sources.items() if re.search(rf"\b{name}\b", text)}
        return NumberFacts(tuple(self._facts), floats, self._computed)

    def constants(self, location: SourceLocation | None) -> RecordAgain | SizeVariesError:
        """The error after which all floats, and the sizes that they are computed from, are recorded as constants."""
        origins = dict.fromkeys(source for sources in self._origins.values() for source in sources)
        if origins:
            return self._as_constants(origins, location)
        return SizeVariesError(
            "the function reads the class of a number that is computed from sizes", location=location
        )

    def _as_constants(self, floats: Iterable[Source], location: SourceLocation | None) -> RecordAgain:
        """The error after which the floats at these paths are constants, as the user's line needs their values."""
        attempt = self.recorder.attempt
        assert attempt.varying is not None
        paths = [source.describe() for source in floats]
        return RecordAgain(
            "the program needs the values of floats that should vary",
            varying=attempt.varying.without([(path, NUMBER) for path in paths]),
            constant_floats={**dict.fromkeys(paths, location), **attempt.constant_floats},
        )

    @property
    def any(self) -> bool:
        """Whether there are floats."""
        return bool(self._origins)

    def value(self, number: TracedNumber) -> Any:
        """As `Numbers`. Raises RecordAgain for a number that is computed from floats."""
        if self._in_other_thread:
            return self.hint(number)
        for size in self._sizes.get(number.proxy.name, ()):
            int(size)  # a constant from now on
        origins = self._origins[number.proxy.name]
        if origins:
            raise self._as_constants(origins, user_location())
        return self.hint(number)

    size = value

    def hint(self, number: TracedNumber) -> Any:
        """As `Numbers`."""
        early = [value for waiting, _, value in self._waiting if waiting is number]  # another thread reads it
        return early[0] if early else self._hints[number.proxy.name]

    def computed(
        self, function: Callable[..., Any], operands: tuple[Any, ...], first: TracedNumber | None = None
    ) -> Any:
        """As `Numbers`."""
        if self._in_other_thread:
            return function(*map(operand_hint, operands))
        read = self._read(operands)
        if read is not None:
            return read.numbers.computed(function, operands, read)
        result = function(*map(operand_hint, operands))
        number = self.traced(self.write(function, operands, type(result)), _READ)
        numbers = [item.proxy.name for item in operands if type(item) is TracedNumber]
        sizes = [item for item in operands if isinstance(item, torch.SymInt)]
        text = self._text(function, operands)
        self._note(number, result, frozenset().union(*[self._origins[name] for name in numbers]), text)
        self._sizes[number.proxy.name] = [*sizes, *[size for name in numbers for size in self._sizes.get(name, ())]]
        return number

    def convert(self, name: str, frame: FrameType) -> None:
        """As `Numbers`; other threads get plain numbers."""
        if not self._in_other_thread:
            super().convert(name, frame)

    def formatted(self, number: Any, specification: str | None) -> str | None:
        """As `Numbers`; None in other threads."""
        return None if self._in_other_thread else super().formatted(number, specification)

    def of_numpy(self, function: Any, method: str, operands: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """As `numpy_result`, for sizes."""
        return numpy_result(function, method, operands, options)

    def integer(
        self, function: Callable[..., int], operands: tuple[Any, ...], first: TracedNumber | None = None
    ) -> Any:
        """As `Numbers`: a symbol, which the prologue computes unless the number depends on tensors."""
        if self._in_other_thread:
            return function(*map(operand_hint, operands))
        read, text = self._read(operands), self._text(function, operands)
        number = read or next((item for item in operands if type(item) is TracedNumber), None)
        if (read is not None or not text) and self.recorder.attempt.guesses is not None:
            if number is None:
                number = self.computed(operator.pos, operands[:1])
            return TensorNumbers(self.recorder).integer(function, operands, number)
        sizes = self.recorder.inputs.input_sizes
        value = function(*map(operand_hint, operands))
        size = sizes.computed(value, text) if text and sizes is not None else None
        if size is None:
            return function(*map(value_of, operands))
        if type(size) is TracedSize:
            self._computed[str(from_fake(untraced(size)))] = text
        return size

    def decided(
        self, function: Callable[..., Any], operands: tuple[Any, ...], first: TracedNumber | None = None
    ) -> bool:
        """As `Numbers`: each call checks it before the run, unless it depends on tensors."""
        if self._in_other_thread:
            return bool(function(*map(operand_hint, operands)))
        read = self._read(operands)
        if read is not None:
            return read.numbers.decided(function, operands, read)
        text = self._text(function, operands)
        if not text:
            return self._decided_in_run(function, operands)
        result = bool(function(*map(operand_hint, operands)))
        condition = text.removeprefix("(").removesuffix(")") if result and text.startswith("(") else text
        self._facts.append(SizeFact(condition if result else f"not {text}", user_location()))
        return result

    def _decided_in_run(self, function: Callable[..., Any], operands: tuple[Any, ...]) -> bool:
        """As `decided`, for numbers that depend on sizes which ops define, or with too long a condition."""
        number = next((item for item in operands if type(item) is TracedNumber), None)
        if number is None or self.recorder.attempt.guesses is None:
            return bool(function(*map(value_of, operands)))
        return TensorNumbers(self.recorder).decided(function, operands, number)

    def _read(self, operands: tuple[Any, ...]) -> TracedNumber | None:
        """The first operand that was read from a tensor; its `Numbers` implements operations with it."""
        return next((item for item in operands if type(item) is TracedNumber and item.numbers is not self), None)

    def _text(self, function: Callable[..., Any], operands: tuple[Any, ...]) -> str:
        """Python of a call over the names of floats and sizes; empty if it is too long, or ops define the sizes."""
        texts = []
        for operand in operands:
            if type(operand) is TracedNumber:
                texts.append(self._texts[operand.proxy.name])
            elif isinstance(operand, torch.SymInt):
                with self.recorder.suspension:
                    size = from_fake(untraced(operand))
                defined = self.recorder.inputs.input_sizes.sizes.defined  # type: ignore[union-attr]
                symbols = size.symbols if isinstance(size, SizeExpr) else ()
                texts.append(f"({size})" if defined.keys().isdisjoint(symbols) else "")
            else:
                texts.append(repr(operand) if type(operand) is str else text_of_number(operand))
        text = text_of_call(function, tuple(texts))
        return text if all(texts) and len(text) <= _LONGEST_CONDITION else ""

    @property
    def _in_other_thread(self) -> bool:
        """Whether the calling thread does not record, but read a number of the program: it gets plain numbers."""
        return threading.get_ident() != self._thread

    def _note(self, number: TracedNumber, value: Any, origins: frozenset[Source], text: str) -> None:
        self._texts[number.proxy.name] = text
        self._hints[number.proxy.name], self._origins[number.proxy.name] = value, origins
