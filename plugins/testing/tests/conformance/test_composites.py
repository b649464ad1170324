"""Claims of composites: the suite calls them whole, and shows how to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import thunder_plugin_composites as composites
from thunder_core.executors import Claim, OperatorExecutor
from thunder_testing.conformance.case import as_test
from thunder_testing.conformance.failure import ConformanceFailure
from thunder_testing.conformance.suite import executor_cases


def samples(device: str, dtype: torch.dtype) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    if dtype.is_floating_point:
        yield tuple(torch.randn(2, 3, 4, dtype=dtype, device=device)), {}


def cases(run: Any) -> list[Any]:
    executor = OperatorExecutor("units", (Claim(composites.swiglu, run),))
    return executor_cases(executor, samples={composites.swiglu: samples}, dtypes=(torch.float32,))


test_right = as_test(cases(lambda gate, up: F.silu(gate) * up), "A composite whose kernel is right.")


def test_wrong() -> None:
    (case,) = [case for case in cases(lambda gate, up: F.silu(up) * gate) if "swiglu-forward" in case.id]
    with pytest.raises(ConformanceFailure, match="the rule of values is broken") as raised:
        case.run()
    whole = "thunder_testing.conformance.call.recorded_whole(thunder_plugin_composites.symbols.gating.swiglu)(x0, x1)"
    assert f"    return {whole}" in str(raised.value)
