"""The left sides of assignments: where the results of a line go."""

from __future__ import annotations

from typing import Any

from thunder_core.ir.proxy import PROXY_TYPES


def is_target(output: Any) -> bool:
    """Whether ``output`` can be taken apart by an assignment: sequences of proxies, and of literals to ignore."""
    if isinstance(output, tuple | list):
        return all(is_target(item) for item in output)
    return not isinstance(output, dict | slice)


def outer_target(output: Any) -> str:
    """The target without the parentheses that Python does not need."""
    text = _target(output)
    return text[1:-1] if isinstance(output, tuple) and len(output) > 1 else text


def _target(output: Any) -> str:
    if isinstance(output, PROXY_TYPES):
        return output.name
    if not isinstance(output, tuple | list):
        return "_"
    items = ", ".join([_target(item) for item in output])
    if isinstance(output, list):
        return f"[{items}]"
    return f"({items},)" if len(output) == 1 else f"({items})"
