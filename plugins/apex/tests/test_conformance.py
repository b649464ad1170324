"""The conformance suite, on a CPU with the fake in Apex's place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from fake_apex import installed

import thunder_plugin_composites as composites
from thunder_plugin_apex.executor import ApexExecutor
from thunder_testing import executor_suite

Sample = tuple[tuple[Any, ...], dict[str, Any]]


def rms_norms(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    if dtype.is_floating_point:
        input, weight = torch.randn(2, 3, 8, dtype=dtype, device=device), torch.randn(8, dtype=dtype, device=device)
        yield (input, weight, 1e-5), {}
        yield (input, weight, 1e-5), {"unit_offset": True}
        yield (input, weight, 1e-5), {"rounded": True}


def functional_rms_norms(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    if dtype.is_floating_point:
        input, weight = torch.randn(2, 3, 8, dtype=dtype, device=device), torch.randn(8, dtype=dtype, device=device)
        yield (input, (8,), weight, 1e-5), {}
        yield (input, (3, 8)), {"eps": 1e-5}


def cross_entropies(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    if dtype.is_floating_point:
        logits = 3 * torch.randn(6, 5, dtype=dtype, device=device)
        target = torch.tensor([1, 0, -100, 4, 2, 2], device=device)
        yield (logits, target), {}
        yield (logits, target), {"reduction": "sum", "label_smoothing": 0.1}
        yield (logits, target % 5), {"reduction": "none", "ignore_index": 2}


SAMPLES = {
    composites.rms_norm: rms_norms,
    F.rms_norm: functional_rms_norms,
    F.cross_entropy: cross_entropies,
}
ROUNDED = (2e-2, 2e-2)
"""One unit in the last place of bfloat16 where the result is a difference: the kernel rounds before it adds."""

with installed():
    test_conformance = pytest.mark.battery(
        executor_suite(
            ApexExecutor(device="cpu"),
            dtypes=(torch.float32, torch.bfloat16),
            samples=SAMPLES,
            tolerances={("torch.nn.functional.layer_norm", torch.bfloat16): ROUNDED},
            skip={"*composites.rms_norm-claims": "programs record its parts, and a pass finds it: see test_calls.py"},
            limit=3,
        )
    )
