"""The hooks of the plugin. Importing this module imports neither PyTorch nor the transforms."""

from __future__ import annotations

from thunder_core.plugins import TransformSpec, hookimpl

_TRANSFORMS = {
    "dtype_round_trips": "replaces a cast back to a dtype by the existing value",
    "accumulate_products": "adds matmuls to the other summand in place",
    "fold_transposes": "passes transposed matrices to matmuls instead of copies of them",
    "merge_matmuls": "merges linear layers that read one vector; moves their weights into one storage",
    "cache_weight_casts": "caches casts of weights across calls, for weights that are only written in place",
    "pad_matmuls": "pads operands of large float16 and bfloat16 matmuls on a GPU whose rows are not aligned",
    "widen_products": "has float16 and bfloat16 matmuls on a GPU write float32 if only a cast to it reads them",
}


@hookimpl
def thunder_transforms() -> list[TransformSpec]:
    """A transform per module. The preset ``default`` names ``pad_matmuls`` and ``widen_products``."""
    return [
        TransformSpec(name, f"thunder_plugin_matmul:{name.title().replace('_', '')}.from_options", summary=summary)
        for name, summary in _TRANSFORMS.items()
    ]
