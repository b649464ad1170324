"""What the plugin offers. Importing this imports neither PyTorch nor what records graphs."""

from __future__ import annotations

from thunder_core.plugins import Check, FrontEndSpec, hookimpl


@hookimpl
def thunder_front_ends() -> list[FrontEndSpec]:
    """What records the graphs of ``torch.compile(backend="thunder")``; the backend names it."""
    return [
        FrontEndSpec(
            "dynamo", "thunder_plugin_dynamo.front_end:record", 'graphs of torch.compile(..., backend="thunder")'
        )
    ]


@hookimpl
def thunder_doctor() -> list[Check]:
    """Whether PyTorch has the private names that are used, and `torch.compile` finds the backend."""
    return [
        Check("private names of PyTorch", "thunder_plugin_dynamo.pytorch_internals:NAMES"),
        Check("backend of torch.compile", "thunder_plugin_dynamo.doctor:backend_is_registered"),
    ]
