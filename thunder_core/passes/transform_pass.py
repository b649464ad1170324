"""A transform as a pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from thunder_core.errors import ThunderError, TransformError
from thunder_core.ir.trace import Stage, Trace
from thunder_core.passes.pass_manager import TracePass
from thunder_core.passes.transform import Place, Transform, TransformContext

_STAGES: Final = {
    Place.ACQUIRED: frozenset({Stage.ACQUIRED}),
    Place.BEFORE_DIFFERENTIATION: frozenset({Stage.FUNCTIONAL}),
    Place.AFTER_DIFFERENTIATION: frozenset({Stage.FUNCTIONAL}),
    Place.PARTITIONED: frozenset({Stage.FUNCTIONAL}),
    Place.CLAIMED: frozenset({Stage.EXECUTABLE}),
    Place.LAST: frozenset({Stage.EXECUTABLE}),
}


@dataclass(frozen=True)
class TransformPass(TracePass):
    """Runs a transform at its place, and checks what it must leave as it is.

    Attributes:
        transform: what runs.
        context: what it may know besides the trace.
    """

    consumes: ClassVar[frozenset[Stage]] = frozenset(Stage)

    transform: Transform
    context: TransformContext

    @property
    def name(self) -> str:
        """The transform's."""
        return self.transform.name

    @property
    def title(self) -> str:
        """The transform, and where it runs this time."""
        return f"the transform {self.name!r} {self._where()}"

    @property
    def advice(self) -> tuple[str, ...]:
        """The transform's author mends it; until then, it is left out."""
        return (
            f"mend what the method `run` of {self.name!r} returns",
            f"leave {self.name!r} out to see whether the program works without it",
        )

    @property
    def place(self) -> Place:
        """Where it runs this time."""
        return self.context.place or self.transform.place

    def run(self, trace: Trace) -> Trace:
        before = set(self.context.constants)
        try:
            result = self.transform.run(trace, self.context)
        except ThunderError:
            raise
        except Exception as error:
            raise TransformError(
                f"the transform {self.name!r} failed {self._where()}: {type(error).__name__}: {error}",
                advice=(f"leave {self.name!r} out to see whether the program works without it",),
            ) from error
        self._check(trace, result, [name for name in self.context.constants if name not in before])
        return result

    def _check(self, before: Trace, after: Trace, added: list[str]) -> None:
        if not isinstance(after, Trace):
            raise TransformError(f"the transform {self.name!r} returned {after!r} {self._where()} instead of a trace")
        if after.stage not in _STAGES[self.place]:
            raise TransformError(
                f"the transform {self.name!r} made a trace of stage {after.stage.value} {self._where()}"
            )
        expected = [*[proxy.name for proxy in before.inputs], *added]
        if [proxy.name for proxy in after.inputs] != expected:
            raise TransformError(
                f"the transform {self.name!r} changed the inputs of the program {self._where()}",
                advice=("it may append inputs to which it gives a value in context.constants, nothing else",),
            )
        if added and self.place is not Place.BEFORE_DIFFERENTIATION:
            raise TransformError(f"the transform {self.name!r} adds constants {self._where()}, which is too late")

    def _where(self) -> str:
        return f"at its place {self.place.value!r} in the {self.context.phase.value} program"
