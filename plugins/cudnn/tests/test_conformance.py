"""The conformance suite on a CPU, with the fake in the library's place. `test_cuda` runs it on a GPU."""

from __future__ import annotations

import pytest
import torch
from cudnn_samples import OPERATIONS, SAMPLES
from fake_cudnn import installed

from thunder_plugin_cudnn.executor import CudnnExecutor
from thunder_plugin_cudnn.options import CudnnOptions
from thunder_testing import executor_suite

ROUNDED = (2e-2, 2e-2)
"""Attention rounds its weights in other places than the formula does."""

with installed():
    test_conformance = pytest.mark.battery(
        executor_suite(
            CudnnExecutor(CudnnOptions(operations=OPERATIONS), device="cpu"),
            dtypes=(torch.float32, torch.bfloat16),
            samples=SAMPLES,
            tolerances={("torch.nn.functional.scaled_dot_product_attention", torch.bfloat16): ROUNDED},
            skip={"*composites.rms_norm-claims": "programs record its parts, and a pass finds it"},
            limit=4,
        )
    )
