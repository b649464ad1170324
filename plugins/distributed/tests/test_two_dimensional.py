"""Tensor parallelism and `fully_shard` in compiled programs: in four processes."""

from __future__ import annotations

import pytest
from two_dimensional_cases import CASES

from thunder_testing.processes import process_suite

pytestmark = pytest.mark.slow
test_four_processes = process_suite("two_dimensional_cases", CASES, processes=4)
