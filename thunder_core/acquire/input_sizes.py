"""The sizes and Python numbers of a program's inputs that vary between calls: which ones, and their symbols."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal

import torch

from thunder_core.acquire.traced_size import traced_size
from thunder_core.checks.check import Check
from thunder_core.checks.conditions import VALUE
from thunder_core.checks.guard import Guard
from thunder_core.checks.shared_memory import base_of
from thunder_core.checks.sizes import NUMBER, STRIDES, ComputedNumber, SizedInput, VaryingNumber
from thunder_core.checks.source import ConstantSource, Source, StoredAttributeSource
from thunder_core.ir.size import Size, are_constant, hint_of
from thunder_core.pytorch_internals import DisableTorchFunction
from thunder_core.tracing.sizes import Sizes

if TYPE_CHECKING:
    from thunder_core.acquire.input_numbers import InputNumbers

Kind = Literal["dynamic", "automatic", "static"]


@dataclass(frozen=True, slots=True)
class DeclaredSize:
    """The user's declaration of one size.

    Attributes:
        text: the declaration as the user wrote it.
        kind: ``"dynamic"``, a symbol, and an error where the program specializes it; ``"automatic"``, a symbol that may
            become a constant; ``"static"``, a constant.
        name: the name of a ``Dim``, the same for sizes that are equal; empty for others.
        lower, upper: the bounds of the size, inclusive.
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
class DeclaredDimension:
    """A declared size in one call.

    Attributes:
        path: where the size is, for messages: ``x.shape[0]``.
        size: the size in this call.
    """

    path: str
    size: int
    declared: DeclaredSize


DeclaredDimensions = Mapping[int, Mapping[int, DeclaredDimension]]
"""The declared sizes of one call: by the id of their tensor and the dimension."""
_MARKED: Final = ("_dynamo_dynamic_indices", "_dynamo_weak_dynamic_indices")
_STATIC: Final = "_dynamo_static_indices"
_RANGES: Final = "_dynamo_dynamic_range"


@dataclass(frozen=True)
class VaryingSizes:
    """The sizes and numbers that should vary in one recording.

    Attributes:
        all: whether every size varies, except marked ones and those of buffers of modules.
        dimensions: the dimensions that differed between calls, by the path of their tensor; `NUMBER` for a Python int
            or float, `STRIDES` for strides that differed alone.
        numbers: the paths to these ints and floats.
        declared: the user's declarations for sizes of this call. They override marks, and are not compared.
    """

    all: bool = False
    dimensions: Mapping[str, frozenset[int]] = field(default_factory=dict)
    numbers: tuple[Source, ...] = ()
    declared: DeclaredDimensions = field(default_factory=dict, compare=False)

    def declared_dimension(self, tensor: torch.Tensor, index: int) -> DeclaredDimension | None:
        """A size of a tensor, if it is declared."""
        return self.declared.get(id(tensor), {}).get(index)

    def of(self, tensor: torch.Tensor, source: Source) -> dict[int, tuple[int | None, int | None]]:
        """The dimensions of a tensor whose sizes are to be symbols, each with its bounds, if they are given."""
        marks = vars(tensor)
        bounds = {one.dim: (one.min, one.max) for one in marks.get(_RANGES, ())}
        marked = {index for name in _MARKED for index in marks.get(name, ())}
        static = set(marks.get(_STATIC, ()))
        for index, dimension in self.declared.get(id(tensor), {}).items():
            fixed = dimension.declared.kind == "static"
            (static if fixed else marked).add(index)
            (marked if fixed else static).discard(index)
            bounds[index] = (dimension.declared.lower, dimension.declared.upper)
        is_buffer = isinstance(source, StoredAttributeSource) and source.dictionary == "_buffers"
        every = self.all and not is_buffer  # the buffers of a module have constant shapes
        wanted = set(range(tensor.ndim)) if every else set(self.dimensions.get(source.describe(), ()))
        wanted -= {NUMBER, STRIDES}
        return {index: bounds.get(index, (None, None)) for index in sorted((wanted | marked) - static)}

    def have_strides(self, source: Source) -> bool:
        """Whether strides of the tensor may vary that are not products of its sizes."""
        return STRIDES in self.dimensions.get(source.describe(), ())

    def with_dimensions(self, dimensions: Mapping[Source, frozenset[int]]) -> VaryingSizes:
        """These, with further dimensions and numbers that differ between calls."""
        merged = dict(self.dimensions)
        for source, dims in dimensions.items():
            merged[source.describe()] = merged.get(source.describe(), frozenset()) | dims
        numbers = dict.fromkeys([*self.numbers, *[source for source, dims in dimensions.items() if NUMBER in dims]])
        return replace(self, dimensions=merged, numbers=tuple(numbers))

    def wanted_numbers(self) -> list[Source]:
        """The paths to Python ints that are to be symbols, and to floats that are to be numbers of the trace."""
        return [source for source in self.numbers if NUMBER in self.dimensions.get(source.describe(), ())]

    def without(self, dimensions: Iterable[tuple[str, int]]) -> VaryingSizes:
        """These, without some sizes: each is the path of a tensor and a dimension."""
        left = {path: set(dims) for path, dims in self.dimensions.items()}
        for path, index in dimensions:
            left.get(path, set()).discard(index)
        return replace(self, dimensions={path: frozenset(dims) for path, dims in left.items() if dims})


