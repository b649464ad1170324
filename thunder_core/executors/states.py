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
    """A function that takes a state before its arguments; `States.bind` binds the state."""

    function: Callable[..., Any]
    make: Factory

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError(f"{self.function} was called before it had a state")


class ReplayableState:
    """Base class of states whose ops may be part of a captured CUDA graph.

    Apart from returning its results, such an op only works on the device, in tensors whose addresses do not change
    after the first call. A replay repeats the work on the device; code on the host runs only during capture.
    """

    __slots__ = ()


class _WithState(partial[Any]):
    """A function with its state bound as the last bound argument."""

    @property
    def state(self) -> Any:
        """The result of `Stateful.make`."""
        return self.args[-1]


def is_replayable(op: BoundSymbol) -> bool:
    """Whether an op of an executable program has a `ReplayableState`, so that CUDA graphs may capture it."""
    target = op.symbol.target
    return isinstance(target, _WithState) and isinstance(target.state, ReplayableState)


def with_state(pair: DerivativePair, make: Factory, bound: BoundSymbol) -> DerivativePair:
    """A pair without a state argument: forward is `Stateful`, and the state is the first of the residuals."""
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
    """The states of one program, created when an op first needs one.

    The key of a state consists of the op's executor and the factory's ``name(op)``; for a factory without ``name``, of
    the op's symbol and the user's line. Ops with equal keys are numbered. The numbers are the same in all compilations
    of the program that run the same layers.

    Attributes:
        by_key: the states by key.
        companions: the states of each executor, in the order of their creation.
        loaded: loaded entries of state dicts, for states that are not created yet.
    """

    by_key: dict[str, Any] = field(default_factory=dict)
    companions: dict[str, list[Any]] = field(default_factory=dict)
    loaded: dict[str, dict[str, Any]] = field(default_factory=dict)

    def bind(self, ops: tuple[BoundSymbol, ...]) -> tuple[BoundSymbol, ...]:
        """The ops of a program, with their states bound."""
        counts: Counter[str] = Counter()
        return tuple([self._bind(op, counts) if type(op.symbol.target) is Stateful else op for op in ops])

    def state_dict(self) -> dict[str, Any]:
        """The entries of all states with a ``state_dict`` method, named ``<key>.<entry>``."""
        states = {key: state.state_dict() for key, state in self.by_key.items() if hasattr(state, "state_dict")}
        both = {**self.loaded, **states}
        return {f"{key}.{name}": value for key, entries in both.items() for name, value in entries.items()}

    def load_state_dict(self, entries: Mapping[str, Any]) -> None:
        """Load the entries of a `state_dict` into the states; states that do not exist yet load them when created."""
        by_key: dict[str, dict[str, Any]] = {}
        for name, value in entries.items():
            key, _, entry = name.rpartition(".")
            by_key.setdefault(key, {})[entry] = value
        for key, state_entries in by_key.items():
            if key in self.by_key:
                self.by_key[key].load_state_dict(state_entries)
            else:
                self.loaded[key] = state_entries

    def _bind(self, op: BoundSymbol, counts: Counter[str]) -> BoundSymbol:
        stateful: Stateful = op.symbol.target  # type: ignore[assignment]
        executor = op.symbol.executor or ""
        name = getattr(stateful.make, "name", None)
        place = op.location.describe() if op.location is not None else ""
        stem = f"{executor}.{name(op)}" if name is not None else f"{executor}: {op.symbol.name} at {place}"
        counts[stem] += 1
        key = stem if name is not None and counts[stem] == 1 else f"{stem} #{counts[stem]}"
        if key not in self.by_key:
            self.by_key[key] = self._register(key, executor, stateful.make(op))
        bound = _WithState(stateful.function, self.by_key[key])
        return replace(op, symbol=replace(op.symbol, target=bound))

    def _register(self, key: str, executor: str, state: Any) -> Any:
        companions = self.companions.setdefault(executor, [])
        companions.append(state)
        if hasattr(state, "joins"):
            state.joins(companions)
        if key in self.loaded:
            state.load_state_dict(self.loaded.pop(key))
        return state
