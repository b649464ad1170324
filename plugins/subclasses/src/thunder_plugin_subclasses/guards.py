"""Guards of wrapper subclasses: class, outer metadata, and the context that ``__tensor_flatten__`` returns."""

from __future__ import annotations

import dataclasses
import enum
import sys
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch

from thunder_core.checks.guard import Guard, show, type_name
from thunder_core.checks.plain import is_plain
from thunder_core.checks.source import Names
from thunder_core.pytorch_internals import DisableTorchFunctionSubclass
from thunder_frontend.observe.object_guards import has_equality
from thunder_plugin_subclasses.parts import flattened

_CONTAINERS = (list, tuple, dict, set, frozenset)


class NotComparableError(Exception):
    """A part of a context that cannot be compared with that of another call."""

    def __init__(self, value: Any) -> None:
        super().__init__(f"an object of type {type_name(type(value))}")


def facts(value: Any) -> Any:
    """An immutable key that is equal for values with the same types and contents at all levels.

    Containers and dataclasses are compared by their items, hashable objects that define ``__eq__`` by it, and classes
    by identity.

    Raises:
        NotComparableError: a part is none of these, so that its contents may change unnoticed.
    """
    kind = type(value)
    if isinstance(value, type | enum.Enum) or (kind not in _CONTAINERS and is_plain(value)):
        return (kind, repr(value) if kind in (float, complex) else value)  # distinguishes 0.0 from -0.0, equates NaN
    if isinstance(value, dict):
        return (kind, tuple([(facts(key), facts(item)) for key, item in value.items()]))
    if isinstance(value, list | tuple):
        return (kind, tuple(map(facts, value)))
    if isinstance(value, set | frozenset):
        return (kind, frozenset(map(facts, value)))
    if has_equality(value):
        return (kind, value)
    if dataclasses.is_dataclass(value):
        return (kind, tuple([facts(getattr(value, each.name)) for each in dataclasses.fields(value)]))
    raise NotComparableError(value)


def dtensor_rules() -> tuple[Any, ...]:
    """The state of DTensor's rules for operators that `loss_parallel` and `implicit_replication` change."""
    if "torch.distributed.tensor" not in sys.modules:
        return ()
    from thunder_plugin_subclasses.pytorch_internals import dtensor_handlers, get_dtensor_allow_implicit_replication

    return (get_dtensor_allow_implicit_replication(), *map(id, dtensor_handlers.values()))


def _metadata(value: torch.Tensor) -> dict[str, Any]:
    parts, context = flattened(value)
    return {
        "parts": tuple(parts),
        "context": facts(context),
        **{name: facts(part) for name, part in parts.items() if not isinstance(part, torch.Tensor)},
        "shape": _sizes(value.shape),
        "stride": _sizes(value.stride()),
        "dtype": value.dtype,
        "device": value.device,
        "layout": value.layout,
        "requires_grad": value.requires_grad,
    }


def _sizes(sizes: Any) -> tuple[Any, ...]:
    """Sizes as ints; a ragged size is not compared, as the offsets, an inner tensor, determine it."""
    return tuple([size if type(size) is int else "ragged" for size in sizes])


@dataclass(frozen=True, slots=True, eq=False)
class WrapperGuard(Guard):
    """Guards a wrapper subclass whose inner tensors are inputs: all state on which its methods depend.

    Attributes:
        expected: its class.
        metadata: the metadata of the outer tensor, with the context.
    """

    expected: type
    metadata: dict[str, Any] = field(repr=False)
    kind: ClassVar[str] = "tensor subclass"

    @classmethod
    def of(cls, source: Any, value: torch.Tensor) -> WrapperGuard:
        """The guard that holds for ``value`` now.

        Raises:
            NotComparableError: its context cannot be compared.
        """
        with DisableTorchFunctionSubclass():
            return cls(source, type(value), _metadata(value))

    def summary(self) -> str:
        sizes = self.metadata["shape"]
        parts = ", ".join(self.metadata["parts"])
        return f"{self.expected.__qualname__} {self.metadata['dtype']} {sizes} of {parts}"

    def remedy(self) -> str:
        return "pass a tensor of the same class, with an equal context, in each call"

    def holds(self, value: Any) -> bool:
        """Whether a value is a wrapper of this class with this metadata and context."""
        return not self.differences(value)

    def differences(self, value: Any) -> list[str]:
        if type(value) is not self.expected or not isinstance(value, torch.Tensor):
            return [f"expected an object of type {type_name(self.expected)}, got {type_name(type(value))}"]
        try:
            with DisableTorchFunctionSubclass():
                actual = _metadata(value)
        except NotComparableError as error:
            return [f"its context has {error}"]
        return [
            f"{name}: expected {show(expected)}, got {show(actual[name])}"
            for name, expected in self.metadata.items()
            if actual[name] != expected
        ]

    def failure(self, value: str, names: Names) -> str:
        return f"not {names.constant(self.holds, 'is_wrapper')}({value})"


@dataclass(frozen=True, slots=True, eq=False)
class DTensorRulesGuard(Guard):
    """Guards `dtensor_rules`, the state of DTensor's rules for operators.

    Attributes:
        rules: the state when the program began.
    """

    rules: tuple[Any, ...] = field(repr=False)
    kind: ClassVar[str] = "rules of DTensor"

    def remedy(self) -> str:
        return "call it inside of loss_parallel() or implicit_replication() in each call, or in none"

    def holds(self, value: Any) -> bool:
        """Whether the rules are the same now."""
        return dtensor_rules() == self.rules

    def differences(self, value: Any) -> list[str]:
        return [] if self.holds(value) else ["expected the same loss_parallel() and implicit_replication()"]

    def failure(self, value: str, names: Names) -> str:
        return f"not {names.constant(self.holds, 'are_rules')}({value})"
