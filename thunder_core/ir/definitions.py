"""Which lines define and use the values of a program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.tree import list_proxies


def producers_of(lines: Iterable[BoundSymbol]) -> dict[str, BoundSymbol]:
    """The line that defines each value, by name; inputs of the program are not among them."""
    return {proxy.name: line for line in lines for proxy in line.outputs()}


@dataclass(frozen=True, slots=True)
class Uses:
    """Who reads each value of a program, by name.

    Attributes:
        users: lines, in order; a line that reads a value twice is there twice.
        returned: how often each value is in the output of the program.
    """

    users: Mapping[str, Sequence[BoundSymbol]]
    returned: Mapping[str, int]

    @classmethod
    def of(cls, lines: Iterable[BoundSymbol], output: Any) -> Uses:
        """The uses in ``lines`` and in the nested containers ``output``."""
        users: dict[str, list[BoundSymbol]] = {}
        for line in lines:
            for proxy in line.inputs():
                users.setdefault(proxy.name, []).append(line)
        return cls(users, Counter([proxy.name for proxy in list_proxies((output,))]))


def needed_ops(ops: Sequence[BoundSymbol], needed: Iterable[str]) -> list[BoundSymbol]:
    """The ops that the values named ``needed`` depend on, and those with effects."""
    live = set(needed)
    kept = []
    for op in reversed(ops):
        if not op.effects.pure or any(proxy.name in live for proxy in op.outputs()):
            kept.append(op)
            live.update(proxy.name for proxy in op.inputs())
    return kept[::-1]
