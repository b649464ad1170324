"""What the plugin offers. Importing this does not import PyTorch."""

from __future__ import annotations

from thunder_core.plugins import ExecutorSpec, hookimpl
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
