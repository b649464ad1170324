"""A call that needs values of tensors, and what a resolver says about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from thunder_core.acquire.arguments import Call
from thunder_core.acquire.data_dependence import ValueNeeded
from thunder_core.ir.symbol import Symbol


@dataclass(frozen=True)
class ValueRequest:
    """A call whose result needs values that do not exist while a program is recorded.

    Attributes:
        symbol, args, kwargs: the call, with the program's tensors.
        call: its tensors and their variables.
        cause: why fakes do not tell the result: `ValueNeeded` for a call that gives Python a value, another of
            `thunder_core.acquire.data_dependence.EXCEPTIONS` for one whose metadata depends on values.
    """

    symbol: Symbol
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    call: Call
    cause: Exception

    @property
    def reads(self) -> bool:
        """Whether the call gives Python a value."""
        return isinstance(self.cause, ValueNeeded)


@dataclass(frozen=True)
class Resolved:
    """The result of a call, as the program gets it."""

    result: Any


@dataclass(frozen=True)
class Declined:
    """A resolver does not know the result.

    Attributes:
        reason: why not.
        blocking: what the program did before the call keeps the value from being known; the error says so.
    """

    reason: str
    blocking: bool = False
