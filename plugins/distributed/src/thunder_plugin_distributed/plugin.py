"""What the plugin offers. Importing this imports neither PyTorch nor what is behind the specifications."""

from __future__ import annotations

from thunder_core.plugins import Check, InterceptionsSpec, SymbolsSpec, TransformSpec, hookimpl

_PACKAGE = "thunder_plugin_distributed"


@hookimpl
def thunder_transforms() -> list[TransformSpec]:
    """The preset ``default`` names both, and so has the plugin used where it is installed."""
    return [
        TransformSpec(
            "schedule_collectives",
            f"{_PACKAGE}.schedule_collectives:ScheduleCollectives.from_options",
            summary="has a program compute while it communicates: collectives start early, and are waited for late",
        ),
        TransformSpec(
            "overlap_gradients",
            f"{_PACKAGE}.overlap_gradients:OverlapGradients.from_options",
            summary="has backward average gradients of DistributedDataParallel while it computes the others",
        ),
    ]


@hookimpl
def thunder_symbols() -> list[SymbolsSpec]:
    """The collectives, and how a sharded parameter becomes a whole one."""
    return [SymbolsSpec(f"{_PACKAGE}.symbols:ROWS", rules=f"{_PACKAGE}.symbols:RULES")]


@hookimpl
def thunder_interceptions() -> list[InterceptionsSpec]:
    """What the hooks of PyTorch's wrappers do while a program is recorded."""
    return [
        InterceptionsSpec(f"{_PACKAGE}.fully_shard:INTERCEPTIONS"),
        InterceptionsSpec(f"{_PACKAGE}.data_parallel:INTERCEPTIONS"),
    ]


@hookimpl
def thunder_doctor() -> list[Check]:
    """Whether PyTorch has the private names that are used."""
    return [Check("private names of PyTorch", f"{_PACKAGE}.pytorch_internals:NAMES")]
