"""What the plugin offers. Importing this imports neither PyTorch nor cuBLASLt."""

from __future__ import annotations

from thunder_core.plugins import Check, ExecutorSpec, hookimpl
from thunder_plugin_cublas.options import CublasOptions


@hookimpl
def thunder_executors() -> list[ExecutorSpec]:
    """One executor, of matrix products."""
    return [
        ExecutorSpec(
            "cublas",
            "thunder_plugin_cublas.executor:from_options",
            CublasOptions,
            "matrix products by the fastest of cuBLASLt's algorithms, timed when sizes are first met",
        )
    ]


@hookimpl
def thunder_doctor() -> list[Check]:
    """Whether the library of PyTorch's CUDA loads."""
    return [Check("library", "thunder_plugin_cublas.library:check")]
