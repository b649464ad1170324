"""The hooks of the plugin. Importing this module imports neither PyTorch nor Inductor."""

from __future__ import annotations

from thunder_core.plugins import CheckSpec, ExecutorSpec, hookimpl
from thunder_plugin_inductor.options import InductorOptions


@hookimpl
def thunder_executors() -> list[ExecutorSpec]:
    """The fusion executor."""
    return [
        ExecutorSpec(
            "inductor",
            "thunder_plugin_inductor.executor:from_options",
            InductorOptions,
            "elementwise operations, reductions, indexing and their compositions, fused by PyTorch's Inductor",
        )
    ]


@hookimpl
def thunder_doctor() -> list[CheckSpec]:
    """Checks of the compiler for each device, and of the private names of PyTorch that the plugin uses."""
    return [
        CheckSpec("compilers", "thunder_plugin_inductor.compilers:check"),
        CheckSpec("private names of PyTorch", "thunder_plugin_inductor.pytorch_internals:NAMES"),
    ]
