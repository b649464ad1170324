"""The hooks of the plugin. Importing this module does not import PyTorch."""

from __future__ import annotations

from thunder_core.plugins import CheckSpec, ExecutorSpec, hookimpl
from thunder_plugin_sdpa.options import SdpaOptions


@hookimpl
def thunder_executors() -> list[ExecutorSpec]:
    """The executor for attention."""
    return [
        ExecutorSpec(
            "sdpa",
            "thunder_plugin_sdpa.executor:from_options",
            SdpaOptions,
            "scaled_dot_product_attention with PyTorch's kernels: cuDNN, flash, memory-efficient",
        )
    ]


@hookimpl
def thunder_doctor() -> list[CheckSpec]:
    """A check that PyTorch has the private names that the plugin uses."""
    return [CheckSpec("private names of PyTorch", "thunder_plugin_sdpa.pytorch_internals:NAMES")]
