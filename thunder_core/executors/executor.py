"""What an executor is: it answers, for each symbol, whether it runs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.symbol import Symbol


@dataclass(frozen=True, slots=True)
class Claimed:
    """The executor runs the symbol.

    Attributes:
        executor: its name.
        implementation: what is called instead, with the same arguments; None for the symbol itself.
    """

    executor: str
    implementation: Symbol | None = None


@dataclass(frozen=True, slots=True)
class Declined:
    """The executor does not run the symbol, and says why."""

    executor: str
    reason: str


Decision = Claimed | Declined


class Executor(Protocol):
    """Claims single symbols. `claim` is a pure query: it changes nothing, and may be asked any number of times."""

    @property
    def name(self) -> str:
        """The name in configurations and reports."""

    def claim(self, bound: BoundSymbol) -> Decision:
        """Whether this executor runs ``bound``."""
