"""A fusion executor for tests: it runs regions of elementwise operations line by line, and keeps what it was given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.program import compile_trace
from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Trace
from thunder_fusion import FusionExecutor


@dataclass(frozen=True, eq=False)
class Pointwise(FusionExecutor):
    """Fuses elementwise lines and views.

    Attributes:
        tags: of the lines that it fuses.
        refuses: names of symbols; regions with one of them are refused.
        least: number of lines of the smallest region.
        regions: those that it was asked to compile.
    """

    name: str = "pointwise"
    tags: frozenset[Tag] = frozenset({Tag.ELEMENTWISE, Tag.SHAPE})
    refuses: tuple[str, ...] = ()
    least: int = 1
    regions: list[Trace] = field(default_factory=list)

    @property
    def smallest(self) -> int:  # type: ignore[override]
        """As ``least`` says."""
        return self.least

    def can_fuse(self, bound: BoundSymbol) -> bool | str:
        """By its tags."""
        return bool(bound.symbol.tags & self.tags) or f"{bound.symbol.name} is not elementwise"

    def fuse(self, region: Trace) -> Callable[..., tuple[Any, ...]] | str:
        """Its lines, one by one."""
        self.regions.append(region)
        refused = [bound.symbol.name for bound in region.symbols if bound.symbol.name in self.refuses]
        return f"it cannot compile {refused[0]}" if refused else compile_trace(region)

    def names(self) -> list[list[str]]:
        """The last parts of the names of the lines, by region."""
        return [[bound.symbol.name.rpartition(".")[2] for bound in region.symbols] for region in self.regions]
