"""What the plugin offers. Importing this imports neither PyTorch nor nvFuser."""

from __future__ import annotations

from thunder_core.plugins import Check, ExecutorSpec, hookimpl
from thunder_plugin_nvfuser.options import NvfuserOptions


@hookimpl
def thunder_executors() -> list[ExecutorSpec]:
    """One executor, which fuses."""
    return [
        ExecutorSpec(
            "nvfuser",
            "thunder_plugin_nvfuser.entry:from_options",
            NvfuserOptions,
            "elementwise operations, reductions, normalizations and look-ups on a GPU, fused by NVIDIA's nvFuser",
        )
    ]


@hookimpl
def thunder_doctor() -> list[Check]:
    """Whether nvFuser can be imported and has a device, and PyTorch has the private names that are used."""
    return [
        Check("nvFuser", "thunder_plugin_nvfuser.library:check"),
        Check("private names of PyTorch", "thunder_plugin_nvfuser.pytorch_internals:NAMES"),
    ]
