"""The hooks of the plugin. Importing this module imports neither PyTorch nor the transforms."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from thunder_core.plugins import TransformOptions, TransformSpec, hookimpl


class ConstantFoldingOptions(TransformOptions):
    """Options of the transform ``constant_folding``."""

    # This module is imported whenever a program is compiled: see `thunder_core.plugins.options`.
    model_config = ConfigDict(use_attribute_docstrings=False)

    limit: int = Field(default=1 << 20, ge=0, description="The largest tensor that is folded, in bytes.")


@hookimpl
def thunder_transforms() -> list[TransformSpec]:
    """The transforms. The preset ``default`` names both."""
    return [
        TransformSpec(
            "constant_folding",
            "thunder_plugin_simplify:ConstantFolding.from_options",
            ConstantFoldingOptions,
            "evaluates operations that depend on no input during compilation",
        ),
        TransformSpec(
            "common_subexpression",
            "thunder_plugin_simplify:CommonSubexpression.from_options",
            summary="computes equal operations once",
        ),
    ]
