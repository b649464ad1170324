"""Symbols of executors' functions, as they stand in executable traces."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from thunder_core.ir.import_paths import import_path
from thunder_core.ir.symbol import Symbol, Tag


@lru_cache(maxsize=4096)
def executor_symbol(
    function: Callable[..., Any], executor: str, tags: frozenset[Tag] = frozenset(), reference: Symbol | None = None
) -> Symbol:
    """The symbol of one of an executor's functions, which does the work of ``reference``; the same for equal calls.

    A function at the top level of a module is printed by its name. For any other the trace cannot be saved.
    """
    path = import_path(function)
    if path is not None:
        return Symbol(".".join(path), function, tags=tags, executor=executor, reference=reference)
    name = getattr(function, "__name__", "")
    name = name if name.isidentifier() else f"{executor}_call"
    return Symbol(name, function, tags=tags | {Tag.LOCAL}, executor=executor, reference=reference)
