"""Which sizes and Python numbers of a program's inputs vary between calls: by earlier calls, marks and declarations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

import torch

from thunder_core.checks.sizes import NUMBER, STRIDES
from thunder_core.checks.source import Source, StoredAttributeSource

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
    of_tensors = issubclass(type(value), torch.Tensor)  # a weak proxy of an object that is gone has no ``__class__``
    return of_tensors and any(name in vars(value) for name in _MARKED)


def may_vary(tensor: torch.Tensor) -> bool:
    """Whether sizes of a tensor may be symbols: only of plain tensors other than parameters."""
    return type(tensor) is torch.Tensor and tensor.layout is torch.strided
