"""The hooks of the plugin. Importing this module imports neither PyTorch nor Transformer Engine."""

from __future__ import annotations

from thunder_core.plugins import CheckSpec, ExecutorSpec, hookimpl
from thunder_plugin_te.options import TeOptions


@hookimpl
def thunder_executors() -> list[ExecutorSpec]:
    """The executor for linear layers."""
    return [
        ExecutorSpec(
            "te",
            "thunder_plugin_te.executor:from_options",
            TeOptions,
            "linear layers in FP8, forward and backward, with Transformer Engine",
        )
    ]


@hookimpl
def thunder_doctor() -> list[CheckSpec]:
    """Checks that PyTorch and Transformer Engine have the private names that the plugin uses."""
    return [CheckSpec("private names", "thunder_plugin_te.pytorch_internals:NAMES")]
