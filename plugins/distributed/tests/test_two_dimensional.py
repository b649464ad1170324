"""Tensor parallelism and `fully_shard` in compiled programs: in four processes."""

from __future__ import annotations

import pytest
from two_dimensional_cases import KINDS, OF_MODELS

from thunder_testing.processes import process_suite

pytestmark = pytest.mark.slow
test_four_processes = process_suite("two_dimensional_cases", KINDS, processes=4)
test_models = pytest.mark.battery(process_suite("two_dimensional_cases", OF_MODELS, processes=4))
