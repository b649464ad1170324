"""Gradients that are accumulated under `fully_shard`, by programs and by eager PyTorch in two processes."""

from __future__ import annotations

import accumulation_cases
import partial_gradient_cases
import pytest

from thunder_testing.processes import process_suite

WHOLE, PARTIAL = accumulation_cases.__name__, partial_gradient_cases.__name__
TYPICAL = ("zero_3, plain", "zero_2, plain", "replicas, plain", "hybrid, plain")
TYPICAL_PARTIAL = ("plain, shards", "unused, replicas", "float16, shards")

test_typical_partial_gradients = pytest.mark.slow(process_suite(PARTIAL, TYPICAL_PARTIAL))
test_partial_gradients = pytest.mark.battery(process_suite(PARTIAL, list(partial_gradient_cases.OTHERS)))
test_partial_gradients_of_models = pytest.mark.battery(
    process_suite(PARTIAL, [name for name in partial_gradient_cases.OF_MODELS if name not in TYPICAL_PARTIAL])
)
test_typical = pytest.mark.slow(process_suite(WHOLE, TYPICAL))
test_two_processes = pytest.mark.battery(
    process_suite(WHOLE, list(accumulation_cases.OTHERS), of_gloo=accumulation_cases.OF_GLOO)
)
test_models = pytest.mark.battery(
    process_suite(WHOLE, [name for name in accumulation_cases.OF_MODELS if name not in TYPICAL])
)
