"""The hooks of the plugin. Importing this module imports neither PyTorch nor cuDNN."""

from __future__ import annotations

from thunder_core.plugins import CheckSpec, ExecutorSpec, hookimpl
from thunder_plugin_cudnn.options import CudnnOptions


@hookimpl
def thunder_executors() -> list[ExecutorSpec]:
    """The executor for attention and, as an option, normalizations."""
    return [
        ExecutorSpec(
            "cudnn",
            "thunder_plugin_cudnn.executor:from_options",
            CudnnOptions,
            "attention with cuDNN's graphs, forward and backward; layer_norm and rms_norm as an option",
        )
    ]


@hookimpl
def thunder_doctor() -> list[CheckSpec]:
    """Checks of the library, its cuDNN, and the private names of PyTorch that the plugin uses."""
    return [
        CheckSpec("library", "thunder_plugin_cudnn.library:check"),
        CheckSpec("private names of PyTorch", "thunder_plugin_cudnn.pytorch_internals:NAMES"),
    ]