def is_marked(value: Any) -> bool:
    """Whether a size of a tensor is marked as one that varies: by ``torch._dynamo.mark_dynamic``, say."""
    return isinstance(value, torch.Tensor) and any(name in vars(value) for name in _MARKED)


class InputSizes:
    """Creates the symbols for sizes of inputs in one recording.

    Args:
        wanted: which sizes may vary.
        sizes: the symbols of the compilation.
        floats: the floats that vary.

    Attributes:
        inputs: the tensors with symbolic sizes, and the symbolic ints, in order.
    """

    def __init__(self, wanted: VaryingSizes, sizes: Sizes, floats: InputNumbers) -> None:
        self.sizes = sizes
        self.inputs: list[SizedInput | VaryingNumber] = []
        self.floats = sizes.floats = floats
        self._wanted = wanted
        self._named: dict[str, Size] = {}

    @staticmethod
    def may_vary(tensor: torch.Tensor) -> bool:
        """Whether sizes of a tensor may be symbols: only of plain tensors other than parameters."""
        return type(tensor) is torch.Tensor and tensor.layout is torch.strided

    def number(self, value: Any, source: Source) -> Any:
        """The traced size or number for a Python int or float that varies; None for one that is a constant."""
        if type(value) is float:
            return self.floats.new(value, source)
        symbol = self.sizes.new_number(value, source.describe())
        if symbol is None:
            return None
        self.inputs.append(VaryingNumber(source, symbol))
        return traced_size(symbol)

    def computed(self, value: int, text: str) -> Any:
        """The traced size for an int that Python computes from numbers by ``text``; None if it is too large."""
        known = next((one for one in self.inputs if isinstance(one, ComputedNumber) and one.text == text), None)
        symbol = self.sizes.new_number(value, text) if known is None else known.symbol
        if known is None and symbol is not None:
            self.inputs.append(ComputedNumber(ConstantSource(value, text), symbol, text))
        return None if symbol is None else traced_size(symbol)

    def number_guards(self) -> tuple[Guard, ...]:
        """Guards of the ints for a program that takes them as constants after all."""
        numbers = [one for one in self.inputs if type(one) is VaryingNumber]
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
            part = varies and base_of(tensor) is not tensor  # the sizes of its base are likely to vary as well

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
        """The symbol of a size, one for all sizes that are declared with the same name; checks that these are equal."""
        declared = self._wanted.declared_dimension(tensor, index)
        name = "" if declared is None else declared.declared.name
        known = self._named.get(name)
        if known is None:
            known = self.sizes.new(tensor.shape[index], path, bounds)
            if name:
                self._named[name] = known
        return known


def strides_of(
    shape: tuple[Size, ...], strides: tuple[int, ...], other: Callable[[int, int], Size]
) -> tuple[Size, ...]:
    """Strides as products of the sizes of inner dimensions where they equal such products; ``other`` otherwise."""
    known: dict[int, Size] = {0: 0, 1: 1}
    steps: dict[int, Size] = {}
    for index in sorted(range(len(shape)), key=lambda index: (strides[index], -index)):
        step = known.get(strides[index])
        steps[index] = other(index, strides[index]) if step is None else step
        known[hint_of(shape[index]) * strides[index]] = steps[index] * shape[index]
    return tuple([steps[index] for index in range(len(shape))])
