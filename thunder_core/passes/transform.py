"""Transforms: passes that a configuration adds to the pipeline, each at its place."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from graphlib import CycleError, TopologicalSorter
from typing import Any, ClassVar, Final, Self

import torch

from thunder_core.errors import ThunderError, TransformError
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.trace import Stage, Trace
from thunder_core.passes.base import Pass, PassContext, Phase, Place

__all__ = ["Phase", "Place", "Transform", "TransformContext"]


TransformContext = PassContext
"""What plugins call the context of a pass."""
_STAGES: Final = {
    Place.ACQUIRED: Stage.ACQUIRED,
    Place.BEFORE_CLAIMS: Stage.FUNCTIONAL,
    Place.BEFORE_DIFFERENTIATION: Stage.FUNCTIONAL,
    Place.AFTER_DIFFERENTIATION: Stage.FUNCTIONAL,
    Place.PARTITIONED: Stage.FUNCTIONAL,
    Place.CLAIMED: Stage.EXECUTABLE,
    Place.LAST: Stage.EXECUTABLE,
}


class Transform(Pass[Trace]):
    """A pass with a place. It is a frozen dataclass; its fields are its options.

    Attributes:
        name: in configurations and reports.
        place: where it runs.
        also: further places where it runs. ``PassContext.place`` says which one it is.
        requires: names of transforms without which it makes no sense.
        conflicts: names of transforms that must not be there as well.
        before, after: names of transforms of the same place that it must precede or follow, where they are there.
    """

    name: ClassVar[str]
    place: ClassVar[Place]
    also: ClassVar[tuple[Place, ...]] = ()
    requires: ClassVar[tuple[str, ...]] = ()
    conflicts: ClassVar[tuple[str, ...]] = ()
    before: ClassVar[tuple[str, ...]] = ()
    after: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def from_options(cls, options: Any) -> Self:
        """The transform whose fields have the values of the options of the same names."""
        return cls(**{field.name: getattr(options, field.name) for field in fields(cls)})  # type: ignore[arg-type]

    def applies(self, context: PassContext) -> bool:
        """Whether it runs at all; where it does not, reports do not show it."""
        return True

    def run(self, trace: Trace, context: PassContext) -> Trace:
        """The trace that takes the place of ``trace``, with the same inputs and output; ``trace`` stays as it is."""
        return trace

    def unmatched(self, lines: Sequence[BoundSymbol]) -> list[str]:
        """For the report: a sentence about each pattern among its options that matches nothing in the program.

        Args:
            lines: of forward and backward, as they run.
        """
        return []

    def on_module(self, module: torch.nn.Module) -> None:
        """Called once with a module that is compiled, before its first call; may change parameters and submodules."""

    def on_state_dict(self, state: dict[str, Any]) -> dict[str, Any]:
        """What the compiled module's ``state_dict()`` returns, from what that of the original returns."""
        return state

    def on_load_state_dict(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """What ``load_state_dict`` of the original is given, from what that of the compiled module was."""
        return state

    # ---- how the manager runs it ---------------------------------------------------------------------------------

    @property
    def advice(self) -> tuple[str, ...]:
        """The transform's author mends it; until then, it is left out."""
        return (
            f"mend what the method `run` of {self.name!r} returns",
            f"leave {self.name!r} out to see whether the program works without it",
        )

    def title(self, context: PassContext) -> str:
        """The transform, and where it runs this time."""
        return f"the transform {self.name!r} {self._where(context)}"

    def checked_run(self, trace: Trace, context: PassContext) -> Trace:
        """`run`. Raises TransformError if that fails, or changes what it must leave as it is."""
        before = dict(context.constants)
        try:
            result = self.run(trace, context)
        except ThunderError:
            raise
        except Exception as error:
            raise TransformError(
                f"the transform {self.name!r} failed {self._where(context)}: {type(error).__name__}: {error}",
                advice=(f"leave {self.name!r} out to see whether the program works without it",),
            ) from error
        if any(context.constants.get(name) is not value for name, value in before.items()):
            raise TransformError(f"the transform {self.name!r} changed constants of others {self._where(context)}")
        self._check(trace, result, context, [name for name in context.constants if name not in before])
        return result

    def _check(self, before: Trace, after: Trace, context: PassContext, added: list[str]) -> None:
        where, place = self._where(context), context.place or self.place
        if not isinstance(after, Trace):
            raise TransformError(f"the transform {self.name!r} returned {after!r} {where} instead of a trace")
        if after.stage is not _STAGES[place]:
            raise TransformError(f"the transform {self.name!r} made a trace of stage {after.stage.value} {where}")
        expected = [*[proxy.name for proxy in before.inputs], *added]
        if [proxy.name for proxy in after.inputs] != expected:
            raise TransformError(
                f"the transform {self.name!r} changed the inputs of the program {where}",
                advice=("it may append inputs to which it gives a value in context.constants, nothing else",),
            )
        if added and place is not Place.BEFORE_DIFFERENTIATION:
            raise TransformError(
                f"the transform {self.name!r} adds constants {where}",
                advice=(f"they are added at {Place.BEFORE_DIFFERENTIATION.value!r}",),
            )

    def _where(self, context: PassContext) -> str:
        place = context.place or self.place
        return f"at its place {place.value!r} in the {context.phase.value} program"


def ordered(transforms: Sequence[Transform]) -> tuple[Transform, ...]:
    """The transforms in the given order, except where their ``before`` and ``after`` ask for another.

    Raises:
        TransformError: one is there twice, requires one that is not there, conflicts with one that is, or they cannot
            be put in any order.
    """
    names = [transform.name for transform in transforms]
    _check(transforms, names)
    earlier: dict[int, set[int]] = {index: set() for index in range(len(names))}
    for index, transform in enumerate(transforms):
        for other in transform.before:
            if other in names:
                earlier[names.index(other)].add(index)
        for other in transform.after:
            if other in names:
                earlier[index].add(names.index(other))
    sorter = TopologicalSorter(earlier)
    try:
        sorter.prepare()
    except CycleError as error:
        circle = " before ".join(names[index] for index in error.args[1])
        raise TransformError(f"the transforms cannot be put in order: {circle}") from error
    result: list[Transform] = []
    ready: list[int] = []
    while sorter.is_active():
        ready = sorted([*ready, *sorter.get_ready()])
        result.append(transforms[ready[0]])
        sorter.done(ready.pop(0))
    return tuple(result)


def _check(transforms: Sequence[Transform], names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise TransformError(f"the transform {name!r} is there twice", advice=("keep one of them",))
    for transform in transforms:
        for other in transform.requires:
            if other not in names:
                near = difflib.get_close_matches(other, names, 1)
                hint = f" (there is {near[0]!r})" if near else ""
                raise TransformError(
                    f"the transform {transform.name!r} requires {other!r}, which is not there{hint}",
                    advice=(f"add {other!r} to the transforms", f"or remove {transform.name!r}"),
                )
        for other in transform.conflicts:
            if other in names:
                raise TransformError(
                    f"the transform {transform.name!r} conflicts with {other!r}", advice=("remove one of them",)
                )
