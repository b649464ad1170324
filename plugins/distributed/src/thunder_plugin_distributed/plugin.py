"""The specifications of the plugin. Importing this imports neither PyTorch nor the objects that they load."""

from __future__ import annotations

from thunder_core.plugins import CheckSpec, CommandSpec, InterceptionsSpec, SymbolsSpec, TransformSpec, hookimpl
from thunder_plugin_distributed.options import BucketOptions, RegatherOptions, ScheduleOptions

_PACKAGE = "thunder_plugin_distributed"


@hookimpl
def thunder_transforms() -> list[TransformSpec]:
    """The preset ``default`` names them, and so has the plugin used where it is installed."""
    return [
        TransformSpec(
            "bucket_collectives",
            f"{_PACKAGE}.bucket_collectives:BucketCollectives.from_options",
            BucketOptions,
            summary="has small collectives of a process group and dtype join the next ones, by a cost model",
        ),
        TransformSpec(
            "schedule_collectives",
            f"{_PACKAGE}.schedule_collectives:ScheduleCollectives.from_options",
            ScheduleOptions,
            summary="has a program compute while it communicates: collectives start early, and are waited for late",
        ),
        TransformSpec(
            "merge_collectives",
            f"{_PACKAGE}.merge_collectives:MergeCollectives.from_options",
            summary="reduces a sum where a program adds the results of several all-reduces",
        ),
        TransformSpec(
            "regather_parameters",
            f"{_PACKAGE}.regather_parameters:RegatherParameters.from_options",
            RegatherOptions,
            summary="saves gathered parameters for backward within a memory budget, and gathers the others again",
        ),
        TransformSpec(
            "overlap_gradients",
            f"{_PACKAGE}.overlap_gradients:OverlapGradients.from_options",
            summary="has backward average gradients of DistributedDataParallel while it computes the others",
        ),
        TransformSpec(
            "agreement",
            f"{_PACKAGE}.agreement:Agreement.from_options",
            summary="compares the collectives of a new program between ranks before it runs, and reports them",
        ),
    ]


@hookimpl
def thunder_symbols() -> list[SymbolsSpec]:
    """The collectives, and how a sharded parameter becomes a whole one."""
    return [SymbolsSpec(f"{_PACKAGE}.symbols:ROWS", rules=f"{_PACKAGE}.symbols:RULES")]


@hookimpl
def thunder_interceptions() -> list[InterceptionsSpec]:
    """Interceptions of collectives, and of the hooks of PyTorch's wrappers. The preset ``default`` names them."""
    return [
        InterceptionsSpec(
            f"{_PACKAGE}.interceptions:INTERCEPTIONS",
            unobserved=f"{_PACKAGE}.recording",
            summary="records collectives, and modules under fully_shard and DistributedDataParallel",
        )
    ]


@hookimpl
def thunder_commands() -> list[CommandSpec]:
    """The command ``thunder simulate``."""
    return [
        CommandSpec(
            "simulate",
            f"{_PACKAGE}.simulation.command:simulate",
            summary="compiles a program as one rank of many, and predicts its communication, memory and time",
        )
    ]


@hookimpl
def thunder_doctor() -> list[CheckSpec]:
    """Whether PyTorch has the private names that are used."""
    return [CheckSpec("private names of PyTorch", f"{_PACKAGE}.pytorch_internals:NAMES")]
