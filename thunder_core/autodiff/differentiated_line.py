"""A differentiated line of the program, as it stands in the joint trace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from thunder_core.autodiff.derivative import Derivative, Query
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.proxy import Proxy, TensorProxy
from thunder_core.ir.size import Size
from thunder_core.passes.moved_memories import Place


@dataclass(frozen=True, slots=True)
class DifferentiatedLine:
    """One line with its derivative.

    Attributes:
        bound: the line of the program.
        query: what was asked about it.
        derivative: how it is differentiated; for an equal line.
        values: the values of the derivative in the joint trace, by their names in the derivative.
        storages: where its memories lie there, by their numbers in the derivative.
    """

    bound: BoundSymbol
    query: Query
    derivative: Derivative
    values: dict[str, Proxy]
    storages: dict[int, Place]

    @property
    def outputs(self) -> dict[str, Proxy]:
        """The outputs of the line, by their names in the derivative."""
        models = [proxy.name for proxy in self.derivative.bound.outputs()]
        return dict(zip(models, self.bound.outputs(), strict=True))

    @property
    def inputs(self) -> dict[str, Proxy]:
        """Its inputs, likewise."""
        models = [proxy.name for proxy in self.derivative.bound.inputs()]
        return dict(zip(models, self.bound.inputs(), strict=True))

    def other_strides(self, cotangents: Mapping[str, TensorProxy]) -> dict[str, tuple[Size, ...]]:
        """Strides of cotangents, by output of the line, that differ from those that the derivative expects."""
        expected = self.derivative.cotangents
        return {
            own.name: cotangents[own.name].stride
            for name, own in self.outputs.items()
            if own.name in cotangents and cotangents[own.name].stride != expected[name].stride
        }

    def with_derivative(self, other: Derivative) -> DifferentiatedLine:
        """The line with another derivative whose forward, which is written already, has the same lines.

        The same line if the other forward has other ones.
        """
        if [line.symbol for line in other.forward] != [line.symbol for line in self.derivative.forward]:
            return self
        values, storages = correspondence(other.bound, self.bound)
        for new, old in zip(other.forward, self.derivative.forward, strict=True):
            for made, known in zip(new.outputs(), old.outputs(), strict=True):
                values.setdefault(made.name, self.values[known.name])
                if isinstance(made, TensorProxy) and isinstance(known, TensorProxy):
                    storages.setdefault(made.storage, self.storages[known.storage])
        return DifferentiatedLine(self.bound, self.query, other, values, storages)

    def without(self, absent: frozenset[str]) -> DifferentiatedLine:
        """The line where those outputs, as the derivative names them, have no cotangents. See `Derivative.without`."""
        return replace(self, derivative=self.derivative.without(absent))


def correspondence(model: BoundSymbol, bound: BoundSymbol) -> tuple[dict[str, Proxy], dict[int, Place]]:
    """Values of ``bound``, and places of its memories, by those of an equal line."""
    values: dict[str, Proxy] = {}
    storages: dict[int, Place] = {}
    for old, new in zip((*model.inputs(), *model.outputs()), (*bound.inputs(), *bound.outputs()), strict=True):
        values[old.name] = new
        if isinstance(old, TensorProxy) and isinstance(new, TensorProxy):
            storages[old.storage] = Place.where(old, new)
    return values, storages
