"""What the plugin offers. Importing this imports neither PyTorch nor Transformer Engine."""

from __future__ import annotations

from thunder_core.plugins import Check, ExecutorSpec, hookimpl
from thunder_plugin_te.options import TeOptions


@hookimpl
def thunder_executors() -> list[ExecutorSpec]:
    """One executor, of one operation."""
    return [
        ExecutorSpec(
            "te",
            "thunder_plugin_te.executor:from_options",
            TeOptions,
            "linear layers in eight-bit floats (FP8), forward and backward, by Transformer Engine",
        )
    ]


@hookimpl
def thunder_doctor() -> list[Check]:
    """Whether PyTorch and Transformer Engine have the private names that are used."""
    return [Check("private names", "thunder_plugin_te.pytorch_internals:NAMES")]
