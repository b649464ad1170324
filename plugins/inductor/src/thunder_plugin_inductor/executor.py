"""The executor: which lines it takes, and what becomes of their regions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from thunder_core.executors.artifacts import source_hash
from thunder_core.ir.aliases import Aliases
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.program import compile_sizes
from thunder_core.ir.trace import Trace
from thunder_fusion import FusionExecutor
from thunder_plugin_inductor.fusible import can_fuse
from thunder_plugin_inductor.options import InductorOptions
from thunder_plugin_inductor.templates import parsed_when_used
from thunder_plugin_inductor.writes import can_write


@dataclass(frozen=True)
class InductorExecutor(FusionExecutor):
    """Compiles regions with Inductor. Those with equal options are equal.

    Attributes:
        options: as configured.
    """

    options: InductorOptions = field(default_factory=InductorOptions)
    name: str = "inductor"
    varying_sizes = True

    def __post_init__(self) -> None:
        """Raises OptionError for settings that Inductor does not have."""
        if self.options.inductor_config:
            from thunder_plugin_inductor.settings import refuse_unknown

            refuse_unknown(self.options.inductor_config)

    @property
    def smallest(self) -> int:  # type: ignore[override]
        """As configured."""
        return self.options.smallest

    def can_fuse(self, bound: BoundSymbol) -> bool | str:
        """Whether Inductor makes a kernel of the line. Asked of its core-ATen operators."""
        return can_fuse(bound, self.options)

    def can_write(self, bound: BoundSymbol) -> bool | str:
        """Whether Inductor makes a store of the line that does not copy the rest of the memory."""
        return can_write(bound)

    def fuse(self, region: Trace) -> Callable[..., Sequence[Any]] | str:
        """Compile the region; what Inductor refuses is refused here, with its words."""
        return self.fuse_all([region])[0]

    def fuse_all(self, regions: Sequence[Trace]) -> Sequence[Callable[..., Sequence[Any]] | str]:
        """Compile the regions; their kernels are compiled at the same time."""
        with parsed_when_used():
            from thunder_plugin_inductor.compilation import compile_regions
        return compile_regions(regions, self.options)

    def artifact_key(self) -> str:
        """The options, Inductor's settings, and the code of this package."""
        from thunder_plugin_inductor.settings import settings_text

        return f"{source_hash('thunder_plugin_inductor')} {self.options.model_dump_json()} {settings_text()}"

    def save(self, compiled: Callable[..., Sequence[Any]]) -> bytes | None:
        """The module that Inductor wrote, with its kernels."""
        make = getattr(compiled, "artifact", None)
        return None if make is None else make()

    def load(self, artifact: bytes, region: Trace) -> Callable[..., Sequence[Any]]:
        """The module, run again."""
        from thunder_plugin_inductor.artifacts import load

        strides = compile_sizes(tuple([proxy.stride for proxy in region.output]), ())
        return load(artifact, strides, Aliases.of(region).written_inputs)


def from_options(options: InductorOptions) -> InductorExecutor:
    """The executor for these options."""
    return InductorExecutor(options)
