"""The prologue: a generated Python program that checks the guards of a cache entry and finds its inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from thunder_core.guards.call_shape import CallShape
from thunder_core.guards.change import Change
from thunder_core.guards.global_state import GlobalState
from thunder_core.guards.guard import Guard, TypeGuard
from thunder_core.guards.prologue_writer import PrologueWriter
from thunder_core.guards.shared_memory import SharedMemoryGuard, relations
from thunder_core.guards.source import PATH_ERRORS, Args, ConstantSource, Kwargs, Source
from thunder_core.guards.tensor_guard import NonOverlappingGuard, TensorGuard
from thunder_core.ir.program import compile_source

__all__ = ["CallShape", "Prologue", "build_prologue"]


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

    def __str__(self) -> str:
        return self.source

    def why(self, args: Args, kwargs: Kwargs) -> str | None:
        """The text of `change`."""
        change = self.change(args, kwargs)
        return None if change is None else change.text

    def change(self, args: Args, kwargs: Kwargs) -> Change | None:
        """The first reason why this entry does not serve a call, or None when it does."""
        differences = self.state.differences(GlobalState.current())
        if differences:
            return Change(differences[0].partition(":")[0], differences[0], "call it under the same modes each time")
        difference = self.shape.difference(args, kwargs)
        if difference is not None:
            return Change("the arguments", difference, "pass the same number and names of arguments at each call")
        for guard in self.guards:
            try:
                violation = guard.violation(args, kwargs)
            except PATH_ERRORS as error:
                violation = f"{guard.source.describe()}: cannot be compared ({error})"
            if violation is not None:
                return Change(guard.source.describe(), violation, guard.remedy())
        return None


def build_prologue(
    guards: Sequence[Guard],
    inputs: Sequence[tuple[str, Source, Any]],
    *,
    state: GlobalState,
    shape: CallShape,
    non_overlapping: Iterable[tuple[str, str]] = (),
    sharing: Iterable[tuple[str, ...]] = (),
    exact_stride: bool = False,
) -> Prologue:
    """Compile guards.

    Args:
        guards: what the observer saw, each after the guards of the paths it goes through.
        inputs: for each input of the computation its name, where it is found, and the object it was this time.
        state: PyTorch's modes at acquisition.
        shape: the acquired call.
        non_overlapping: pairs of names of inputs that must not share memory.
        sharing: for each memory the names of inputs that must share it as they do now.
        exact_stride: the program saw strides, so they count in dimensions of one element too.
    """
    tensor_guards = {
        name: TensorGuard.of(source, value, exact_stride=exact_stride)
        for name, source, value in inputs
        if isinstance(value, torch.Tensor) and not isinstance(source, ConstantSource)
    }
    paths = {name: source for name, source, _ in inputs}
    pairs = tuple(non_overlapping)
    overlap_guards = tuple([NonOverlappingGuard(paths[one], paths[other]) for one, other in pairs])
    objects = {name: value for name, _, value in inputs}
    sharing_guards = {
        names: SharedMemoryGuard(
            paths[names[0]], tuple([paths[name] for name in names[1:]]), relations(*[objects[name] for name in names])
        )
        for names in sharing
    }
    lifted = {id(guard.source) for guard in tensor_guards.values()}
    plain = tuple(guard for guard in guards if not (type(guard) is TypeGuard and id(guard.source) in lifted))
    everything = (*plain, *tensor_guards.values(), *overlap_guards, *sharing_guards.values())
    writer = PrologueWriter(inputs)
    source = writer.write(plain, tensor_guards, pairs, sharing_guards, state, shape)
    function = compile_source(source, "prologue", writer.names.namespace, title="prologue")
    return Prologue(everything, state, shape, function, source)
