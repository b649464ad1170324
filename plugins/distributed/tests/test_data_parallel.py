"""DistributedDataParallel in compiled programs: in two processes."""

from __future__ import annotations

import pytest
from data_parallel_cases import CASES, OF_GLOO

from thunder_testing.processes import process_suite

pytestmark = pytest.mark.slow
test_two_processes = process_suite("data_parallel_cases", CASES, of_gloo=OF_GLOO)
