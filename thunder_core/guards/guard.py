"""Guards: what must hold for a cache entry to be valid. Most are rows, see `thunder_core.guards.check`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from thunder_core.guards.source import PATH_ERRORS, Args, Kwargs, Names, Source

_LONGEST_VALUE = 80


@dataclass(frozen=True, slots=True)
class Key:
    """Something cheap to read from a call, by which cache entries are looked up.

    Attributes:
        source: the path to the object that is read; None for the form of the call and for PyTorch's modes.
        expression: Python for what is read, with ``{value}`` for the object, or the name of a mode.
    """

    source: Source | None
    expression: str


@dataclass(frozen=True, slots=True, eq=False)
class Guard:
    """Root of the family: something that must hold of the object that ``source`` leads to."""

    source: Source

    @property
    def kind(self) -> str:
        """What must hold, in a word or two: a class variable of most guards."""
        return ""

    @property
    def paths(self) -> tuple[Source, ...]:
        """Other paths that `failure` reads."""
        return ()

    def summary(self) -> str:
        """What is expected, in a few words; empty where the kind says it all."""
        return ""

    def describe(self) -> str:
        """The guard, for people: ``module.scale: value 2``."""
        return f"{self.source.describe()}: {self.kind} {self.summary()}".rstrip()

    def remedy(self) -> str:
        """How to change a program that is compiled again and again because this does not hold."""
        return "make it the same at each call, or store what changes in a tensor"

    def failure(self, value: str, names: Names) -> str:
        """A Python condition that is true when the guard fails; ``value`` is an expression of the object."""
        raise NotImplementedError

    def violation(self, args: Args, kwargs: Kwargs) -> str | None:
        """Why the guard fails for a call: ``module.scale: expected 2, got 3``; None when it holds.

        Raises:
            one of PATH_ERRORS: when an object is of a kind that cannot be compared.
        """
        path = self.source.describe()
        try:
            value = self.source.read(args, kwargs)
        except PATH_ERRORS as error:
            return f"{path}: is missing ({error})"
        differences = self.differences(value)
        return f"{path}: {', '.join(differences)}" if differences else None

    def differences(self, value: Any) -> list[str]:
        """What of ``value`` is not as expected; for guards whose `violation` reads nothing else."""
        raise NotImplementedError

    def keys(self) -> Iterator[tuple[Key, Any]]:
        """What entries can be looked up by, each with the value that this entry expects."""
        return iter(())


@dataclass(frozen=True, slots=True)
class Change:
    """The first reason why an entry does not serve a call.

    Attributes:
        place: what changed: ``module.scale``.
        text: how, with the place: ``module.scale: expected 2, got 3``.
        remedy: how to change the program so that it is not compiled again for this.
    """

    place: str
    text: str
    remedy: str


def show(value: Any) -> str:
    """``value`` for a message, shortened; objects whose ``repr`` fails are shown by their class."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001  the user's code may raise anything
        text = object.__repr__(value)
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 3] + "..."


def type_name(kind: type) -> str:
    """A class for a message: bare for builtins, with its module otherwise."""
    return kind.__qualname__ if kind.__module__ in ("builtins", "torch") else f"{kind.__module__}.{kind.__qualname__}"
