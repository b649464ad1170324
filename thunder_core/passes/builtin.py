"""The core's own transforms, from their options."""

from __future__ import annotations

from typing import Any

from thunder_core.passes.accumulate_products import AccumulateProducts
from thunder_core.passes.cache_weight_casts import CacheWeightCasts
from thunder_core.passes.common_subexpression import CommonSubexpression
from thunder_core.passes.constant_folding import ConstantFolding
from thunder_core.passes.dtype_round_trips import DtypeRoundTrips
from thunder_core.passes.fold_transposes import FoldTransposes
from thunder_core.passes.merge_matmuls import MergeMatmuls
from thunder_core.passes.widen_products import WidenProducts


def constant_folding(options: Any) -> ConstantFolding:
    """With the attribute ``limit`` of the options."""
    return ConstantFolding(limit=options.limit)


def common_subexpression(options: Any) -> CommonSubexpression:
    """Without options of its own."""
    return CommonSubexpression()


def dtype_round_trips(options: Any) -> DtypeRoundTrips:
    """Without options of its own."""
    return DtypeRoundTrips()


def accumulate_products(options: Any) -> AccumulateProducts:
    """Without options of its own."""
    return AccumulateProducts()


def fold_transposes(options: Any) -> FoldTransposes:
    """Without options of its own."""
    return FoldTransposes()


def merge_matmuls(options: Any) -> MergeMatmuls:
    """Without options of its own."""
    return MergeMatmuls()


def cache_weight_casts(options: Any) -> CacheWeightCasts:
    """Without options of its own."""
    return CacheWeightCasts()


def widen_products(options: Any) -> WidenProducts:
    """Without options of its own."""
    return WidenProducts()
