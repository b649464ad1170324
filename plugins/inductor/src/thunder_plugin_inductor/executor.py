"""The executor: which lines it takes, and what becomes of their regions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from thunder_core.executors import FusionExecutor
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.trace import Trace
from thunder_plugin_inductor.fusible import can_fuse
from thunder_plugin_inductor.options import InductorOptions


@dataclass(frozen=True)
class InductorExecutor(FusionExecutor):
    """Compiles regions with Inductor. Those with equal options are equal.

    Attributes:
        options: as configured.
    """

    options: InductorOptions = field(default_factory=InductorOptions)
    name: str = "inductor"

    @property
    def smallest(self) -> int:  # type: ignore[override]
        """As configured."""
        return self.options.smallest

    def can_fuse(self, bound: BoundSymbol) -> bool | str:
        """Whether Inductor makes a kernel of the line. Asked of its core-ATen operators."""
        return can_fuse(bound, self.options.matmul == "inside")

    def fuse(self, region: Trace) -> Callable[..., Sequence[Any]] | str:
        """Compile the region; what Inductor refuses is refused here, with its words."""
        from thunder_plugin_inductor.compilation import compile_region

        return compile_region(region, self.options)


def from_options(options: InductorOptions) -> InductorExecutor:
    """The executor for these options."""
    return InductorExecutor(options)
