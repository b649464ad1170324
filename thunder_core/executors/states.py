"""State that executors keep between calls of a program, such as the scales of eight-bit formats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from thunder_core.executors.derivative_pair import DerivativePair
from thunder_core.ir.bound_symbol import BoundSymbol

Factory = Callable[[BoundSymbol], Any]


@dataclass(frozen=True, slots=True)
class Stateful:
    """A function that takes a state before its arguments, which it is given when the program is made executable."""

    function: Callable[..., Any]
    make: Factory

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError(f"{self.function} was called before it had a state")


def with_state(pair: DerivativePair, make: Factory, bound: BoundSymbol) -> DerivativePair:
    """The pair as one without state: forward is `Stateful`, and the state is the first of the residuals."""
    fake = partial(_forward, pair.fake or pair.forward, make(bound))
    return DerivativePair(
        Stateful(partial(_forward, pair.forward), make), partial(_backward, pair.backward), fake, pure=False
    )


def _forward(forward: Callable[..., Any], state: Any, *args: Any, **kwargs: Any) -> tuple[Any, tuple[Any, ...]]:
    outputs, residuals = forward(state, *args, **kwargs)
    return outputs, (state, *residuals)


def _backward(backward: Callable[..., Any], residuals: Any, cotangents: Any, wanted: Any) -> Any:
    return backward(residuals[0], residuals[1:], cotangents, wanted)


@dataclass
class States:
    """The states of one program, made when a line first needs one.

    A line is known by its executor, its symbol and the user's line, and by its number among those that are alike: that
    is the same in all compilations of the program that run the same layers.
    """

    found: dict[str, Any] = field(default_factory=dict)

    def bind(self, lines: tuple[BoundSymbol, ...]) -> tuple[BoundSymbol, ...]:
        """The lines of a program with their states."""
        counts: Counter[str] = Counter()
        return tuple([self._bind(line, counts) if type(line.symbol.target) is Stateful else line for line in lines])

    def _bind(self, line: BoundSymbol, counts: Counter[str]) -> BoundSymbol:
        stateful: Stateful = line.symbol.target  # type: ignore[assignment]
        executor = line.symbol.executor or ""
        place = line.location.describe() if line.location is not None else ""
        stem = f"{executor}: {line.symbol.name} at {place}"
        counts[stem] += 1
        key = f"{stem} #{counts[stem]}"
        if key not in self.found:
            self.found[key] = stateful.make(line)
        bound = partial(stateful.function, self.found[key])
        return replace(line, symbol=replace(line.symbol, target=bound))
