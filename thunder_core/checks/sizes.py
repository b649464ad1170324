"""The guard of sizes and numbers that vary: it reads their values from the inputs, and checks conditions on them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final

from thunder_core.checks.guard import Guard
from thunder_core.checks.source import PATH_ERRORS, Args, Kwargs, Source
from thunder_core.ir.program import compile_source
from thunder_core.ir.size import SIZE_NAMES, Size, SizeExpr
from thunder_core.tracing.sizes import SizeFact

NUMBER: Final = -1
"""In place of a dimension: the Python number at the path, which is not a tensor."""
STRIDES: Final = -2
"""In place of a dimension: symbolic strides that are not products of sizes. The stride of dimension ``i`` is -2 - i."""


@dataclass(frozen=True, slots=True)
class NumberFacts:
    """The conditions of one program on floats that vary, and on floats that it computes from sizes.

    Attributes:
        conditions: in the order of the program; each is valid Python where the earlier ones hold.
        floats: the paths of the floats in them, and in the computed ints, by name.
        computed: Python of each int that the program computes from numbers, by the name of its symbol.
    """

    conditions: tuple[SizeFact, ...] = ()
    floats: Mapping[str, Source] = field(default_factory=dict)
    computed: Mapping[str, str] = field(default_factory=dict)

    def with_constants(self, sizes: Mapping[str, int]) -> NumberFacts:
        """The facts for constant sizes, by the names of their symbols."""
        if not sizes:
            return self
        names = re.compile(rf"\b({'|'.join(sizes)})\b")
        values = [SizeFact(f"{text} == {name}") for name, text in self.computed.items()]
        return replace(
            self,
            conditions=tuple(
                replace(fact, condition=names.sub(lambda name: f"({sizes[name[0]]})", fact.condition))
                for fact in (*self.conditions, *values)
            ),
            computed={},
        )


@dataclass(frozen=True, slots=True)
class SizedInput:
    """An input tensor with symbolic sizes.

    Attributes:
        source: its path.
        shape, stride: its sizes and strides during recording.
    """

    source: Source
    shape: tuple[Size, ...]
    stride: tuple[Size, ...]

    def conditions(self, tensor: str, *, exact: bool) -> list[str]:
        """Python conditions over the symbols for symbolic sizes, and for strides. Other guards check constant sizes.

        Args:
            tensor: Python for the tensor.
            exact: compare strides also in dimensions of one element.
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
    """A Python number that is a symbol.

    Attributes:
        source: its path. An earlier guard checks its type.
        symbol: the symbol during recording.
    """

    source: Source
    symbol: Size

    def conditions(self, number: str, *, exact: bool) -> list[str]:
        """None; the facts include all conditions on it."""
        return []


@dataclass(frozen=True, slots=True)
class ComputedNumber(VaryingNumber):
    """An int that Python computes from sizes and numbers of the inputs: ``math.ceil(s0 / 2)``.

    Attributes:
        source: a constant.
        text: Python over the names of floats and of earlier symbols.
    """

    text: str


