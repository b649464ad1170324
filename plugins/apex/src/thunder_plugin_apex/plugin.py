"""What the plugin offers. Importing this imports neither PyTorch nor Apex."""

from __future__ import annotations

from thunder_core.plugins import Check, ExecutorSpec, hookimpl
from thunder_plugin_apex.options import ApexOptions


@hookimpl
def thunder_executors() -> list[ExecutorSpec]:
    """One executor, of single operations."""
    return [
        ExecutorSpec(
            "apex",
            "thunder_plugin_apex.executor:from_options",
            ApexOptions,
            "layer_norm, rms_norm and cross_entropy by the fused kernels of NVIDIA Apex",
        )
    ]


@hookimpl
def thunder_doctor() -> list[Check]:
    """Whether the installed Apex was built with the kernels."""
    return [Check("kernels", "thunder_plugin_apex.library:check")]
