"""The outer form of a call."""

from __future__ import annotations

from dataclasses import dataclass

from thunder_core.guards.guard import show
from thunder_core.guards.source import Args, Kwargs


@dataclass(frozen=True)
class CallShape:
    """How many positional arguments a call has, and the names of the others in order."""

    positional: int
    keywords: tuple[str, ...] = ()

    @classmethod
    def of(cls, args: Args, kwargs: Kwargs) -> CallShape:
        """The shape of one call."""
        return cls(len(args), tuple(kwargs))

    def difference(self, args: Args, kwargs: Kwargs) -> str | None:
        """What is different in another call."""
        if len(args) != self.positional:
            return f"expected {self.positional} positional arguments, got {len(args)}"
        if tuple(kwargs) != self.keywords:
            return f"expected the keyword arguments {show(self.keywords)}, got {show(tuple(kwargs))}"
        return None