@dataclass(frozen=True, slots=True, eq=False)
class SizesGuard(Guard):
    """The conditions on all symbolic sizes and varying numbers of the inputs.

    Attributes:
        inputs: the tensors with symbolic sizes, and the ints.
        symbols: by name, the position of the input and the dimension from which a symbol is read.
        facts: the conditions on the symbols and floats.
        exact_stride: compare strides also in dimensions of one element.
        floats: the paths of floats in the conditions, by name.
    """

    inputs: tuple[SizedInput | VaryingNumber, ...]
    symbols: dict[str, tuple[int, int]]
    facts: tuple[SizeFact, ...]
    exact_stride: bool
    floats: Mapping[str, Source]
    kind: ClassVar[str] = "sizes"

    @classmethod
    def of(
        cls,
        inputs: Sequence[SizedInput | VaryingNumber],
        facts: Sequence[SizeFact],
        floats: Mapping[str, Source],
        *,
        exact_stride: bool,
    ) -> SizesGuard:
        """The guard of at least one input or float. A symbol is read where a size or stride consists of it alone."""
        symbols: dict[str, tuple[int, int]] = {}
        for position, sized in enumerate(inputs):
            if isinstance(sized, VaryingNumber):
                symbols[str(sized.symbol)] = (position, NUMBER)
                continue
            strides = [(STRIDES - index, stride) for index, stride in enumerate(sized.stride)]
            for index, size in (*enumerate(sized.shape), *strides):
                if type(size) is SizeExpr and str(size) in size.symbols:
                    symbols.setdefault(str(size), (position, index))
        distinct: dict[str, SizeFact] = {}
        for fact in facts:  # a condition is valid Python where earlier ones hold: the first place counts
            distinct.setdefault(fact.condition, fact)
        read = [sized.source for sized in inputs if not isinstance(sized, ComputedNumber)]
        first = next(iter([*read, *floats.values()]))
        return cls(first, tuple(inputs), symbols, tuple(distinct.values()), exact_stride, floats)

    @property
    def places(self) -> dict[str, str]:
        """By name, the expression from which a symbol or float is read: ``x.shape[0]``."""
        paths = [sized.source.describe() for sized in self.inputs]
        symbols = {name: _read(paths[position], index) for name, (position, index) in self.symbols.items()}
        return symbols | {name: source.describe() for name, source in self.floats.items()}

    def constant_places(self) -> list[tuple[str, int]]:
        """The path and dimension of each symbol with one possible value."""
        names = dict.fromkeys([fact.value[0] for fact in self.facts if fact.value is not None])
        places = [self.symbols[name] for name in names if name in self.symbols]
        return [(self.inputs[position].source.describe(), max(index, STRIDES)) for position, index in places]

    def summary(self) -> str:
        symbols = ", ".join([_named(name, place) for name, place in self.places.items()])
        return f"{symbols}; {', '.join([fact.condition for fact in self.facts])}"

    def remedy(self) -> str:
        if not self.inputs:
            return "pass it as a tensor, or avoid code that depends on its value"
        return "pad it to a few shapes, or avoid code that depends on its size"

    def lines(self, tensors: Sequence[str], floats: Sequence[str]) -> list[str]:
        """Statements that assign the symbols and floats, from Python for the inputs and for the floats."""
        lines = [f"{name} = {read}" for name, read in zip(self.floats, floats, strict=True) if name != read]
        for name, (position, index) in self.symbols.items():
            sized = self.inputs[position]
            text = sized.text if isinstance(sized, ComputedNumber) else _read(tensors[position], index)
            lines.append(f"{name} = {text}")
        return lines

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

    def differing_sizes(self, args: Args, kwargs: Kwargs) -> dict[Source, frozenset[int]]:
        return {}

    def violation(self, args: Args, kwargs: Kwargs) -> str | None:
        try:
            values = [sized.source.read(args, kwargs) for sized in self.inputs]
            floats = [source.read(args, kwargs) for source in self.floats.values()]
        except PATH_ERRORS as error:
            return f"{self.source.describe()}: is missing ({error})"
        names = [f"value_{index}" for index in range(len(values))]
        conditions = self.conditions(names)
        source = "\n".join(
            [
                f"def failing({', '.join([*names, *self.floats])}):",
                *[f"    {line}" for line in self.lines(names, tuple(self.floats))],
                *[f"    if not ({condition}): return {index}" for index, condition in enumerate(conditions)],
                "",
            ]
        )
        try:
            failing: int | None = compile_source(source, "failing", dict(SIZE_NAMES), title="sizes")(*values, *floats)
        except ZeroDivisionError:
            return f"{self.source.describe()}: a size that the program divides by is zero"
        except (ArithmeticError, TypeError, ValueError) as error:
            return f"{self.source.describe()}: a condition of the program cannot be computed ({error})"
        return None if failing is None else self._message(conditions[failing], failing, values, floats)

    def _message(self, condition: str, failing: int, values: Sequence[Any], floats: Sequence[float]) -> str:
        values_of = dict(zip(self.floats, floats, strict=True)) | {
            name: eval(_read("value", index), {"value": values[position]})
            for name, (position, index) in self.symbols.items()
        }
        read = ", ".join(
            [
                f"{_named(name, self.places[name])} is {values_of[name]}"
                for name in values_of
                if re.search(rf"\b{name}\b", condition)
            ]
        )
        if failing >= len(self.facts):
            for index, sized in enumerate(self.inputs):
                condition = condition.replace(f"value_{index}.", f"{sized.source.describe()}.")
            return f"the sizes: expected {condition}" + (f", and {read}" if read else "")
        location = self.facts[failing].location
        where = "" if location is None else f" ({location.describe()})"
        return f"{read or 'the sizes'}: the program was compiled for {condition}{where}"


def _named(name: str, place: str) -> str:
    return place if name == place else f"{name} = {place}"


def _read(path: str, index: int) -> str:
    if index == NUMBER:
        return path
    return f"{path}.shape[{index}]" if index >= 0 else f"{path}.stride({STRIDES - index})"


def _tuple(items: Sequence[Any]) -> str:
    return f"({', '.join(map(str, items))}{',' if len(items) == 1 else ''})"
