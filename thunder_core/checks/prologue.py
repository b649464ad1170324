"""The prologue: a generated Python function that checks the guards of a cache entry and returns its inputs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from thunder_core.checks.check import Check
from thunder_core.checks.conditions import TYPE
from thunder_core.checks.global_state import GlobalState
from thunder_core.checks.guard import CallShape, Guard, Miss
from thunder_core.checks.prologue_writer import PrologueWriter
from thunder_core.checks.shared_memory import NonOverlappingGuard, SharedMemoryGuard, relations
from thunder_core.checks.sizes import SizesGuard, VaryingNumber
from thunder_core.checks.source import PATH_ERRORS, Args, ConstantSource, Kwargs, Source
from thunder_core.checks.tensor_guard import TensorGuard
from thunder_core.ir.program import compile_source


@dataclass(frozen=True, eq=False)
class Prologue:
    """The guards of one entry, compiled.

    Attributes:
        guards: all guards in the order of checking, including those of input tensors.
        state: the expected modes of PyTorch.
        shape: the expected shape of the call.
        function: ``function(args, kwargs)`` returns the tuple of the computation's inputs, or None if a guard fails.
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
        """The text of `miss`, or None."""
        miss = self.miss(args, kwargs)
        return None if miss is None else miss.text

    def miss(self, args: Args, kwargs: Kwargs) -> Miss | None:
        """The first reason why this entry is not valid for a call; None if it is valid."""
        differences = self.state.differences(GlobalState.current())
        if differences:
            return Miss(differences[0].partition(":")[0], differences[0], "call it under the same modes each time")
        difference = self.shape.difference(args, kwargs)
        if difference is not None:
            return Miss("the arguments", difference, "pass the same number and names of arguments at each call", 1)
        first = next(self._misses(args, kwargs), None)
        if first is None or not first.varies:
            return first
        others = (miss for miss in self._misses(args, kwargs) if not miss.varies)  # sizes and numbers may vary without
        return replace(next(others, first), holding=first.holding)

    def violations(self, args: Args, kwargs: Kwargs) -> list[str]:
        """The texts of the guards that do not hold, whatever the modes and the shape of the call."""
        return [miss.text for miss in self._misses(args, kwargs)]

    def differing_sizes(self, args: Args, kwargs: Kwargs) -> dict[Source, frozenset[int]] | None:
        """`Guard.differing_sizes` of all guards; None if modes or arguments differ in other ways."""
        if self.state.differences(GlobalState.current()) or self.shape.difference(args, kwargs) is not None:
            return None
        differing: dict[Source, frozenset[int]] = {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for guard in self.guards:
                sizes = guard.differing_sizes(args, kwargs)
                if sizes is None:
                    return None
                for source, dimensions in sizes.items():
                    differing[source] = differing.get(source, frozenset()) | dimensions
        return differing

    def constant_sizes(self) -> list[tuple[str, int]]:
        """The path and dimension of each symbolic size that the program restricts to one value.

        For a Python int, the dimension is `NUMBER`.
        """
        return [place for guard in self.guards if isinstance(guard, SizesGuard) for place in guard.constant_places()]

    def _misses(self, args: Args, kwargs: Kwargs) -> Iterator[Miss]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # reading ``grad`` of a tensor that is not a leaf warns
            for position, guard in enumerate(self.guards):
                try:
                    violation = guard.violation(args, kwargs)
                except PATH_ERRORS as error:
                    violation = f"{guard.source.describe()}: cannot be compared ({error})"
                if violation is not None:
                    number = type(getattr(guard, "expected", None)) in (int, float)
                    sized = number or isinstance(guard, TensorGuard | SizesGuard)
                    varies = sized and guard.differing_sizes(args, kwargs) is not None
                    yield Miss(guard.source.describe(), violation, guard.remedy(), 2 + position, varies)


def build_prologue(
    guards: Sequence[Guard],
    inputs: Sequence[tuple[str, Source, Any]],
    *,
    state: GlobalState,
    shape: CallShape,
    non_overlapping: Iterable[tuple[str, str]] = (),
    sharing: Iterable[tuple[str, ...]] = (),
    exact_stride: bool = False,
    metadata: bool = True,
    sizes: SizesGuard | None = None,
    modes: bool = True,
) -> Prologue:
    """Compile guards to a prologue.

    Args:
        guards: the guards of the observer; each follows the guards of the objects on its path.
        inputs: name, path and current object of each input of the computation.
        state: PyTorch's modes during recording.
        shape: the shape of the recorded call.
        non_overlapping: pairs of names of inputs that must not share memory.
        sharing: groups of names of inputs that must share memory as they do now.
        exact_stride: the program read strides, so strides of dimensions of size 1 are compared, too.
        metadata: whether to check the class and metadata of the inputs.
        sizes: the conditions on symbolic sizes. The function returns the values of the symbols after the inputs.
        modes: whether to check PyTorch's modes.
    """
    sized_inputs = () if sizes is None else sizes.inputs
    varying = {id(sized.source): sized.shape for sized in sized_inputs if not isinstance(sized, VaryingNumber)}
    tensor_guards = {
        name: TensorGuard.of(source, value, exact_stride=exact_stride, sizes=varying.get(id(source)))
        for name, source, value in inputs
        if metadata and isinstance(value, torch.Tensor) and not isinstance(source, ConstantSource)
    }
    paths = {name: source for name, source, _ in inputs}
    overlap_guards = {(one, other): NonOverlappingGuard(paths[one], paths[other]) for one, other in non_overlapping}
    objects = {name: value for name, _, value in inputs}
    sharing_guards = {
        names: SharedMemoryGuard(
            paths[names[0]], tuple([paths[name] for name in names[1:]]), relations(*[objects[name] for name in names])
        )
        for names in sharing
    }
    lifted = {id(guard.source) for guard in tensor_guards.values()}
    plain = tuple(
        guard
        for guard in guards
        if not (isinstance(guard, Check) and guard.condition is TYPE and id(guard.source) in lifted)
    )
    return prologue_of(
        plain,
        inputs,
        tensor_guards,
        overlap_guards,
        sharing_guards,
        state=state,
        shape=shape,
        sizes=sizes,
        modes=modes,
    )


def prologue_of(
    guards: Sequence[Guard],
    inputs: Sequence[tuple[str, Source, Any]],
    tensor_guards: Mapping[str, TensorGuard],
    apart: Mapping[tuple[str, str], NonOverlappingGuard],
    sharing: Mapping[tuple[str, ...], SharedMemoryGuard],
    *,
    state: GlobalState,
    shape: CallShape,
    sizes: SizesGuard | None,
    modes: bool = True,
) -> Prologue:
    """Compile guards to a prologue.

    Args:
        guards: the guards on other objects than inputs.
        inputs: name, path and an object with the metadata of each input of the computation.
        tensor_guards, apart, sharing: the guards on inputs, by the names of these.
        state, shape, sizes, modes: as in `build_prologue`.
    """
    of_sizes = () if sizes is None else (sizes,)
    everything = (*guards, *tensor_guards.values(), *of_sizes, *apart.values(), *sharing.values())
    writer = PrologueWriter(inputs, sizes, modes=modes)
    source = writer.write(guards, tensor_guards, tuple(apart), sharing, state, shape)
    function = compile_source(source, "prologue", writer.namespace, title="prologue")
    return Prologue(everything, state, shape, function, source)
