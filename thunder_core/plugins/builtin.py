"""Executors, transforms, front ends and presets of the core, offered through the same hooks as a plugin's."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from thunder_core.plugins.hookspecs import hookimpl
from thunder_core.plugins.options import TransformOptions
from thunder_core.plugins.specs import ExecutorSpec, FrontEndSpec, Preset, TransformSpec


class ConstantFoldingOptions(TransformOptions):
    """Options of the transform ``constant_folding``."""

    model_config = ConfigDict(use_attribute_docstrings=False)  # see `thunder_core.plugins.options`

    limit: int = Field(default=1 << 20, ge=0, description="The largest tensor that is folded, in bytes.")


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
def thunder_transforms() -> list[TransformSpec]:
    """The optional passes of the core, which run in this order unless they are disabled."""
    return [
        _optional_pass(
            "constant_folding", "evaluates what depends on no input while compiling", ConstantFoldingOptions
        ),
        _optional_pass("common_subexpression", "computes equal calls once"),
    ]


def _optional_pass(name: str, summary: str, options: type[TransformOptions] = TransformOptions) -> TransformSpec:
    """Return the specification of the transform in the module of that name."""
    kind = name.title().replace("_", "")
    return TransformSpec(name, f"thunder_core.passes.{name}:{kind}.from_options", options, summary, default=True)


@hookimpl
def thunder_front_ends() -> list[FrontEndSpec]:
    """The front end that runs the program once."""
    return [
        FrontEndSpec("run", "thunder_core.acquire.acquire:acquire", "runs the program once and writes down its calls")
    ]


@hookimpl
def thunder_presets() -> list[Preset]:
    """The defaults, those by type of device, and a minimal configuration."""
    package = "thunder.presets"
    return [
        Preset("default", package, "default.yaml", "what all configurations extend in the end"),
        Preset("cpu", package, "cpu.yaml", "who runs programs on a CPU where no executors are named", "cpu"),
        Preset("cuda", package, "cuda.yaml", "who runs programs on an NVIDIA GPU where none are named", "cuda"),
        Preset("reference", package, "reference.yaml", "no executor, and none of the passes that can be left out"),
    ]
