"""The conformance suite on a CPU, with the fake in the library's place. `test_cuda` runs it on a GPU."""

from __future__ import annotations

import torch
from fake_cublaslt import installed
from product_samples import SAMPLES

from thunder_core.testing import executor_suite
from thunder_plugin_cublas.executor import CublasExecutor
from thunder_plugin_cublas.options import CublasOptions

with installed():
    test_conformance = executor_suite(
        CublasExecutor(CublasOptions(least_operations=0), device="cpu"),
        dtypes=(torch.float16, torch.bfloat16),
        samples=SAMPLES,
        limit=8,
    )
