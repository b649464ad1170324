"""What the plugin offers. Importing this imports neither PyTorch nor the transform."""

from __future__ import annotations

from thunder_core.plugins import Check, TransformSpec, hookimpl
from thunder_plugin_cudagraphs.options import CUDAGraphsOptions


@hookimpl
def thunder_transforms() -> list[TransformSpec]:
    """One transform of the last place: it takes whole programs."""
    return [
        TransformSpec(
            "cudagraphs",
            "thunder_plugin_cudagraphs.transform:from_options",
            CUDAGraphsOptions,
            "captures programs as CUDA graphs, and replays them",
        )
    ]


@hookimpl
def thunder_doctor() -> list[Check]:
    """Whether PyTorch has the private names that are used."""
    return [Check("private names of PyTorch", "thunder_plugin_cudagraphs.pytorch_internals:NAMES")]
