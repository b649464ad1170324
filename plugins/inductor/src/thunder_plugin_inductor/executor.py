"""The executor: the operations that it fuses, and the compilation of regions."""

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
    """Compiles regions with Inductor. Executors with equal options are equal.

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
        """The option ``smallest``."""
        return self.options.smallest

    def can_fuse(self, bound: BoundSymbol) -> bool | str:
        """Whether Inductor has kernels for the core-ATen operators of the operation."""
        return can_fuse(bound, self.options, prepares=not self.compiles_behind)

    def can_write(self, bound: BoundSymbol) -> bool | str:
        """Whether Inductor compiles the in-place operation to a store that does not copy the rest of the memory."""
        return can_write(bound)

    def fuse(self, region: Trace) -> Callable[..., Sequence[Any]] | str:
        """Compile the region, or return the reason for which Inductor rejects it."""
        return self.fuse_all([region])[0]

    def fuse_all(self, regions: Sequence[Trace]) -> Sequence[Callable[..., Sequence[Any]] | str]:
        """Compile the regions, with their kernels in parallel."""
        with parsed_when_used():
            from thunder_plugin_inductor.compilation import compile_regions
        return compile_regions(regions, self.options)

    def artifact_key(self) -> str:
        """The options, Inductor's settings, and the code of this package."""
        from thunder_plugin_inductor.settings import settings_text

        return f"{source_hash('thunder_plugin_inductor')} {self.options.model_dump_json()} {settings_text()}"

    def save(self, compiled: Callable[..., Sequence[Any]]) -> bytes | None:
        """The module that Inductor generated, with its kernels."""
        make = getattr(compiled, "artifact", None)
        return None if make is None else make()

    def load(self, artifact: bytes, region: Trace) -> Callable[..., Sequence[Any]]:
        """The region from an artifact."""
        from thunder_plugin_inductor.artifacts import load

        strides = compile_sizes(tuple([proxy.stride for proxy in region.output]), ())
        return load(artifact, strides, Aliases.of(region).written_inputs)


def from_options(options: InductorOptions) -> InductorExecutor:
    """The executor for these options."""
    return InductorExecutor(options)
