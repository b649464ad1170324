"""What a rule is, and the table of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from thunder_core.symbols.row import expand

Backward: TypeAlias = Callable[..., Any]
"""From the cotangents of the result's tensors to gradients of the parameters; a lone gradient is the first one's."""

Result: TypeAlias = tuple[Any, Backward] | Any
"""What a rule returns: what the call returns, and its backward; or NotImplemented, whose type is Any."""

Rule: TypeAlias = Callable[..., Result]

RULES: Final[dict[str, Rule]] = {}
"""Filled by `rule`."""


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Make a function the rule of symbols, by their dotted names; ``F.`` and ``Tensor.`` are short as in the tables."""

    def add(function: Rule) -> Rule:
        for name in map(expand, names):
            assert name not in RULES, f"{name} has two rules"
            RULES[name] = function
        return function

    return add
