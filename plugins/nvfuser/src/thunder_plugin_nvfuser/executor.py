"""The executor: the operations that it fuses, and the compilation of regions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.trace import Trace
from thunder_fusion import FusionExecutor
from thunder_plugin_nvfuser.compilation import compile_region
from thunder_plugin_nvfuser.fusible import can_fuse
from thunder_plugin_nvfuser.options import NvfuserOptions
from thunder_plugin_nvfuser.row import Kind
from thunder_plugin_nvfuser.script import save
from thunder_plugin_nvfuser.writer import Unwritable, write


@dataclass(frozen=True)
class NvfuserExecutor(FusionExecutor):
    """Compiles regions with nvFuser. Executors with equal options and the same library are equal.

    Compiled regions are not cached on disk, because nvFuser's direct interface cannot save them. Each process compiles
    each distinct region once.

    Attributes:
        options: as configured.
        library: the module ``nvfuser_direct``.
        device_type: the type of supported devices.
    """

    options: NvfuserOptions
    library: Any
    device_type: str = "cuda"
    name: str = "nvfuser"
    _compiled: Counter[str] = field(default_factory=Counter, compare=False, repr=False)

    @property
    def smallest(self) -> int:  # type: ignore[override]
        """The option ``smallest``."""
        return self.options.smallest

    def can_fuse(self, bound: BoundSymbol) -> bool | str:
        """Whether nvFuser supports the core-ATen operators of the operation."""
        return can_fuse(bound, self.options, self.device_type)

    def fuse(self, region: Trace) -> Callable[..., Sequence[Any]] | str:
        """Define and compile the region, or return the reason for which nvFuser rejects it."""
        try:
            written = write(region, self.options)
        except Unwritable as error:
            return f"its region cannot be defined: {error}"
        if not self.options.shape_only and written.kinds <= {Kind.MOVES}:
            return "its region only moves elements (option shape_only)"
        if self.options.fuel is not None and self._compiled["regions"] >= self.options.fuel:
            return f"{self.options.fuel} regions were compiled (option fuel)"
        self._compiled["regions"] += 1
        if self.options.save_definitions is not None:
            save(written, Path(self.options.save_definitions))
        return compile_region(written, self.library, self.options)
