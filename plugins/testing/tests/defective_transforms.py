"""Transforms with one defect each."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.trace import Trace
from thunder_core.ir.tree import map_leaves
from thunder_core.passes.transform import Phase, Place, Transform, TransformContext
from thunder_core.symbols.registry import registry


@dataclass(frozen=True, eq=False)
class OnLines(Transform):
    """Replaces the lines of a trace by what a function makes of them.

    Attributes:
        change: takes the lines and the phase.
    """

    change: Callable[[tuple[BoundSymbol, ...], Phase], tuple[BoundSymbol, ...]]
    name: ClassVar[str] = "defective"
    place: ClassVar[Place] = Place.BEFORE_DIFFERENTIATION

    def run(self, trace: Trace, context: TransformContext) -> Trace:
        return trace.with_symbols(self.change(trace.symbols, context.phase), self.name)


def at(place: Place, change: Any) -> Transform:
    kind = type("OnLines", (OnLines,), {"place": place})
    made: Transform = kind(change)
    return made


def sums_for_products(lines: tuple[BoundSymbol, ...], phase: Phase) -> tuple[BoundSymbol, ...]:
    product, total = registry.symbol_of(torch.mul), registry.symbol_of(torch.add)
    return tuple([replace(line, symbol=total) if line.symbol is product else line for line in lines])


def only_backward(lines: tuple[BoundSymbol, ...], phase: Phase) -> tuple[BoundSymbol, ...]:
    return sums_for_products(lines, phase) if phase is Phase.BACKWARD else lines


def without_the_last_write(lines: tuple[BoundSymbol, ...], phase: Phase) -> tuple[BoundSymbol, ...]:
    """The line is left out, and what it gave is what it took."""
    writes = [index for index, line in enumerate(lines) if line.effects.mutates and line.args]
    if not writes:
        return lines
    dropped = lines[writes[-1]]
    old, new = dropped.outputs()[0], dropped.inputs()[0]

    def value(leaf: Any) -> Any:
        return new if leaf == old else leaf

    kept = [line.map_arguments(value) for line in lines if line is not dropped]
    view = registry.symbol_of(torch.Tensor.detach)
    return (*kept, replace(dropped, symbol=view, args=(new,), kwargs={}, effects=type(dropped.effects)()))


def other_order_of_draws(lines: tuple[BoundSymbol, ...], phase: Phase) -> tuple[BoundSymbol, ...]:
    made = list(lines)
    random = [index for index, line in enumerate(lines) if line.effects.random]
    for first, second in itertools.pairwise(random):
        read = {proxy.name for proxy in lines[second].inputs()}
        if second == first + 1 and read.isdisjoint(proxy.name for proxy in lines[first].outputs()):
            made[first], made[second] = made[second], made[first]
    return tuple(made)


def without_the_first_line(lines: tuple[BoundSymbol, ...], phase: Phase) -> tuple[BoundSymbol, ...]:
    return lines[1:]


def failing(lines: tuple[BoundSymbol, ...], phase: Phase) -> tuple[BoundSymbol, ...]:
    raise KeyError("no such line")


def itself(lines: tuple[BoundSymbol, ...], phase: Phase) -> tuple[BoundSymbol, ...]:
    return lines


@dataclass(frozen=True, eq=False)
class LosesResult(Transform):
    """The first result is returned in the place of the last."""

    name: ClassVar[str] = "defective"
    place: ClassVar[Place] = Place.BEFORE_DIFFERENTIATION

    def run(self, trace: Trace, context: TransformContext) -> Trace:
        return replace(trace, output=trace.output[:-1])


@dataclass(frozen=True, eq=False)
class Alternates(Transform):
    """Every second compilation has a line more."""

    name: ClassVar[str] = "defective"
    place: ClassVar[Place] = Place.LAST
    runs: Iterator[int] = field(default_factory=itertools.count)

    def run(self, trace: Trace, context: TransformContext) -> Trace:
        if context.phase is Phase.BACKWARD or next(self.runs) % 2 or not trace.symbols:
            return trace
        last = trace.symbols[-1]
        renamed = map_leaves(lambda leaf: replace(leaf, name=f"{leaf.name}_again", storage=10**6), last.output)
        return trace.with_symbols([*trace.symbols, replace(last, output=renamed)], self.name)


@dataclass(frozen=True)
class Never(Transform):
    """Runs for no program."""

    name: ClassVar[str] = "defective"
    place: ClassVar[Place] = Place.LAST

    def applies(self, context: TransformContext) -> bool:
        return False


@dataclass(frozen=True, eq=False)
class OnState(Transform):
    """Changes state dicts.

    Attributes:
        out, back: applied to what goes out and to what comes in.
    """

    out: Callable[[dict[str, Any]], dict[str, Any]]
    back: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    name: ClassVar[str] = "defective"
    place: ClassVar[Place] = Place.LAST

    def on_state_dict(self, state: dict[str, Any]) -> dict[str, Any]:
        return self.out(state)

    def on_load_state_dict(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        return self.back(state)


@dataclass(frozen=True, eq=False)
class AddsBuffer(OnState):
    """The first run of a module gives it a buffer, which is not in its state dict."""

    modules: list[torch.nn.Module] = field(default_factory=list)

    def on_module(self, module: torch.nn.Module) -> None:
        self.modules.append(module)

    def before_first_run(self, *arguments: Any) -> None:
        self.modules[-1].register_buffer("added", torch.zeros(2))


def without_the_buffer(state: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in state.items() if name != "added"}


def doubled(state: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value * 2 for name, value in state.items()}


def doubled_in_place(state: dict[str, Any]) -> dict[str, Any]:
    with torch.no_grad():
        for value in state.values():
            value.mul_(2)
    return state


def halved(state: Mapping[str, Any]) -> dict[str, Any]:
    return {name: (value / 2).to(value.dtype) for name, value in state.items()}


def prefixed(state: dict[str, Any]) -> dict[str, Any]:
    return {f"own.{name}": value for name, value in state.items()}


def without_prefix(state: Mapping[str, Any]) -> dict[str, Any]:
    return {name.removeprefix("own."): value for name, value in state.items()}


def same(state: Any) -> Any:
    return state
