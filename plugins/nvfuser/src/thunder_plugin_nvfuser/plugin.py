"""The hooks of the plugin. Importing this module imports neither PyTorch nor nvFuser."""

from __future__ import annotations

from thunder_core.plugins import CheckSpec, ExecutorSpec, hookimpl
from thunder_plugin_nvfuser.options import NvfuserOptions


@hookimpl
def thunder_executors() -> list[ExecutorSpec]:
    """The fusion executor."""
    return [
        ExecutorSpec(
            "nvfuser",
            "thunder_plugin_nvfuser.entry:from_options",
            NvfuserOptions,
            "elementwise operations, reductions, normalizations and indexing on a GPU, fused by NVIDIA's nvFuser",
        )
    ]


@hookimpl
def thunder_doctor() -> list[CheckSpec]:
    """Checks of nvFuser and its device, and of the private names of PyTorch that the plugin uses."""
    return [
        CheckSpec("nvFuser", "thunder_plugin_nvfuser.library:check"),
        CheckSpec("private names of PyTorch", "thunder_plugin_nvfuser.pytorch_internals:NAMES"),
    ]
