"""The hooks of the plugin. Importing this module imports neither PyTorch nor the transform."""

from __future__ import annotations

from thunder_core.plugins import TransformSpec, hookimpl


@hookimpl
def thunder_transforms() -> list[TransformSpec]:
    """The transform, which the preset ``default`` names."""
    return [
        TransformSpec(
            "inline_backward",
            "thunder_plugin_training:InlineBackward.from_options",
            summary="makes forward, backward and optimizer of a training step one program",
        )
    ]
