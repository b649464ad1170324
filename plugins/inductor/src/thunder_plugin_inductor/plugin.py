"""What the plugin offers. Importing this imports neither PyTorch nor Inductor."""

from __future__ import annotations

from thunder_core.plugins import Check, ExecutorSpec, hookimpl
from thunder_plugin_inductor.options import InductorOptions


@hookimpl
def thunder_executors() -> list[ExecutorSpec]:
    """One executor, which fuses."""
    return [
        ExecutorSpec(
            "inductor",
            "thunder_plugin_inductor.executor:from_options",
            InductorOptions,
            "elementwise operations, reductions, indexing and what is composed of them, fused by PyTorch's Inductor",
        )
    ]


@hookimpl
def thunder_doctor() -> list[Check]:
    """Whether there is a compiler for each device, and whether PyTorch has the private names that are used."""
    return [
        Check("compilers", "thunder_plugin_inductor.compilers:check"),
        Check("private names of PyTorch", "thunder_plugin_inductor.pytorch_internals:NAMES"),
    ]
