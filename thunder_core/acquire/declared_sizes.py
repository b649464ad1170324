"""What users declare of the sizes of a call, by the option ``dynamic``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Kind = Literal["dynamic", "automatic", "static"]


@dataclass(frozen=True, slots=True)
class DeclaredSize:
    """What is declared of one size.

    Attributes:
        text: as the user wrote it.
        kind: ``"dynamic"``, a symbol, and an error where the program makes it a constant; ``"automatic"``, a symbol
            that may become one; ``"static"``, a constant.
        name: of a ``Dim``, the same for sizes that are equal; empty for others.
        lower, upper: the least and the greatest value that calls have.
    """

    text: str
    kind: Kind
    name: str = ""
    lower: int | None = None
    upper: int | None = None

    def includes(self, size: int) -> bool:
        """Whether calls may have this size."""
        return (self.lower is None or self.lower <= size) and (self.upper is None or size <= self.upper)


@dataclass(frozen=True, slots=True)
class DeclaredPlace:
    """A size of one call that is declared.

    Attributes:
        place: for people: ``x.shape[0]``.
        size: in this call.
    """

    place: str
    size: int
    declared: DeclaredSize


Places = Mapping[int, Mapping[int, DeclaredPlace]]
"""The declared sizes of one call: by the id of their tensor and the dimension."""
