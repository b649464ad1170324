"""A part of the conformance suite of executors (docs/conformance.md), without a GPU in Triton's interpreter.

Of the composites it has some; the other tests spell them as models do.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import thunder_plugin_composites as composites
from thunder_testing.conformance.case import as_test
from thunder_testing.conformance.suite import executor_cases

CUDA = torch.cuda.is_available()


def softmaxes(device: str, dtype: torch.dtype) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Of the last dimension; many of PyTorch's samples are not, or are in float64."""
    if dtype.is_floating_point:
        x = torch.randn(3, 4, 6, dtype=dtype, device=device)
        yield (x, -1), {}
        yield (x[0], 1), {"dtype": torch.float32}
        yield (x, 1), {}


def losses(device: str, dtype: torch.dtype) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Rows of logits, or of what a linear layer makes logits of, and classes."""
    if dtype.is_floating_point:
        x, target = torch.randn(6, 5, dtype=dtype, device=device), torch.tensor([0, 4, -100, 1, 2, 1], device=device)
        yield (x, target), {"label_smoothing": 0.1}
        yield (x, target), {"reduction": "sum"}


def linear_losses(device: str, dtype: torch.dtype) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """PyTorch's function for both, with all arguments: of many samples the suite takes those that have most."""
    for (x, target), options in losses(device, dtype):
        bias = torch.randn(7, dtype=dtype, device=device)
        given = {"linear_bias": bias, "weight": None, "ignore_index": -100, "options": None, "label_smoothing": 0.1}
        yield (
            (x[:1], torch.randn(7, 5, dtype=dtype, device=device), target[:1]),
            {"reduction": "mean", **given, **options},
        )
        yield (x, torch.randn(7, 5, dtype=dtype, device=device), target), {"reduction": "sum", **given, **options}


def units(device: str, dtype: torch.dtype) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Gate and up."""
    if dtype.is_floating_point:
        yield tuple(torch.randn(2, 3, 5, dtype=dtype, device=device)), {}


def norms(device: str, dtype: torch.dtype) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Rows and a weight."""
    if dtype.is_floating_point:
        x, weight = torch.randn(2, 3, 6, dtype=dtype, device=device), torch.randn(6, dtype=dtype, device=device)
        yield (x, weight, 1e-5), {}
        yield (x, weight, 1e-3, True, True), {}


SAMPLES: dict[Any, Any] = {
    torch.softmax: softmaxes,
    F.cross_entropy: losses,
    composites.swiglu: units,
    composites.geglu: units,
    composites.rms_norm: norms,
}
TESTED = [f".{name}-" for name in ("swiglu", "geglu", "rms_norm")]
if hasattr(F, "linear_cross_entropy"):  # since 2.13
    SAMPLES[F.linear_cross_entropy] = linear_losses

CASES = [
    case
    for case in executor_cases(
        "triton",
        devices=("cuda",) if CUDA else ("cpu",),
        dtypes=None if CUDA else (torch.float32, torch.bfloat16),
        samples=SAMPLES,
        limit=8 if CUDA else 2,
    )
    if ("composites" not in case.id or any(name in case.id for name in TESTED))
    and (CUDA or "bfloat16" not in case.id or "-gradient-" in case.id)
]

test_conformance = pytest.mark.battery(as_test(CASES, "Conformance of triton."))
