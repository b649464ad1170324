"""The hooks of the plugin. Importing this module imports neither PyTorch nor the transform."""

from __future__ import annotations

from thunder_core.plugins import CheckSpec, TransformSpec, hookimpl
from thunder_plugin_cudagraphs.options import CUDAGraphsOptions


@hookimpl
def thunder_transforms() -> list[TransformSpec]:
    """A transform that runs last, because it captures whole programs."""
    return [
        TransformSpec(
            "cudagraphs",
            "thunder_plugin_cudagraphs.transform:from_options",
            CUDAGraphsOptions,
            "captures programs as CUDA graphs, and replays them",
        )
    ]


@hookimpl
def thunder_doctor() -> list[CheckSpec]:
    """A check that PyTorch has the private names that the plugin uses."""
    return [CheckSpec("private names of PyTorch", "thunder_plugin_cudagraphs.pytorch_internals:NAMES")]
