"""What the plugin offers. Importing this does not import PyTorch."""

from __future__ import annotations

from thunder_core.plugins import Check, ExecutorSpec, hookimpl
from thunder_plugin_sdpa.options import SdpaOptions


@hookimpl
def thunder_executors() -> list[ExecutorSpec]:
    """One executor, of one operation."""
    return [
        ExecutorSpec(
            "sdpa",
            "thunder_plugin_sdpa.executor:from_options",
            SdpaOptions,
            "scaled_dot_product_attention by PyTorch's kernels: cuDNN, flash, memory-efficient",
        )
    ]


@hookimpl
def thunder_doctor() -> list[Check]:
    """Whether PyTorch has the private names that are used."""
    return [Check("private names of PyTorch", "thunder_plugin_sdpa.pytorch_internals:NAMES")]
