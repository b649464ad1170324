"""Transforms: passes that a configuration adds to the pipeline, each at a declared place."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import FrozenInstanceError, fields
from graphlib import CycleError, TopologicalSorter
from traceback import extract_tb
from typing import Any, ClassVar, Final, Self

import torch

from thunder_core.errors import RunEagerly, ThunderError, TransformError, VerificationError, suggestion
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.trace import Stage, Trace
from thunder_core.ir.tree import iterate_leaves
from thunder_core.passes.base import Pass, PassContext, Phase, Place
from thunder_core.passes.changed_ops import checked_ops

__all__ = ["Phase", "Place", "Transform", "TransformContext"]


TransformContext = PassContext
"""The name of `PassContext` for plugins."""
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
        also: further places where it runs; ``PassContext.place`` is the current one.
        requires: names of transforms that must be configured too.
        conflicts: names of transforms that must not be configured together with it.
        before, after: names of transforms of the same place that it must precede or follow if they are configured.
        of_modules: it changes modules only; `thunder.jit` refuses other programs.
        verified: whether its traces are verified, and the ops that it adds or changes checked (`checked_ops`). False
            saves the time, for a transform that is tested under ``THUNDER_VERIFY=1`` and computes effects itself.
    """

    name: ClassVar[str]
    place: ClassVar[Place]
    also: ClassVar[tuple[Place, ...]] = ()
    requires: ClassVar[tuple[str, ...]] = ()
    conflicts: ClassVar[tuple[str, ...]] = ()
    before: ClassVar[tuple[str, ...]] = ()
    after: ClassVar[tuple[str, ...]] = ()
    of_modules: ClassVar[bool] = False
    verified: ClassVar[bool] = True

    @classmethod
    def from_options(cls, options: Any) -> Self:
        """The transform whose fields have the values of the options of the same names."""
        return cls(**{field.name: getattr(options, field.name) for field in fields(cls) if field.init})  # type: ignore[arg-type]

    def applies(self, context: PassContext) -> bool:
        """Whether the transform runs in this context; if not, reports do not list it."""
        return True

    def run(self, trace: Trace, context: PassContext) -> Trace:
        """Return the trace that replaces ``trace``, with the same inputs and output; ``trace`` is not changed."""
        return trace

    def unmatched(self, ops: Sequence[BoundSymbol]) -> list[str]:
        """For the report: a sentence about each pattern among its options that matches nothing in the program.

        Args:
            ops: the ops of forward and backward, as they run.
        """
        return []

    def on_module(self, module: torch.nn.Module) -> torch.nn.Module | None:
        """Called once with a compiled module before its first call; may change its parameters and submodules.

        Returns:
            the module to compile in its place, a changed copy for example; None for the same module.
        """
        return None

    def module_notes(self, module: torch.nn.Module) -> Sequence[str]:
        """For the report: lines about what `on_module` did to the compiled module."""
        return ()

    def before_compilation(self) -> None:
        """Called before a program is compiled, for a call without a cached one."""

    def before_first_run(
        self,
        name: str,
        programs: Mapping[Phase, Trace],
        groups: Mapping[str, tuple[int, ...]],
        raised: BaseException | None,
    ) -> None:
        """Called with a new program before it runs for the first time and is cached.

        Args:
            name: of the function or module, for messages.
            programs: the traces that run, in order.
            groups: ranks of the process groups in which they communicate, by name.
            raised: the exception that the program ends with, if it does.

        Raises:
            Exception: the program must not run.
        """

    def before_eager_call(self, name: str, needed: RunEagerly) -> None:
        """Called before a call runs in eager PyTorch for a reason that was found while its program was compiled.

        Args:
            name: of the function or module, for messages.
            needed: the reason; a plugin that raises a class of its own may add data to it.

        Raises:
            Exception: the call must not run.
        """

    def on_exception(self, name: str, error: Exception) -> None:
        """Called with an exception that a call of a compiled program raises; may add notes to it.

        If it raises an exception itself, that one becomes a note of ``error``.

        Args:
            name: of the function or module.
        """

    def collectives(self, programs: Mapping[Phase, Trace], groups: Mapping[str, tuple[int, ...]]) -> Sequence[Any]:
        """For the report: a row for each collective of a program (`CollectiveReport`).

        The arguments are those of `before_first_run`.
        """
        return ()

    def measured(self) -> Mapping[str, float]:
        """For the report: the seconds that ops have taken so far, by executor. Empty if it does not measure them."""
        return {}

    def measured_ops(self) -> Sequence[Any]:
        """For the report: a record for each op that it measures, with the attributes ``phase``, ``operation``,
        ``executor``, ``place`` (`SourceLocation.place`), ``clock``, ``calls``, and ``total`` in seconds.
        """
        return ()

    def on_state_dict(self, state: dict[str, Any]) -> dict[str, Any]:
        """The ``state_dict()`` of the compiled module, computed from that of the original module."""
        return state

    def on_load_state_dict(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """The argument for the original module's ``load_state_dict``, from that of the compiled module's."""
        return state

    # ---- how the manager runs it ---------------------------------------------------------------------------------

    @property
    def advice(self) -> tuple[str, ...]:
        """Advice for the transform's author, and for users until it is fixed."""
        return (
            f"correct the trace that the method `run` of {self.name!r} returns; docs/transforms.md has recipes",
            f"leave {self.name!r} out to see whether the program works without it",
        )

    def title(self, context: PassContext) -> str:
        """The name of the transform and its current place, for messages."""
        return f"the transform {self.name!r} {self._where(context)}"

    def checked_run(self, trace: Trace, context: PassContext) -> Trace:
        """`run`, with the effects of new ops.

        Raises:
            TransformError: `run` fails, or it changes inputs or constants of others.
            VerificationError: the transform is `verified`, and its trace is malformed.
        """
        before = dict(context.constants)
        try:
            result = self.run(trace, context)
        except ThunderError:
            raise
        except Exception as error:
            raise TransformError(
                f"the transform {self.name!r} failed {self._where(context)}{self._line_of(error)}: "
                f"{type(error).__name__}: {error}",
                advice=(*_cures(error), f"leave {self.name!r} out to see whether the program works without it"),
            ) from error
        if any(context.constants.get(name) is not value for name, value in before.items()):
            raise TransformError(f"the transform {self.name!r} changed constants of others {self._where(context)}")
        self._check(trace, result, context, [name for name in context.constants if name not in before])
        if not self.verified or result is trace:
            return result
        try:
            return checked_ops(trace, result, self.title(context))
        except VerificationError as error:
            raise VerificationError(error.problem, location=error.location, advice=self.advice) from error

    def _check(self, before: Trace, after: Trace, context: PassContext, added: list[str]) -> None:
        where, place = self._where(context), context.place or self.place
        if not isinstance(after, Trace):
            returned = "None" if after is None else f"an object of type {type(after).__name__}"
            raise TransformError(
                f"the transform {self.name!r} returned {returned} {where} instead of a trace",
                advice=("end `run` with `return trace.with_symbols(ops, self.name)`",),
            )
        if after.stage is not _STAGES[place]:
            raise TransformError(f"the transform {self.name!r} returned a trace of stage {after.stage.value} {where}")
        expected = [*[proxy.name for proxy in before.inputs], *added]
        if [proxy.name for proxy in after.inputs] != expected:
            raise TransformError(
                f"the transform {self.name!r} changed the inputs of the program {where}",
                advice=("it may append inputs to which it gives a value in context.constants, nothing else",),
            )
        if self.verified and _results(after) != _results(before):
            raise TransformError(
                f"the transform {self.name!r} changed the outputs of the program {where}: {_results(after)} instead of "
                f"{_results(before)}",
                advice=("return values of the same number, shapes, dtypes and devices",),
            )
        if added and place is not Place.BEFORE_DIFFERENTIATION:
            raise TransformError(
                f"the transform {self.name!r} adds constants {where}",
                advice=(f"they are added at {Place.BEFORE_DIFFERENTIATION.value!r}",),
            )

    def _where(self, context: PassContext) -> str:
        place = context.place or self.place
        return f"at its place {place.value!r} in the {context.phase.value} program"

    def _line_of(self, error: Exception) -> str:
        """The innermost line in the file of `run` that an exception passed through; empty if there is none."""
        file = getattr(getattr(self.run, "__code__", None), "co_filename", None)
        lines = [frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename == file]
        return f", at {file}:{lines[-1]}" if lines else ""


def _cures(error: Exception) -> Iterator[str]:
    """Advice for the usual mistakes in ``run``."""
    if isinstance(error, FrozenInstanceError):
        yield "traces and ops are immutable; trace.with_symbols(ops, name) and dataclasses.replace(op, ...) copy them"
    if isinstance(error, TypeError) and re.search(r"not \w*Proxy\b", str(error)):
        yield "values of a trace have no data; insert an op that makes the call: docs/transforms.md has recipes"


def _results(trace: Trace) -> list[str]:
    """The shape, dtype and device of each value in the output; the type of those that are no tensors."""
    leaves = iterate_leaves(trace.output)
    return [
        f"{list(leaf.shape)} {leaf.dtype} {leaf.device}" if isinstance(leaf, TensorProxy) else type(leaf).__name__
        for leaf in leaves
    ]


def ordered(transforms: Sequence[Transform]) -> tuple[Transform, ...]:
    """The transforms in the given order, except where ``before`` and ``after`` require another.

    Raises:
        TransformError: a transform is configured twice, lacks a place or a required one, or conflicts with
            another; or ``before`` and ``after`` contradict each other.
    """
    for transform in transforms:
        if not isinstance(getattr(transform, "place", None), Place):
            raise TransformError(
                f"the transform {transform.name!r} has no place, where it runs",
                advice=("declare it in the class: place: ClassVar[Place] = Place.BEFORE_DIFFERENTIATION",),
            )
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
            raise TransformError(f"the transform {name!r} is listed twice", advice=("keep one of them",))
    for transform in transforms:
        for other in transform.requires:
            if other not in names:
                near = suggestion(other, names)
                raise TransformError(
                    f"the transform {transform.name!r} requires {other!r}, which is not in the list{near}",
                    advice=(f"add {other!r} to the transforms", f"or remove {transform.name!r}"),
                )
        for other in transform.conflicts:
            if other in names:
                raise TransformError(
                    f"the transform {transform.name!r} conflicts with {other!r}", advice=("remove one of them",)
                )
