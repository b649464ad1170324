"""The programs that graphs of Dynamo became, for reports. Dynamo holds them, and drops those of code that is gone."""

from __future__ import annotations

import weakref
from typing import Any, Final

_programs: Final[list[weakref.ref[Any]]] = []


def remember(program: Any) -> Any:
    """Note a compiled graph, and return it."""
    _programs[:] = [one for one in _programs if one() is not None]
    _programs.append(weakref.ref(program))
    return program


def programs() -> list[Any]:
    """Those that Dynamo still has, oldest first."""
    return [program for one in _programs if (program := one()) is not None]


def forget_programs() -> None:
    """Dynamo forgets its graphs."""
    _programs.clear()
