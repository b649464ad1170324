"""What the plugin offers. Importing this imports neither PyTorch nor cuDNN."""

from __future__ import annotations

from thunder_core.plugins import Check, ExecutorSpec, hookimpl
from thunder_plugin_cudnn.options import CudnnOptions


@hookimpl
def thunder_executors() -> list[ExecutorSpec]:
    """One executor, of attention and, on demand, normalizations."""
    return [
        ExecutorSpec(
            "cudnn",
            "thunder_plugin_cudnn.executor:from_options",
            CudnnOptions,
            "attention by cuDNN's graphs, forward and backward; layer_norm and rms_norm on demand",
        )
    ]


@hookimpl
def thunder_doctor() -> list[Check]:
    """Whether the library loads, and which cuDNN it finds."""
    return [Check("library", "thunder_plugin_cudnn.library:check")]
