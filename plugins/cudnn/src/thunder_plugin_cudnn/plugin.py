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
    """Whether the library loads, which cuDNN it finds, and whether PyTorch has the private names that are used."""
    return [
        Check("library", "thunder_plugin_cudnn.library:check"),
        Check("private names of PyTorch", "thunder_plugin_cudnn.pytorch_internals:NAMES"),
    ]
