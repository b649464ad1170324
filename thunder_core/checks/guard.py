"""Guards: conditions under which a cache entry is valid for a call. Most are rows, see `thunder_core.checks.check`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from itertools import islice
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, Final

import torch

from thunder_core.checks.plain import is_plain
from thunder_core.checks.source import PATH_ERRORS, Args, Kwargs, Names, Source
from thunder_core.ir.import_paths import module_of

_LONGEST_VALUE = 80
_MOST_ITEMS: Final = 20
_NAMED: Final = frozenset({BuiltinFunctionType, FunctionType, MethodType, ModuleType})
"""Types of objects whose ``repr`` is a name."""


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
        varies: whether it is a size or a number, which one program may serve if nothing else changed.
    """

    path: str
    text: str
    remedy: str
    holding: int = 0
    varies: bool = False


def show(value: Any) -> str:
    """A value for messages, at most 80 characters: plain values by their ``repr``, tensors by type, dtype and shape.

    Of containers and dataclasses the items are shown in this way, and other objects by their class and address:
    messages and logs do not get contents of tensors.
    """
    try:
        text = _shown(value)
    except Exception:  # noqa: BLE001  the user's code may raise anything
        text = object.__repr__(value)
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 3] + "..."


def _shown(value: Any) -> str:
    kind = type(value)
    if isinstance(value, torch.Tensor) or hasattr(kind, "__array_interface__"):
        return f"{kind.__qualname__} {str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}"
    if is_plain(value) or isinstance(value, type) or kind in _NAMED:
        return repr(value)
    if isinstance(value, dict):
        return (
            f"{{{', '.join([f'{_shown(key)}: {_shown(item)}' for key, item in islice(value.items(), _MOST_ITEMS)])}}}"
        )
    if isinstance(value, list | tuple | set | frozenset):
        items = [_shown(item) for item in islice(value, _MOST_ITEMS)]
        brackets = "[]" if isinstance(value, list) else "()" if isinstance(value, tuple) else "{}"
        return f"{brackets[0]}{', '.join(items)}{',' if brackets == '()' and len(items) == 1 else ''}{brackets[1]}"
    if is_dataclass(value):
        shown = [f"{each.name}={_shown(getattr(value, each.name))}" for each in fields(value)[:_MOST_ITEMS]]
        return f"{kind.__qualname__}({', '.join(shown)})"
    return object.__repr__(value)


def type_name(kind: type) -> str:
    """The name of a class for messages, with its module except for builtins and classes of ``torch``."""
    return kind.__qualname__ if module_of(kind) in ("builtins", "torch") else f"{module_of(kind)}.{kind.__qualname__}"
