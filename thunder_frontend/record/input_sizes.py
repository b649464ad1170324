"""The symbols of the sizes and Python numbers of a program's inputs that vary between calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from thunder_core.checks.shared_memory import base_of
from thunder_core.checks.sizes import ComputedNumber, SizedInput, VaryingNumber
from thunder_core.checks.source import ConstantSource, Source
from thunder_core.checks.varying_sizes import VaryingSizes, may_vary
from thunder_core.ir.size import Size, are_constant, hint_of
from thunder_core.pytorch_internals import DisableTorchFunction
from thunder_core.tracing.sizes import Sizes
from thunder_frontend.record.traced_size import traced_size

if TYPE_CHECKING:
    from thunder_frontend.record.input_numbers import InputNumbers


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

    def geometry(self, tensor: torch.Tensor, source: Source) -> tuple[tuple[Size, ...], tuple[Size, ...]] | None:
        """Shape and strides with symbols; None where no size of the tensor varies."""
        path = source.describe()
        if not may_vary(tensor):
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
