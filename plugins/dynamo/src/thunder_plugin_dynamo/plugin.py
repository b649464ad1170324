"""The hooks of the plugin. Importing this module imports neither PyTorch nor the front end."""

from __future__ import annotations

from thunder_core.plugins import CheckSpec, FrontEndSpec, hookimpl


@hookimpl
def thunder_front_ends() -> list[FrontEndSpec]:
    """The front end for graphs of ``torch.compile(backend="thunder")``, which the backend selects."""
    return [
        FrontEndSpec(
            "dynamo", "thunder_plugin_dynamo.front_end:front_end", 'graphs of torch.compile(..., backend="thunder")'
        )
    ]


@hookimpl
def thunder_doctor() -> list[CheckSpec]:
    """Checks of the private names of PyTorch that the plugin uses, and of the registration of the backend."""
    return [
        CheckSpec("private names of PyTorch", "thunder_plugin_dynamo.pytorch_internals:NAMES"),
        CheckSpec("backend of torch.compile", "thunder_plugin_dynamo.doctor:backend_is_registered"),
    ]
