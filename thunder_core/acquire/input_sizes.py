"""Which sizes of a program's inputs vary between calls, and the symbols for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

import torch

from thunder_core.acquire.input_numbers import InputNumbers
from thunder_core.acquire.traced_size import traced_size
from thunder_core.guards.check import Check
from thunder_core.guards.conditions import VALUE
from thunder_core.guards.guard import Guard
from thunder_core.guards.shared_memory import base_of
from thunder_core.guards.sizes import NUMBER, STRIDES, SizedInput, VaryingNumber
from thunder_core.guards.source import Source
from thunder_core.guards.steps import BufferSource
from thunder_core.ir.size import Size, are_constant, hint_of
from thunder_core.pytorch_internals import DisableTorchFunction
from thunder_core.tracing.sizes import Sizes

Kind = Literal["dynamic", "automatic", "static"]


@dataclass(frozen=True, slots=True)
class DeclaredSize:
    """What is declared of one size.

    Attributes:
        text: as the user wrote it.
        kind: ``"dynamic"``, a symbol, and an error where the program makes it a constant; ``"automatic"``, a symbol
            that may become one; ``"static"``, a constant.
        name: of a ``Dim``, the same for sizes that are equal; empty for others.
        lower, upper: the least and the greatest value that calls have.
    """

    text: str
    kind: Kind
    name: str = ""
    lower: int | None = None
    upper: int | None = None

    def includes(self, size: int) -> bool:
        """Whether calls may have this size."""
        return (self.lower is None or self.lower <= size) and (self.upper is None or size <= self.upper)


@dataclass(frozen=True, slots=True)
class DeclaredPlace:
    """A size of one call that is declared.

    Attributes:
        place: for people: ``x.shape[0]``.
        size: in this call.
    """

    place: str
    size: int
    declared: DeclaredSize


Places = Mapping[int, Mapping[int, DeclaredPlace]]
"""The declared sizes of one call: by the id of their tensor and the dimension."""
_MARKED: Final = ("_dynamo_dynamic_indices", "_dynamo_weak_dynamic_indices")
_STATIC: Final = "_dynamo_static_indices"
_RANGES: Final = "_dynamo_dynamic_range"


@dataclass(frozen=True)
class VaryingSizes:
    """What is asked of one recording.

    Attributes:
        all: every size may vary that is not marked otherwise, but for buffers of modules.
        dimensions: those that differed between calls, by the path of their tensor; `NUMBER` for a Python int or float,
            `STRIDES` for strides that differed alone.
        numbers: the paths to these ints and floats.
        declared: what the user declares of sizes of this call. It counts before marks, and is no part of comparisons.
    """

    all: bool = False
    dimensions: Mapping[str, frozenset[int]] = field(default_factory=dict)
    numbers: tuple[Source, ...] = ()
    declared: Places = field(default_factory=dict, compare=False)

    def place(self, tensor: torch.Tensor, index: int) -> DeclaredPlace | None:
        """A size of a tensor, if it is declared."""
        return self.declared.get(id(tensor), {}).get(index)

    def of(self, tensor: torch.Tensor, source: Source) -> dict[int, tuple[int | None, int | None]]:
        """The dimensions of a tensor whose sizes are to be symbols, each with its bounds, if they are given."""
        marks = vars(tensor)
        bounds = {one.dim: (one.min, one.max) for one in marks.get(_RANGES, ())}
        marked = {index for name in _MARKED for index in marks.get(name, ())}
        static = set(marks.get(_STATIC, ()))
        for index, place in self.declared.get(id(tensor), {}).items():
            fixed = place.declared.kind == "static"
            (static if fixed else marked).add(index)
            (marked if fixed else static).discard(index)
            bounds[index] = (place.declared.lower, place.declared.upper)
        every = self.all and not isinstance(source, BufferSource)  # of a module, which keeps it
        wanted = set(range(tensor.ndim)) if every else set(self.dimensions.get(source.describe(), ()))
        wanted -= {NUMBER, STRIDES}
        return {index: bounds.get(index, (None, None)) for index in sorted((wanted | marked) - static)}

    def have_strides(self, source: Source) -> bool:
        """Whether strides of the tensor may vary that are no products of its sizes."""
        return STRIDES in self.dimensions.get(source.describe(), ())

    def with_dimensions(self, found: Mapping[Source, frozenset[int]]) -> VaryingSizes:
        """These and the dimensions, and the numbers, that were found to differ."""
        merged = dict(self.dimensions)
        for source, dims in found.items():
            merged[source.describe()] = merged.get(source.describe(), frozenset()) | dims
        numbers = dict.fromkeys([*self.numbers, *[source for source, dims in found.items() if NUMBER in dims]])
        return replace(self, dimensions=merged, numbers=tuple(numbers))

    def with_constants(self, numbers: Iterable[Source]) -> VaryingSizes:
        """These but for some numbers."""
        return self.without([(source.describe(), NUMBER) for source in numbers])

    def wanted_numbers(self) -> list[Source]:
        """The paths to Python ints that are to be symbols, and to floats that are to be numbers of the trace."""
        return [source for source in self.numbers if NUMBER in self.dimensions.get(source.describe(), ())]

    def without(self, places: Iterable[tuple[str, int]]) -> VaryingSizes:
        """These but for some: each is the path of a tensor and a dimension."""
        left = {path: set(dims) for path, dims in self.dimensions.items()}
        for path, index in places:
            left.get(path, set()).discard(index)
        return replace(self, dimensions={path: frozenset(dims) for path, dims in left.items() if dims})


def is_marked(value: Any) -> bool:
    """Whether a size of a tensor is marked as one that varies: by ``torch._dynamo.mark_dynamic``, say."""
    return isinstance(value, torch.Tensor) and any(name in vars(value) for name in _MARKED)


class InputSizes:
    """Makes the symbols of one recording.

    Args:
        wanted: which sizes may vary.
        sizes: of the compilation.

    Attributes:
        inputs: the tensors that have symbols, and the ints that are some, in order.
        floats: those that vary.
    """

    def __init__(self, wanted: VaryingSizes, sizes: Sizes) -> None:
        self.sizes = sizes
        self.inputs: list[SizedInput | VaryingNumber] = []
        self.floats = sizes.floats = InputNumbers()
        self._wanted = wanted
        self._named: dict[str, Size] = {}

    @staticmethod
    def may_vary(tensor: torch.Tensor) -> bool:
        """Whether a tensor that the program meets may get symbols: a plain one. Parameters keep their shapes."""
        return type(tensor) is torch.Tensor and tensor.layout is torch.strided

    def number(self, value: Any, source: Source) -> Any:
        """What the program gets for a Python int or float that varies; None for one that is a constant."""
        if type(value) is float:
            return self.floats.new(value, source)
        symbol = self.sizes.new_number(value, source.describe())
        if symbol is None:
            return None
        self.inputs.append(VaryingNumber(source, symbol))
        return traced_size(symbol)

    def number_guards(self) -> tuple[Guard, ...]:
        """Guards of the ints for a program that takes them as constants after all."""
        numbers = [one for one in self.inputs if isinstance(one, VaryingNumber)]
        return tuple([Check(number.source, VALUE, hint_of(number.symbol)) for number in numbers])

    def geometry(self, tensor: torch.Tensor, source: Source) -> tuple[tuple[Size, ...], tuple[Size, ...]] | None:
        """Shape and strides with symbols; None where no size of the tensor varies."""
        path = source.describe()
        if not self.may_vary(tensor):
            return None
        wanted = self._wanted.of(tensor, source)
        shape = tuple(
            [
                self._size(tensor, index, f"{path}.shape[{index}]", wanted[index]) if index in wanted else size
                for index, size in enumerate(tuple(tensor.shape))
            ]
        )
        varies = not are_constant(shape)
        with DisableTorchFunction():
            part = varies and base_of(tensor) is not tensor  # of a tensor whose sizes are likely to vary as well

        def new_stride(index: int, stride: int) -> Size:
            return self.sizes.new(stride, f"{path}.stride({index})")

        stride = strides_of(
            shape,
            tensor.stride(),
            new_stride if part or self._wanted.have_strides(source) else lambda _, stride: stride,
        )
        if are_constant((*shape, *stride)):
            return None
        self.inputs.append(SizedInput(source, shape, stride))
        return shape, stride

    def _size(self, tensor: torch.Tensor, index: int, path: str, bounds: tuple[int | None, int | None]) -> Size:
        """A symbol, the same one for sizes that are declared by the same name: their equality is checked there."""
        place = self._wanted.place(tensor, index)
        name = "" if place is None else place.declared.name
        known = self._named.get(name)
        if known is None:
            known = self.sizes.new(tensor.shape[index], path, bounds)
            if name:
                self._named[name] = known
        return known


def strides_of(
    shape: tuple[Size, ...], strides: tuple[int, ...], other: Callable[[int, int], Size]
) -> tuple[Size, ...]:
    """Strides as products of the sizes that they step over, where they are such products; by ``other`` otherwise."""
    known: dict[int, Size] = {0: 0, 1: 1}
    found: dict[int, Size] = {}
    for index in sorted(range(len(shape)), key=lambda index: (strides[index], -index)):
        step = known.get(strides[index])
        found[index] = other(index, strides[index]) if step is None else step
        known[hint_of(shape[index]) * strides[index]] = found[index] * shape[index]
    return tuple([found[index] for index in range(len(shape))])
