"""The inputs of a program: those read in place, those that are copied, and those that a graph is specialized on."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from thunder_core.executors.states import ReplayableState
from thunder_core.ir.bound_symbol import written_storages
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.trace import Trace
from thunder_core.passes.transform import TransformContext

_TENSORS: Final = (torch.Tensor, torch.nn.Parameter)
_CONSTANTS: Final = (
    bool, int, str, bytes, complex, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format,
)  # fmt: skip


class Role(enum.Enum):
    """How a graph uses an input."""

    STATIC = enum.auto()
    """Reads it in place; its address is checked at each call."""
    SAVED = enum.auto()
    """The same, for a value that the graph of forward saved."""
    COPIED = enum.auto()
    """Copies it to a static buffer."""
    OBJECT = enum.auto()
    """Not a tensor: the graph is specialized on the value."""
    UNUSED = enum.auto()
    """Does not read it."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """The inputs of one program.

    Attributes:
        names, roles: of each.
        mutated: positions of those that the program writes.
        counted: those of ``mutated`` whose ``_version`` increases.
        symbolic: positions of tensors whose sizes are known only when the program runs.
    """

    names: tuple[str, ...]
    roles: tuple[Role, ...]
    mutated: tuple[int, ...]
    counted: tuple[int, ...]
    symbolic: tuple[int, ...]

    @staticmethod
    def of(trace: Trace, context: TransformContext) -> Inputs:
        """The inputs of a program."""
        read = {proxy.name for bound in trace.symbols for proxy in bound.inputs()}
        memories = written_storages(trace.symbols)
        counting = written_storages([bound for bound in trace.symbols if not bound.effects.uncounted])
        roles, mutated, counted, symbolic = [], [], [], []
        for position, proxy in enumerate(trace.inputs):
            if not isinstance(proxy, TensorProxy):
                roles.append(Role.OBJECT if proxy.name in read else Role.UNUSED)
                continue
            numbers = (*proxy.shape, *proxy.stride)
            if not all(type(number) is int for number in numbers):
                symbolic.append(position)
            if proxy.storage in memories:
                mutated.append(position)
                if proxy.storage in counting:
                    counted.append(position)
                roles.append(Role.STATIC)
            elif proxy.name not in read:
                roles.append(Role.UNUSED)
            elif proxy.name in context.saved:
                roles.append(Role.SAVED)
            else:
                roles.append(Role.STATIC if proxy.name in context.persistent else Role.COPIED)
        names = tuple([proxy.name for proxy in trace.inputs])
        return Inputs(names, tuple(roles), tuple(mutated), tuple(counted), tuple(symbolic))

    @property
    def keyed(self) -> bool:
        """Whether graphs are specialized on more than addresses."""
        return bool(self.symbolic) or Role.OBJECT in self.roles

    def key(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """The properties on which a graph is specialized, besides addresses."""
        objects = [_identity(value) for value, role in zip(values, self.roles, strict=True) if role is Role.OBJECT]
        shapes = [(values[position].shape, values[position].stride()) for position in self.symbolic]
        return (*objects, *shapes)

    def generators(self, values: Sequence[Any]) -> list[torch.Generator]:
        """The random generators among the values."""
        return [value for value in values if isinstance(value, torch.Generator)]

    def problem(self, values: Sequence[Any]) -> str | None:
        """The reason why no graph can be captured with values of these types."""
        for name, role, value in zip(self.names, self.roles, values, strict=True):
            kind = type(value).__name__
            if role is Role.OBJECT:
                if not isinstance(value, (*_CONSTANTS, float, torch.Generator, ReplayableState)):
                    return f"the input {name} is a {kind}, whose changes between calls cannot be detected"
            elif role is not Role.UNUSED and type(value) not in _TENSORS:
                return f"the input {name} is a {kind}, which is not a plain tensor with one storage"
        return None


def _identity(value: Any) -> Any:
    if isinstance(value, float):
        return float, value.hex()  # 0.0 and -0.0 are equal, and a NaN is not
    return (type(value), value) if isinstance(value, _CONSTANTS) else (type(value), id(value))
