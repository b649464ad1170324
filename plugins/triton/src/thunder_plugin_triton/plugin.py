"""The hooks of the plugin. Importing this module imports neither PyTorch nor Triton."""

from __future__ import annotations

from thunder_core.plugins import ExecutorSpec, hookimpl
from thunder_plugin_triton.options import TritonOptions


@hookimpl
def thunder_executors() -> list[ExecutorSpec]:
    """The executor with its kernels."""
    return [
        ExecutorSpec(
            "triton",
            "thunder_plugin_triton.executor:from_options",
            TritonOptions,
            "norms, softmax, cross entropy, rotary embeddings and gated activations with Triton kernels",
        )
    ]
