"""Tensor parallelism and `fully_shard` in compiled programs: in four processes."""

from __future__ import annotations

import pytest
from two_dimensional_cases import KINDS, OF_MODELS

from thunder_testing.processes import process_suite

TYPICAL = ("zero_3", "accumulation")
test_typical = pytest.mark.slow(process_suite("two_dimensional_cases", TYPICAL, processes=4))
test_four_processes = pytest.mark.battery(
    process_suite("two_dimensional_cases", [name for name in KINDS if name not in TYPICAL], processes=4)
)
test_models = pytest.mark.battery(process_suite("two_dimensional_cases", OF_MODELS, processes=4))
