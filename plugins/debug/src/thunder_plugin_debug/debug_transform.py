"""The base class of the transforms of this package."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from thunder_core.errors import TransformError
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.trace import Trace
from thunder_core.passes.transform import Place, Transform, TransformContext
from thunder_plugin_debug.line_call import MakeCall, unmatched, with_calls


@dataclass(frozen=True, eq=False)
class DebugTransform(Transform):
    """Replaces the function that each operation calls by a call of this package.

    One object may serve several programs and compilations, and holds the findings. A copy of a compiled module shares
    the object with the original; pickling stores only the options.

    Attributes:
        include, exclude: patterns (``*``, ``?``) of operations to inspect, and of operations to leave unchanged.
    """

    place: ClassVar[Place] = Place.LAST
    verified: ClassVar[bool] = False

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    @abstractmethod
    def calls(self, trace: Trace) -> MakeCall:
        """A function that creates the calls for the operations of ``trace``."""

    def run(self, trace: Trace, context: TransformContext) -> Trace:
        """The program with these calls."""
        return with_calls(trace, context, self.name, self.calls(trace), self.include, self.exclude)

    def unmatched(self, ops: Sequence[BoundSymbol]) -> list[str]:
        """The patterns of `include` and `exclude` that match no operation."""
        return unmatched(self.name, self.include, self.exclude, ops)

    def check_choice(self, option: str, allowed: Sequence[str]) -> None:
        """Raise TransformError if the value of an option is not allowed."""
        value = getattr(self, option)
        if value not in allowed:
            raise TransformError(
                f"{self.name}: {option} is {value!r}", advice=(f"use one of {', '.join(map(repr, allowed))}",)
            )

    def __deepcopy__(self, memo: dict[int, Any]) -> DebugTransform:
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}
