"""A fusion executor for tests, which runs regions of elementwise operations unfused and records them."""

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
    """Fuses elementwise operations and views.

    Attributes:
        tags: tags of the operations that it fuses.
        refuses: names of symbols; regions with one of them are rejected.
        least: least number of operations in a region.
        regions: the regions that it was requested to compile.
    """

    name: str = "pointwise"
    tags: frozenset[Tag] = frozenset({Tag.ELEMENTWISE, Tag.SHAPE})
    refuses: tuple[str, ...] = ()
    least: int = 1
    regions: list[Trace] = field(default_factory=list)

    @property
    def smallest(self) -> int:  # type: ignore[override]
        """The value of ``least``."""
        return self.least

    def can_fuse(self, bound: BoundSymbol) -> bool | str:
        """Decide by the tags of the symbol."""
        return bool(bound.symbol.tags & self.tags) or f"{bound.symbol.name} is not elementwise"

    def fuse(self, region: Trace) -> Callable[..., tuple[Any, ...]] | str:
        """Run its operations one by one."""
        self.regions.append(region)
        refused = [bound.symbol.name for bound in region.symbols if bound.symbol.name in self.refuses]
        return f"it cannot compile {refused[0]}" if refused else compile_trace(region)

    def names(self) -> list[list[str]]:
        """The last components of the names of the operations, by region."""
        return [[bound.symbol.name.rpartition(".")[2] for bound in region.symbols] for region in self.regions]
