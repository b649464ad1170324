"""The source of objects that a program makes: each call gets an object of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from thunder_core.guards.source import Args, Kwargs, Names, Source


@dataclass(frozen=True, slots=True, eq=False)
class MadeSource(Source):
    """``make(*parts)``, one object in each call; ``label`` is for messages.

    Attributes:
        parts: where the arguments are found. An object that is part of several is made once.
    """

    make: Callable[..., Any] = field(repr=False)
    parts: tuple[Source, ...]
    label: str

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def describe(self) -> str:
        return self.label

    def read(self, args: Args, kwargs: Kwargs) -> Any:
        return self.make(*[part.read(args, kwargs) for part in self.parts])

    def step(self, base: str, names: Names) -> str:
        bind: Callable[[Source], Any] | None = getattr(names, "bind", None)
        for part in self.parts:
            if bind is not None and isinstance(part, MadeSource):
                bind(part)
        parts = ", ".join([part.expression(names) for part in self.parts])
        return f"{names.constant(self.make, 'make_' + self.label)}({parts})"
