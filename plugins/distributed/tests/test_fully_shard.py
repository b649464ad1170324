"""Modules of `fully_shard` in compiled programs, compared with eager PyTorch in two processes."""

from __future__ import annotations

import pytest
from fully_shard_cases import HYBRID, OF_GLOO, OTHERS

from thunder_testing.processes import process_suite

TYPICAL = (
    "zero_3",
    "mixed_precision",
    "hybrid",
    "uneven",
    "unused",
    "varying_sizes",
    "called_twice",
    "within_a_memory_budget",
)
test_typical = pytest.mark.slow(process_suite("fully_shard_cases", TYPICAL, of_gloo=OF_GLOO))
test_two_processes = pytest.mark.battery(
    process_suite("fully_shard_cases", [name for name in OTHERS if name not in TYPICAL], of_gloo=OF_GLOO)
)
test_hybrid_sharding = pytest.mark.battery(process_suite("fully_shard_cases", HYBRID))
