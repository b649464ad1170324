"""The signature of rules, and their table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from thunder_core.symbols.row import expand

Backward: TypeAlias = Callable[..., Any]
"""From the cotangents of the result's tensors to a tuple of gradients of the parameters, or to that of the first."""

Result: TypeAlias = tuple[Any, Backward] | Any
"""The result of the call and its backward; or NotImplemented, whose type is Any."""

Rule: TypeAlias = Callable[..., Result]

RULES: Final[dict[str, Rule]] = {}
"""The rules by the dotted name of their symbol."""


def rule(name: str) -> Callable[[Rule], Rule]:
    """A decorator that adds the rule of a symbol, by its dotted name; ``F.`` and ``Tensor.`` are short as in tables."""

    def add(function: Rule) -> Rule:
        full = expand(name)
        assert full not in RULES, f"{full} has two rules"
        RULES[full] = function
        return function

    return add
