"""Transforms for matmuls and the casts around them. Names are imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from thunder_core.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from thunder_plugin_matmul.accumulate_products import AccumulateProducts
    from thunder_plugin_matmul.cache_weight_casts import CacheWeightCasts
    from thunder_plugin_matmul.dtype_round_trips import DtypeRoundTrips
    from thunder_plugin_matmul.fold_transposes import FoldTransposes
    from thunder_plugin_matmul.merge_matmuls import MergeMatmuls
    from thunder_plugin_matmul.pad_matmuls import PadMatmuls
    from thunder_plugin_matmul.widen_products import WidenProducts

__all__ = [
    "AccumulateProducts",
    "CacheWeightCasts",
    "DtypeRoundTrips",
    "FoldTransposes",
    "MergeMatmuls",
    "PadMatmuls",
    "WidenProducts",
]

__getattr__ = lazy_imports(
    __name__,
    {
        "AccumulateProducts": "accumulate_products",
        "CacheWeightCasts": "cache_weight_casts",
        "DtypeRoundTrips": "dtype_round_trips",
        "FoldTransposes": "fold_transposes",
        "MergeMatmuls": "merge_matmuls",
        "PadMatmuls": "pad_matmuls",
        "WidenProducts": "widen_products",
    },
)
