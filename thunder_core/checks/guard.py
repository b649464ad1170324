"""Guards: conditions under which a cache entry is valid for a call. Most are rows, see `thunder_core.checks.check`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from thunder_core.checks.source import PATH_ERRORS, Args, Kwargs, Names, Source

_LONGEST_VALUE = 80


@dataclass(frozen=True, slots=True)
class DispatchKey:
    """An expression that is cheap to evaluate in a call, by which the dispatcher looks up cache entries.

    Attributes:
        source: the path to the object; None for the numbers and names of arguments, and for PyTorch's modes.
        expression: Python with ``{value}`` for the object, or the name of a mode.
    """

    source: Source | None
    expression: str


@dataclass(frozen=True, slots=True, eq=False)
class Guard:
    """A condition on the object at the path ``source``. This is the base class of all guards."""

    source: Source

    @property
    def kind(self) -> str:
        """The condition in one or two words; most subclasses define a class variable."""
        return ""

    @property
    def paths(self) -> tuple[Source, ...]:
        """The other paths in the code of `failure`."""
        return ()

    def summary(self) -> str:
        """The expected value in a few words; empty if `kind` describes the condition completely."""
        return ""

    def describe(self) -> str:
        """The guard as one line of text: ``module.scale: value 2``."""
        return f"{self.source.describe()}: {self.kind} {self.summary()}".rstrip()

    def remedy(self) -> str:
        """How to change a program that is recompiled often because this guard fails."""
        return "use the same value in each call, or store a changing value in a tensor"

    def failure(self, value: str, names: Names) -> str:
        """A Python condition that is true if the guard fails, where ``value`` is Python for the object."""
        raise NotImplementedError

    def violation(self, args: Args, kwargs: Kwargs) -> str | None:
        """Why the guard fails in a call: ``module.scale: expected 2, got 3``; None if it holds.

        Raises:
            one of PATH_ERRORS: an object has a type that cannot be compared.
        """
        path = self.source.describe()
        try:
            value = self.source.read(args, kwargs)
        except PATH_ERRORS as error:
            return f"{path}: is missing ({error})"
        differences = self.differences(value)
        return f"{path}: {', '.join(differences)}" if differences else None

    def differing_sizes(self, args: Args, kwargs: Kwargs) -> dict[Source, frozenset[int]] | None:
        """The dimensions whose sizes differ in a call, by path of the tensor; None if anything else differs.

        For a Python int or float the dimension is `thunder_core.checks.sizes.NUMBER`; for strides that differ, although
        the sizes are equal, it is `STRIDES` there. The result is empty if symbolic sizes do not satisfy a condition.
        """
        try:
            return {} if self.violation(args, kwargs) is None else None
        except PATH_ERRORS:
            return None

    def differences(self, value: Any) -> list[str]:
        """How ``value`` differs from the expected one; defined by guards that do not override `violation`."""
        raise NotImplementedError

    def keys(self) -> Iterator[tuple[DispatchKey, Any]]:
        """The keys by which the dispatcher can look up the entry, with their expected values."""
        return iter(())


@dataclass(frozen=True)
class CallShape:
    """The number of positional arguments of a call, and the names of its keyword arguments in order."""

    positional: int
    keywords: tuple[str, ...] = ()

    @classmethod
    def of(cls, args: Args, kwargs: Kwargs) -> CallShape:
        """The shape of one call."""
        return cls(len(args), tuple(kwargs))

    def difference(self, args: Args, kwargs: Kwargs) -> str | None:
        """The text of an error if another call has other arguments; else None."""
        if len(args) != self.positional:
            return f"expected {self.positional} positional arguments, got {len(args)}"
        if tuple(kwargs) != self.keywords:
            return f"expected the keyword arguments {show(self.keywords)}, got {show(tuple(kwargs))}"
        return None


@dataclass(frozen=True, slots=True)
class Miss:
    """The first reason why a cache entry is not valid for a call.

    Attributes:
        path: the path that changed: ``module.scale``.
        text: the change: ``module.scale: expected 2, got 3``.
        remedy: how to change the program so that it is not recompiled for this reason.
        holding: the number of conditions that hold, of those that are checked before this one.
    """

    path: str
    text: str
    remedy: str
    holding: int = 0


def show(value: Any) -> str:
    """The shortened ``repr`` of a value, for messages; that of `object` if the class's own raises an exception."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001  the user's code may raise anything
        text = object.__repr__(value)
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 3] + "..."


def type_name(kind: type) -> str:
    """The name of a class for messages, with its module except for builtins and classes of ``torch``."""
    return kind.__qualname__ if kind.__module__ in ("builtins", "torch") else f"{kind.__module__}.{kind.__qualname__}"
