"""Derivatives of lines, kept on disk: to trace them takes most of the time of differentiation."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, Final

from thunder_core.autodiff.derivative import Derivative, Query
from thunder_core.autodiff.rules import find_rule
from thunder_core.executors.kept_lines import as_bytes, from_bytes, question, table_of_lines
from thunder_core.executors.kept_tables import KeptTable

_TITLE: Final = "derivatives 1"
_REST: Final = tuple([own.name for own in fields(Derivative) if own.name not in ("bound", "forward")])


def read(key: Any, query: Query) -> Derivative | None:
    """The derivative that another process found for an equal query; None if there is none."""
    table, asked = _table(), _question(key, query)
    data = None if table is None or asked is None else table.get(asked)
    if data is None:
        return None
    try:
        args, kwargs, output, forward, rest = from_bytes(data)
    except LookupError:
        return None
    bound = replace(query.bound, args=args, kwargs=kwargs, output=output)
    return Derivative(bound, tuple([line or bound for line in forward]), **rest)


def write(key: Any, query: Query, derivative: Derivative) -> None:
    """Keep a derivative, if that can be done. It has no answers of executors."""
    table, asked = _table(), _question(key, query)
    if table is None or asked is None:
        return
    bound, forward = derivative.bound, [None if line is derivative.bound else line for line in derivative.forward]
    rest = {name: getattr(derivative, name) for name in _REST}
    data = as_bytes((bound.args, bound.kwargs, bound.output, forward, rest))
    if data is not None:
        table.put(asked, data)


def _table() -> KeptTable | None:
    return table_of_lines(_TITLE, "thunder_core.acquire", "thunder_core.autodiff", "thunder_core.passes.functionalize")


def _question(key: Any, query: Query) -> str | None:
    rule = find_rule(query.bound.symbol)
    own = rule is None or rule.__module__.split(".")[0] == "thunder_core"
    return question(key, query.bound) if own and key is not None else None
