"""What the plugin offers. Importing this imports neither PyTorch nor the transforms."""

from __future__ import annotations

from thunder_core.plugins import Check, TransformSpec, hookimpl

_TRANSFORMS = {
    "attention_layout": "gives attention arguments in the layout in which its result need not be copied",
    "copy_pinned_views": "copies what attention saves for backward where it alone keeps a storage of twice the size",
    "separate_bias": "adds biases of linear layers on a CPU in the elementwise lines that follow",
    "convolution_layout": "has convolutions on a CPU work on images with channels last",
    "direct_views": "makes a view by one call instead of a chain of calls",
}


@hookimpl
def thunder_transforms() -> list[TransformSpec]:
    """One transform in each module. The preset ``default`` names all of them; each runs only if an executor fuses."""
    return [
        TransformSpec(name, f"thunder_plugin_layouts:{name.title().replace('_', '')}.from_options", summary=summary)
        for name, summary in _TRANSFORMS.items()
    ]


@hookimpl
def thunder_doctor() -> list[Check]:
    """Whether PyTorch has the private name that ``direct_views`` calls."""
    return [Check("private names of PyTorch", "thunder_plugin_layouts.pytorch_internals:NAMES")]
