"""What the plugin offers. Importing this imports neither PyTorch nor the transforms."""

from __future__ import annotations

from thunder_core.plugins import TransformOptions, TransformSpec, hookimpl

_TRANSFORMS = {
    "dtype_round_trips": "takes the value that exists in place of a cast back to it",
    "accumulate_products": "adds matrix products in the storage of the other summand",
    "fold_transposes": "gives matrix products transposed matrices instead of copies of them",
    "merge_matmuls": "merges linear layers that read one vector into one; moves their weights together",
    "cache_weight_casts": "caches casts of weights from call to call; for weights that are written in place only",
    "widen_products": "has products of half precision on a GPU write float32 where a cast to it is all that reads them",
}


@hookimpl
def thunder_transforms() -> list[TransformSpec]:
    """One transform in each module. The preset ``default`` names ``widen_products`` alone."""
    return [
        TransformSpec(name, f"thunder_plugin_matmul.{name}:from_options", TransformOptions, summary)
        for name, summary in _TRANSFORMS.items()
    ]
