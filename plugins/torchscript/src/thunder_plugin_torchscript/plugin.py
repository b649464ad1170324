"""The hooks of the plugin. Importing this module imports neither PyTorch nor the implementations."""

from __future__ import annotations

from thunder_core.plugins import CheckSpec, InterceptionsSpec, hookimpl

_PACKAGE = "thunder_plugin_torchscript"


@hookimpl
def thunder_interceptions() -> list[InterceptionsSpec]:
    """The interceptions of TorchScript, which the preset ``default`` names."""
    return [
        InterceptionsSpec(
            f"{_PACKAGE}.interceptions:INTERCEPTIONS",
            summary="records the graphs of TorchScript functions and modules that a program calls",
        )
    ]


@hookimpl
def thunder_doctor() -> list[CheckSpec]:
    """A check that PyTorch has the private names that the plugin uses."""
    return [CheckSpec("private names of PyTorch", f"{_PACKAGE}.pytorch_internals:NAMES")]
