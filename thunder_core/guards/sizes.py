"""Sizes that vary between calls, as the prologue reads and checks them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from thunder_core.guards.guard import Guard
from thunder_core.guards.source import PATH_ERRORS, Args, Kwargs, Source
from thunder_core.ir.location import SourceLocation
from thunder_core.ir.program import compile_source
from thunder_core.ir.size import SIZE_NAMES, Size, SizeExpr

NUMBER: Final = -1
"""In place of a dimension: not a size of a tensor but the Python int that the path leads to."""
STRIDES: Final = -2
"""In place of a dimension: the strides of a tensor that are no products of sizes. That of dimension ``i`` is -2 - i."""


@dataclass(frozen=True, slots=True)
class SizeFact:
    """Something that has to hold for a compiled program to be right.

    Attributes:
        condition: Python over the symbols, true if it holds.
        location: the user's line that asked; None for what the compiler needs, and for the ranges of symbols.
        value: for a symbol that is a constant after all, its name and value.
        symbols: names of those in the condition; empty for the ranges of symbols.
    """

    condition: str
    location: SourceLocation | None = None
    value: tuple[str, int] | None = None
    symbols: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SizedInput:
    """A tensor with sizes that vary.

    Attributes:
        source: where it is found.
        shape, stride: as the program was recorded with.
    """

    source: Source
    shape: tuple[Size, ...]
    stride: tuple[Size, ...]

    def conditions(self, tensor: str, *, exact: bool) -> list[str]:
        """Python that is true of a tensor with this shape and these strides, over the symbols.

        Sizes that do not vary are checked before.

        Args:
            tensor: a Python expression of it.
            exact: strides count in dimensions of one element as well.
        """
        shape = [
            f"{tensor}.shape[{index}] == {size}" for index, size in enumerate(self.shape) if type(size) is SizeExpr
        ]
        pairs = [(index, step) for index, step in enumerate(self.stride) if exact or self.shape[index] != 1]
        if len(pairs) == len(self.stride):
            return [*shape, f"{tensor}.stride() == {_tuple(self.stride)}"]
        return [*shape, *[f"{tensor}.stride({index}) == {step}" for index, step in pairs]]


@dataclass(frozen=True, slots=True)
class VaryingNumber:
    """A Python int that varies.

    Attributes:
        source: where it is found. That it is an int is checked before.
        symbol: as the program was recorded with.
    """

    source: Source
    symbol: Size

    def conditions(self, number: str, *, exact: bool) -> list[str]:
        """None: the facts say what has to hold of it."""
        return []


@dataclass(frozen=True, slots=True, eq=False)
class SizesGuard(Guard):
    """What has to hold of the sizes of all inputs, and of Python numbers that vary, together.

    Attributes:
        inputs: the tensors with sizes that vary, and the numbers.
        symbols: their names, each with the position of its tensor and the dimension, or of a number and `NUMBER`.
        facts: what has to hold of them.
        exact_stride: strides count in dimensions of one element.
    """

    inputs: tuple[SizedInput | VaryingNumber, ...]
    symbols: dict[str, tuple[int, int]]
    facts: tuple[SizeFact, ...]
    exact_stride: bool
    kind: ClassVar[str] = "sizes"

    @classmethod
    def of(
        cls, inputs: Sequence[SizedInput | VaryingNumber], facts: Sequence[SizeFact], *, exact_stride: bool
    ) -> SizesGuard:
        """The guard of these inputs, of which there is one at least. Each symbol is read where it appears by itself."""
        symbols: dict[str, tuple[int, int]] = {}
        for position, sized in enumerate(inputs):
            if isinstance(sized, VaryingNumber):
                symbols[str(sized.symbol)] = (position, NUMBER)
                continue
            strides = [(STRIDES - index, stride) for index, stride in enumerate(sized.stride)]
            for index, size in (*enumerate(sized.shape), *strides):
                if type(size) is SizeExpr and str(size) in size.symbols:
                    symbols.setdefault(str(size), (position, index))
        distinct = tuple({fact.condition: fact for fact in reversed(facts)}.values())[::-1]
        return cls(inputs[0].source, tuple(inputs), symbols, distinct, exact_stride)

    @property
    def places(self) -> dict[str, str]:
        """Where each symbol is read, for people: ``x.shape[0]``."""
        paths = [sized.source.describe() for sized in self.inputs]
        return {name: _read(paths[position], index) for name, (position, index) in self.symbols.items()}

    def constant_places(self) -> list[tuple[str, int]]:
        """Where symbols are read that can have one value only: for each the path of the tensor and the dimension."""
        names = dict.fromkeys([fact.value[0] for fact in self.facts if fact.value is not None])
        places = [self.symbols[name] for name in names if name in self.symbols]
        return [(self.inputs[position].source.describe(), max(index, STRIDES)) for position, index in places]

    def summary(self) -> str:
        symbols = ", ".join([f"{name} = {place}" for name, place in self.places.items()])
        return f"{symbols}; {', '.join([fact.condition for fact in self.facts])}"

    def remedy(self) -> str:
        return "pad it to a few shapes, or leave out what the program does by its size"

    def lines(self, tensors: Sequence[str]) -> list[str]:
        """Statements that read the symbols, of variables that hold the tensors."""
        return [f"{name} = {_read(tensors[position], index)}" for name, (position, index) in self.symbols.items()]

    def conditions(self, tensors: Sequence[str]) -> list[str]:
        """Conditions on the symbols and on strides, all of which must hold."""
        read = {f"{_read(tensors[position], index)} == {name}" for name, (position, index) in self.symbols.items()}
        geometry = [
            condition
            for sized, tensor in zip(self.inputs, tensors, strict=True)
            for condition in sized.conditions(tensor, exact=self.exact_stride)
            if condition not in read
        ]
        return [fact.condition for fact in self.facts] + geometry

    def violation(self, args: Args, kwargs: Kwargs) -> str | None:
        try:
            values = [sized.source.read(args, kwargs) for sized in self.inputs]
        except PATH_ERRORS as error:
            return f"{self.source.describe()}: is missing ({error})"
        names = [f"value_{index}" for index in range(len(values))]
        conditions = self.conditions(names)
        source = "\n".join(
            [
                f"def failing({', '.join(names)}):",
                *[f"    {line}" for line in self.lines(names)],
                *[f"    if not ({condition}): return {index}" for index, condition in enumerate(conditions)],
                "",
            ]
        )
        try:
            failing: int | None = compile_source(source, "failing", dict(SIZE_NAMES), title="sizes")(*values)
        except ZeroDivisionError:
            return f"{self.source.describe()}: a size that the program divides by is zero"
        return None if failing is None else self._message(conditions[failing], failing, values)

    def _message(self, condition: str, failing: int, values: Sequence[Any]) -> str:
        found = {
            name: eval(_read("value", index), {"value": values[position]})
            for name, (position, index) in self.symbols.items()
        }
        read = ", ".join([f"{name} = {self.places[name]} is {found[name]}" for name in found if name in condition])
        if failing >= len(self.facts):
            for index, sized in enumerate(self.inputs):
                condition = condition.replace(f"value_{index}.", f"{sized.source.describe()}.")
            return f"the sizes: expected {condition}" + (f", and {read}" if read else "")
        location = self.facts[failing].location
        where = "" if location is None else f" ({location.describe()})"
        return f"{read or 'the sizes'}: the program was compiled for {condition}{where}"


def _read(path: str, index: int) -> str:
    if index == NUMBER:
        return path
    return f"{path}.shape[{index}]" if index >= 0 else f"{path}.stride({STRIDES - index})"


def _tuple(items: Sequence[Any]) -> str:
    return f"({', '.join(map(str, items))}{',' if len(items) == 1 else ''})"
