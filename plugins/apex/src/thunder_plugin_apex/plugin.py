"""The hooks of the plugin. Importing this module imports neither PyTorch nor Apex."""

from __future__ import annotations

from thunder_core.plugins import CheckSpec, ExecutorSpec, hookimpl
from thunder_plugin_apex.options import ApexOptions


@hookimpl
def thunder_executors() -> list[ExecutorSpec]:
    """The executor of single operations."""
    return [
        ExecutorSpec(
            "apex",
            "thunder_plugin_apex.executor:from_options",
            ApexOptions,
            "layer_norm, rms_norm and cross_entropy with the fused kernels of NVIDIA Apex",
        )
    ]


@hookimpl
def thunder_doctor() -> list[CheckSpec]:
    """A check that the installed Apex was built with the kernels."""
    return [CheckSpec("kernels", "thunder_plugin_apex.library:check")]
