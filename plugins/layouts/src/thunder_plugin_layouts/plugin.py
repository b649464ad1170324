"""The hooks of the plugin. Importing this module imports neither PyTorch nor the transforms."""

from __future__ import annotations

from thunder_core.plugins import CheckSpec, TransformSpec, hookimpl

_TRANSFORMS = {
    "attention_layout": "passes arguments to attention in the layout for which its result needs no copy",
    "copy_pinned_views": "copies a tensor that attention saves if only it keeps a storage of twice its size alive",
    "separate_bias": "adds biases of linear layers on a CPU, and of convolutions on a GPU, in the following operations",
    "convolution_layout": "has convolutions on a CPU use the channels-last memory format",
    "direct_views": "replaces a chain of views by one call",
}


@hookimpl
def thunder_transforms() -> list[TransformSpec]:
    """A transform per module. The preset ``default`` names all of them; each only applies if an executor fuses."""
    return [
        TransformSpec(name, f"thunder_plugin_layouts:{name.title().replace('_', '')}.from_options", summary=summary)
        for name, summary in _TRANSFORMS.items()
    ]


@hookimpl
def thunder_doctor() -> list[CheckSpec]:
    """A check that PyTorch has the private name that ``direct_views`` uses."""
    return [CheckSpec("private names of PyTorch", "thunder_plugin_layouts.pytorch_internals:NAMES")]
