"""Gradients that are accumulated under `fully_shard`, by programs and by eager PyTorch in two processes."""

from __future__ import annotations

import accumulation_cases
import partial_gradient_cases
import pytest

from thunder_testing.processes import process_suite

pytestmark = pytest.mark.slow

WHOLE, PARTIAL = accumulation_cases.__name__, partial_gradient_cases.__name__
DAILY = ("zero_3, plain", "zero_2, plain", "replicas, plain", "hybrid, plain")
DAILY_PARTIAL = ("plain, shards", "unused, replicas", "float16, shards")

test_partial_gradients_each_day = process_suite(PARTIAL, DAILY_PARTIAL)
test_partial_gradients = pytest.mark.battery(process_suite(PARTIAL, list(partial_gradient_cases.OTHERS)))
test_partial_gradients_of_models = pytest.mark.battery(
    process_suite(PARTIAL, [name for name in partial_gradient_cases.OF_MODELS if name not in DAILY_PARTIAL])
)
test_each_day = process_suite(WHOLE, DAILY)
test_two_processes = pytest.mark.battery(
    process_suite(WHOLE, list(accumulation_cases.OTHERS), of_gloo=accumulation_cases.OF_GLOO)
)
test_models = pytest.mark.battery(
    process_suite(WHOLE, [name for name in accumulation_cases.OF_MODELS if name not in DAILY])
)
