"""The guard of objects that a program compares by identity: no two of them are the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from thunder_core.checks.guard import Guard
from thunder_core.checks.source import PATH_ERRORS, Args, Kwargs, Names, Source


@dataclass(frozen=True, slots=True, eq=False)
class DistinctGuard(Guard):
    """Paths to objects of which no two are the same.

    Attributes:
        others: the paths after the first.
    """

    others: tuple[Source, ...]
    kind: ClassVar[str] = "distinct"

    @property
    def paths(self) -> tuple[Source, ...]:
        return self.others

    def summary(self) -> str:
        return ", ".join(source.describe() for source in self.others)

    def violation(self, args: Args, kwargs: Kwargs) -> str | None:
        known: dict[int, Source] = {}
        for source in (self.source, *self.others):
            try:
                value = source.read(args, kwargs)
            except PATH_ERRORS as error:
                return f"{source.describe()}: is missing ({error})"
            other = known.setdefault(id(value), source)
            if other is not source:
                return f"{source.describe()}: is now the same object as {other.describe()}"
        return None

    def failure(self, value: str, names: Names) -> str:
        identities = ", ".join(f"id({path})" for path in (value, *(other.expression(names) for other in self.others)))
        return f"len({{{identities}}}) != {len(self.others) + 1}"
