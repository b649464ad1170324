"""Tensor parallelism and `fully_shard` in compiled programs: in four processes."""

from __future__ import annotations

import pytest
from two_dimensional_cases import KINDS, OF_MODELS

from thunder_testing.processes import process_suite

pytestmark = pytest.mark.slow
DAILY = ("zero_3", "accumulation")
test_each_day = process_suite("two_dimensional_cases", DAILY, processes=4)
test_four_processes = pytest.mark.battery(
    process_suite("two_dimensional_cases", [name for name in KINDS if name not in DAILY], processes=4)
)
test_models = pytest.mark.battery(process_suite("two_dimensional_cases", OF_MODELS, processes=4))
