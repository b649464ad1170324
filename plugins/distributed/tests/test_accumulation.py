"""Gradients that are accumulated under `fully_shard`, by programs and by eager PyTorch in two processes."""

from __future__ import annotations

import pytest
from accumulation_cases import CASES, OF_GLOO
from partial_gradient_cases import CASES as PARTIAL

from thunder_testing.processes import process_suite

pytestmark = pytest.mark.slow
test_partial_gradients = process_suite("partial_gradient_cases", PARTIAL)
test_two_processes = process_suite("accumulation_cases", CASES, of_gloo=OF_GLOO)
