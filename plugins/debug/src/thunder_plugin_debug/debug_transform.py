"""What the transforms of this package share."""

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
    """Puts a call of its own in the place of what each line calls.

    One object may serve several programs, and all compilations of them; what it finds out is in it. A copy of a
    compiled module shares the object with the original; what is pickled are its options alone.

    Attributes:
        include, exclude: patterns (``*``, ``?``) of the operations to look at, and of those to leave alone.
    """

    place: ClassVar[Place] = Place.LAST

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    @abstractmethod
    def calls(self, trace: Trace) -> MakeCall:
        """What makes the calls for the lines of ``trace``."""

    def run(self, trace: Trace, context: TransformContext) -> Trace:
        """The program with these calls."""
        return with_calls(trace, context, self.name, self.calls(trace), self.include, self.exclude)

    def unmatched(self, lines: Sequence[BoundSymbol]) -> list[str]:
        """Of `include` and `exclude`."""
        return unmatched(self.name, self.include, self.exclude, lines)

    def check_choice(self, option: str, allowed: Sequence[str]) -> None:
        """Raise TransformError if the option is none of the allowed."""
        value = getattr(self, option)
        if value not in allowed:
            raise TransformError(
                f"{self.name}: {option} is {value!r}", advice=(f"take one of {', '.join(map(repr, allowed))}",)
            )

    def __deepcopy__(self, memo: dict[int, Any]) -> DebugTransform:
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}
