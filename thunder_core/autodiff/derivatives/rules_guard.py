"""The guard of a program on the derivative rules that it was compiled with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from thunder_core.autodiff.derivatives.rules import Rule, all_rules
from thunder_core.checks.guard import Guard
from thunder_core.checks.source import ConstantSource, Names


class UsedRules:
    """The rules that the differentiation of a program looked up, and those that are registered now.

    Args:
        used: the rules by name; None for a symbol that had none.
    """

    __slots__ = ("_equal", "used")

    def __init__(self, used: Mapping[str, Rule | None]) -> None:
        self.used = used
        self._equal: Mapping[str, Rule] | None = None  # the latest mapping of all rules without a difference

    def changes(self) -> list[str]:
        """A sentence for each symbol with another rule now. Costs a comparison of two objects if no rule changed."""
        rules = all_rules()
        if rules is self._equal:
            return []
        pairs = [(name, rule, rules.get(name)) for name, rule in self.used.items()]
        changes = [_change(name, before, now) for name, before, now in pairs if now is not before]
        if not changes:
            self._equal = rules
        return changes


def _change(name: str, before: Rule | None, now: Rule | None) -> str:
    expected, got = (_described(name, rule) for rule in (before, now))
    return f"expected {expected}, got {got}" + (", another function" if expected == got else "")


def _described(name: str, rule: Rule | None) -> str:
    return f"none for {name}" if rule is None else f"{rule.__module__}.{rule.__qualname__} for {name}"


@dataclass(frozen=True, slots=True, eq=False)
class RulesGuard(Guard):
    """The symbols that a program differentiates have the same rules as when it was compiled."""

    kind: ClassVar[str] = "unchanged"

    @classmethod
    def of(cls, used: Mapping[str, Rule | None]) -> RulesGuard:
        """The guard for these rules by name; None for a symbol that had none."""
        return cls(ConstantSource(UsedRules(used), "derivative rules"))

    def remedy(self) -> str:
        return "load plugins with derivative rules before the first call: name them in the configuration"

    def failure(self, value: str, names: Names) -> str:
        return f"{value}.changes()"

    def differences(self, value: Any) -> list[str]:
        used: UsedRules = value
        return used.changes()
