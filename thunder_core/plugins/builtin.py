"""The executor, the front end and the presets of the core, offered through the same hooks as a plugin's."""

from __future__ import annotations

from thunder_core.plugins.hookspecs import hookimpl
from thunder_core.plugins.specs import ExecutorSpec, FrontEndSpec, InterceptionsSpec, Preset, TensorClassesSpec


@hookimpl
def thunder_executors() -> list[ExecutorSpec]:
    """The reference executor, the last of every list: executors that a configuration names after it are not used."""
    return [
        ExecutorSpec(
            "reference",
            "thunder_core.executors.reference:reference",
            summary="each operation as the PyTorch function that it represents",
        )
    ]


@hookimpl
def thunder_front_ends() -> list[FrontEndSpec]:
    """The front end that runs the program once."""
    record = "thunder_frontend.record"
    return [
        FrontEndSpec(
            "run",
            f"{record}.front_end:front_end",
            "runs the program once and records its calls",
            tables=(
                (InterceptionsSpec, f"{record}.plugin_tables:add_interceptions"),
                (TensorClassesSpec, f"{record}.plugin_tables:add_tensor_classes"),
            ),
        )
    ]


@hookimpl
def thunder_presets() -> list[Preset]:
    """The defaults, those by type of device, a minimal configuration, and recipes for a purpose."""
    package = "thunder.presets"
    return [
        Preset("default", package, "default.yaml", "the options that all other configurations extend"),
        Preset("cpu", package, "cpu.yaml", "the executors for programs on a CPU, if none are named", "cpu"),
        Preset("cuda", package, "cuda.yaml", "the executors for programs on an NVIDIA GPU, if none are named", "cuda"),
        Preset("reference", package, "reference.yaml", "no executor, and no transform that changes programs"),
        Preset("inference", package, "inference.yaml", "serving: any sizes, without gradients"),
        Preset("training", package, "training.yaml", "training steps"),
        Preset("decoding", package, "decoding.yaml", "decoding token by token"),
        Preset("exact", package, "exact.yaml", "results, gradients and random numbers are eager's to the bit"),
        Preset("low-memory", package, "low-memory.yaml", "training that saves fewer values for backward"),
    ]
