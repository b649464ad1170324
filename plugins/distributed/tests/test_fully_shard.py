"""Modules of `fully_shard` in compiled programs, compared with eager PyTorch in two processes."""

from __future__ import annotations

import pytest
from fully_shard_cases import HYBRID, OF_GLOO, OTHERS

from thunder_testing.processes import process_suite

pytestmark = pytest.mark.slow
test_two_processes = process_suite("fully_shard_cases", OTHERS, of_gloo=OF_GLOO)
test_hybrid_sharding = pytest.mark.battery(process_suite("fully_shard_cases", HYBRID))
