"""State that executors keep between calls of a program, such as the scales of eight-bit formats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from thunder_core.executors.executor import DerivativePair
from thunder_core.ir.bound_symbol import BoundSymbol

Factory = Callable[[BoundSymbol], Any]


@dataclass(frozen=True, slots=True)
class Stateful:
    """A function that takes a state before its arguments, which it is given when the program is made executable."""

    function: Callable[..., Any]
    make: Factory

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError(f"{self.function} was called before it had a state")


class ReplayableState:
    """Base class of states whose lines may be part of a captured CUDA graph.

    Such a line does nothing besides returning its results but work on the device, in tensors that stay where they are
    from the first call on. A replay does that again; what the line does on the host, it does when it is captured.
    """

    __slots__ = ()


class WithState(partial[Any]):
    """A function that is given its state, the last of the arguments that are bound."""

    @property
    def state(self) -> Any:
        """The result of `Stateful.make`."""
        return self.args[-1]


def is_replayable(line: BoundSymbol) -> bool:
    """Whether a line of an executable program has a state that replays of a CUDA graph keep right."""
    target = line.symbol.target
    return isinstance(target, WithState) and isinstance(target.state, ReplayableState)


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
    """The states of one program, created when a line first needs one.

    A line is known by its executor and by what the factory calls it (``name``); where that has no names, by its symbol
    and the user's line. Of lines that are alike, it is known by its number among them: that is the same in all
    compilations of the program that run the same layers.

    Attributes:
        found: the states by the keys of their lines.
        companions: those of each executor, in the order of their creation.
        loaded: entries of state dicts, for states that no line has needed so far.
    """

    found: dict[str, Any] = field(default_factory=dict)
    companions: dict[str, list[Any]] = field(default_factory=dict)
    loaded: dict[str, dict[str, Any]] = field(default_factory=dict)

    def bind(self, lines: tuple[BoundSymbol, ...]) -> tuple[BoundSymbol, ...]:
        """The lines of a program with their states."""
        counts: Counter[str] = Counter()
        return tuple([self._bind(line, counts) if type(line.symbol.target) is Stateful else line for line in lines])

    def state_dict(self) -> dict[str, Any]:
        """What the states that have a ``state_dict`` return; their names come before those of the entries."""
        states = {key: state.state_dict() for key, state in self.found.items() if hasattr(state, "state_dict")}
        both = {**self.loaded, **states}
        return {f"{key}.{name}": value for key, entries in both.items() for name, value in entries.items()}

    def load_state_dict(self, entries: Mapping[str, Any]) -> None:
        """Give the states their entries of a `state_dict`; those that do not exist yet get them at their creation."""
        by_key: dict[str, dict[str, Any]] = {}
        for name, value in entries.items():
            key, _, own = name.rpartition(".")
            by_key.setdefault(key, {})[own] = value
        for key, own_entries in by_key.items():
            if key in self.found:
                self.found[key].load_state_dict(own_entries)
            else:
                self.loaded[key] = own_entries

    def _bind(self, line: BoundSymbol, counts: Counter[str]) -> BoundSymbol:
        stateful: Stateful = line.symbol.target  # type: ignore[assignment]
        executor = line.symbol.executor or ""
        name = getattr(stateful.make, "name", None)
        place = line.location.describe() if line.location is not None else ""
        stem = f"{executor}.{name(line)}" if name is not None else f"{executor}: {line.symbol.name} at {place}"
        counts[stem] += 1
        key = stem if name is not None and counts[stem] == 1 else f"{stem} #{counts[stem]}"
        if key not in self.found:
            self.found[key] = self._made(key, executor, stateful.make(line))
        bound = WithState(stateful.function, self.found[key])
        return replace(line, symbol=replace(line.symbol, target=bound))

    def _made(self, key: str, executor: str, state: Any) -> Any:
        companions = self.companions.setdefault(executor, [])
        companions.append(state)
        if hasattr(state, "joins"):
            state.joins(companions)
        if key in self.loaded:
            state.load_state_dict(self.loaded.pop(key))
        return state
