"""The prologue: a generated Python program that checks the guards of a cache entry and finds its inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from thunder_core.guards.fast_checks import ModesMemo, TensorsMemo
from thunder_core.guards.global_state import GlobalState, always_checked, remaining
from thunder_core.guards.guard import Guard, SameGuard, DistinctGuard, TypeGuard, show
from thunder_core.guards.prologue_names import PrologueNames
from thunder_core.guards.source import PATH_ERRORS, Args, ConstantSource, Kwargs, Source
from thunder_core.guards.tensor_guard import NonOverlappingGuard, TensorGuard
from thunder_core.ir.program import compile_source

_MARK = "\0"
_INDENTATION = "        "
_LONGEST_LINE = 110


@dataclass(frozen=True)
class CallShape:
    """How many positional arguments a call has, and the names of the others in order."""

    positional: int
    keywords: tuple[str, ...] = ()

    @classmethod
    def of(cls, args: Args, kwargs: Kwargs) -> CallShape:
        """The shape of one call."""
        return cls(len(args), tuple(kwargs))

    def difference(self, args: Args, kwargs: Kwargs) -> str | None:
        """What is different in another call."""
        if len(args) != self.positional:
            return f"expected {self.positional} positional arguments, got {len(args)}"
        if tuple(kwargs) != self.keywords:
            return f"expected the keyword arguments {show(self.keywords)}, got {show(tuple(kwargs))}"
        return None


@dataclass(frozen=True, eq=False)
class Prologue:
    """The guards of one entry, compiled.

    Attributes:
        guards: all of them, those of input tensors included, in the order of checking.
        state: PyTorch's modes that it expects.
        shape: the call that it expects.
        function: ``function(args, kwargs)`` is the tuple of the computation's inputs, or None when a guard fails.
    """

    guards: tuple[Guard, ...]
    state: GlobalState
    shape: CallShape
    function: Callable[[Args, Kwargs], tuple[Any, ...] | None] = field(repr=False)
    source: str = field(repr=False)

    def python(self) -> str:
        """The prologue as Python."""
        return self.source

    def why(self, args: Args, kwargs: Kwargs) -> str | None:
        """The first reason why this entry does not serve a call, or None when it does."""
        differences = self.state.differences(GlobalState.current())
        if differences:
            return differences[0]
        difference = self.shape.difference(args, kwargs)
        if difference is not None:
            return difference
        for guard in self.guards:
            try:
                violation = guard.violation(args, kwargs)
            except PATH_ERRORS as error:
                violation = f"{guard.source.describe()}: cannot be compared ({error})"
            if violation is not None:
                return violation
        return None


def build_prologue(
    guards: Sequence[Guard],
    inputs: Sequence[tuple[str, Source, Any]],
    *,
    state: GlobalState,
    shape: CallShape,
    non_overlapping: Iterable[tuple[str, str]] = (),
    exact_stride: bool = False,
) -> Prologue:
    """Compile guards.

    Args:
        guards: what the observer saw, each after the guards of the paths it goes through.
        inputs: for each input of the computation its name, where it is found, and the object it was this time.
        state: PyTorch's modes at acquisition.
        shape: the acquired call.
        non_overlapping: pairs of names of inputs that must not share memory.
        exact_stride: the program saw strides, so they count in dimensions of one element too.
    """
    tensor_guards = {
        name: TensorGuard.of(source, value, exact_stride=exact_stride)
        for name, source, value in inputs
        if isinstance(value, torch.Tensor) and not isinstance(source, ConstantSource)
    }
    paths = {name: source for name, source, _ in inputs}
    overlap_guards = tuple(NonOverlappingGuard(paths[one], paths[other]) for one, other in non_overlapping)
    lifted = {id(guard.source) for guard in tensor_guards.values()}
    plain = tuple(guard for guard in guards if not (type(guard) is TypeGuard and id(guard.source) in lifted))
    everything = (*plain, *tensor_guards.values(), *overlap_guards)
    writer = _Writer(inputs)
    source = writer.write(plain, tensor_guards, overlap_guards, state, shape)
    function = compile_source(source, "prologue", writer.names.namespace, title="prologue")
    return Prologue(everything, state, shape, function, source)


class _Writer:
    """Writes the program."""

    def __init__(self, inputs: Sequence[tuple[str, Source, Any]]) -> None:
        self._inputs = inputs
        self.names = PrologueNames(_INDENTATION)
        for name, _, _ in inputs:
            self.names.reserve(name)

    def write(
        self,
        guards: Sequence[Guard],
        tensor_guards: dict[str, TensorGuard],
        overlap_guards: Sequence[Guard],
        state: GlobalState,
        shape: CallShape,
    ) -> str:
        self._write_call(shape)
        self._write_modes(state)
        self._write_guards(guards)
        self._write_inputs(tensor_guards, state)
        for guard in overlap_guards:
            self._check([guard.failure(guard.source.expression(self.names), self.names)], "")
        returned = "".join(f"{name}, " for name, _, _ in self._inputs)
        self.names.line(f"return ({returned.rstrip()})")
        errors = self.names.constant(PATH_ERRORS, "PATH_ERRORS")
        body = "\n".join(self.names.lines)
        return (
            "def prologue(args, kwargs):\n"
            f"    try:\n{body}\n"
            f"    except {errors}:  # a part of a path is missing\n"
            "        return None\n"
        )

    def _write_call(self, shape: CallShape) -> None:
        condition = f"len(args) != {shape.positional} or "
        condition += f"tuple(kwargs) != {shape.keywords!r}" if shape.keywords else "kwargs"
        self._check([condition], "")

    def _write_modes(self, state: GlobalState) -> None:
        memo = ModesMemo()
        name = self.names.constant(memo, "modes")
        self._check(always_checked(state, self.names), "PyTorch's modes")
        self.names.line(f"if not {name}.check():  # unchanged since the last call that came through here")
        self._check(remaining(state, self.names), "", extra="    ")
        self.names.line(f"    {name}.remember()")

    def _write_guards(self, guards: Sequence[Guard]) -> None:
        bases = {id(guard.source.parent) for guard in guards if guard.source.parent is not None}
        for name, source, _ in self._inputs:
            if source.parent is not None:
                bases.add(id(source.parent))
        inputs = {id(source): name for name, source, _ in self._inputs}
        count: dict[int, int] = {}
        for guard in guards:
            count[id(guard.source)] = count.get(id(guard.source), 0) + 1
        groups: dict[int, tuple[Source, list[Guard]]] = {}
        for guard in guards:
            source = guard.source
            own = id(source) in bases or count[id(source)] > 1 or id(source) in inputs or source.parent is None
            anchor = source if own or source.parent is None else source.parent
            groups.setdefault(id(anchor), (anchor, []))[1].append(guard)
        for anchor, members in groups.values():
            before = len(self.names.lines)
            self._bind(anchor, inputs)
            conditions = []
            for guard in members:
                if isinstance(guard, SameGuard | DistinctGuard):
                    self._bind(guard.expected, inputs)
                conditions.append(self._condition(guard))
            self._check(conditions, "")
            self.names.lines.insert(before, f"{_INDENTATION}# {anchor.describe()}")

    def _bind(self, source: Source, inputs: dict[int, str]) -> str:
        return self.names.bind(source, inputs.get(id(source)))

    def _condition(self, guard: Guard) -> str:
        variable = self.names.bound(guard.source)
        if variable is not None:
            return guard.failure(variable, self.names)
        text = guard.failure(_MARK, self.names)
        path = guard.source.expression(self.names)
        if text.count(_MARK) == 1:
            return text.replace(_MARK, path)
        first, _, rest = text.partition(_MARK)
        return f"{first}(v := {path}){rest.replace(_MARK, 'v')}"

    def _write_inputs(self, tensor_guards: dict[str, TensorGuard], state: GlobalState) -> None:
        for name, source, _ in self._inputs:
            known = self.names.bound(source)
            if known is None:
                self.names.bind(source, name)
            elif known != name:
                self.names.line(f"{name} = {known}")
        if not tensor_guards:
            return
        variables = ", ".join(tensor_guards)
        memo = self.names.constant(TensorsMemo(), "tensors")
        condition = f"not {memo}.check({variables})"
        if not state.grad_enabled:  # the combined check then leaves requires_grad out
            condition += "".join(
                f" or {'not ' if guard.requires_grad else ''}{name}.requires_grad"
                for name, guard in tensor_guards.items()
            )
        self.names.line(f"if {condition}:  # otherwise the metadata is that of the last call")
        for name, guard in tensor_guards.items():
            self._check([guard.failure(name, self.names)], guard.source.describe(), extra="    ")
        self.names.line(f"    {memo}.remember({variables})")

    def _check(self, conditions: Sequence[str], comment: str, extra: str = "") -> None:
        if not conditions:
            return
        note = f"  # {comment}" if comment else ""
        joined = " or ".join(conditions)
        if len(joined) <= _LONGEST_LINE:
            self.names.line(f"{extra}if {joined}:{note}")
        else:
            self.names.line(f"{extra}if (  {note}".rstrip())
            for position, condition in enumerate(conditions):
                prefix = "    or " if position else "    "
                self.names.line(f"{extra}{prefix}{condition}")
            self.names.line(f"{extra}):")
        self.names.line(f"{extra}    return None")
