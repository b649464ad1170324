"""The compiled graphs, for reports. Dynamo owns them, and drops those of deleted code."""

from __future__ import annotations

import weakref
from typing import Any, Final

_programs: Final[list[weakref.ref[Any]]] = []


def remember(program: Any) -> Any:
    """Register a compiled graph, and return it."""
    _programs[:] = [one for one in _programs if one() is not None]
    _programs.append(weakref.ref(program))
    return program


def programs() -> list[Any]:
    """The graphs that Dynamo still holds, oldest first."""
    return [program for one in _programs if (program := one()) is not None]


def forget_programs() -> None:
    """Unregister all graphs."""
    _programs.clear()
