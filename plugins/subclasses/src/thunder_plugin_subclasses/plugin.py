"""The hooks of the plugin. Importing this module imports neither PyTorch nor the implementations."""

from __future__ import annotations

from thunder_core.plugins import CheckSpec, InterceptionsSpec, TensorClassesSpec, hookimpl

_PACKAGE = "thunder_plugin_subclasses"


@hookimpl
def thunder_tensor_classes() -> list[TensorClassesSpec]:
    """The specification that the preset ``default`` selects, so that it is used where the plugin is installed."""
    return [
        TensorClassesSpec(
            "wrappers",
            f"{_PACKAGE}.wrappers:Wrappers.from_options",
            summary="records programs with DTensor, torchao's weights, jagged tensors and other wrapper subclasses",
        )
    ]


@hookimpl
def thunder_interceptions() -> list[InterceptionsSpec]:
    """The interceptions for DTensor and jagged tensors."""
    return [InterceptionsSpec(f"{_PACKAGE}.interceptions:INTERCEPTIONS")]


@hookimpl
def thunder_doctor() -> list[CheckSpec]:
    """A check that PyTorch has the private names that the plugin uses."""
    return [CheckSpec("private names of PyTorch", f"{_PACKAGE}.pytorch_internals:NAMES")]
