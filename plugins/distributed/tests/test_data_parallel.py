"""DistributedDataParallel in compiled programs: in two processes."""

from __future__ import annotations

import pytest
from data_parallel_cases import CASES, OF_GLOO

from thunder_testing.processes import process_suite

TYPICAL = (
    "plain",
    "accumulation",
    "unused",
    "buffers",
    "communication_hooks",
    "other_branches_on_each_rank",
    "refusals",
)
test_typical = pytest.mark.slow(process_suite("data_parallel_cases", TYPICAL, of_gloo=OF_GLOO))
test_two_processes = pytest.mark.battery(
    process_suite("data_parallel_cases", [name for name in CASES if name not in TYPICAL], of_gloo=OF_GLOO)
)
