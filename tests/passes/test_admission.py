"""Errors of compiled regions: PyTorch's kernels raise theirs."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import thunder
from thunder_core.executors.executor import RegionError
from thunder_core.ir.trace import Stage, Trace
from thunder_core.passes.admission import AdmittedRegion


class _Refused(RegionError, RuntimeError):
    pass


def _refuse(*inputs: Any) -> Any:
    raise _Refused("the region's own message")


def _region(program: Any, *inputs: torch.Tensor) -> Trace:
    compiled = thunder.jit(program, executors=[])
    compiled(*inputs)
    return next(trace for trace in thunder.last_traces(compiled) if trace.stage is Stage.FUNCTIONAL)


def test_an_error_of_a_region_is_that_of_eager() -> None:
    x, at = torch.arange(3.0), torch.tensor([1])
    region = AdmittedRegion(_refuse, _region(lambda x, at: x[at] * 2, x, at))
    with pytest.raises(IndexError, match="index 5 is out of bounds for dimension 0 with size 3") as raised:
        region(x, torch.tensor([5]))
    assert type(raised.value) is IndexError
    assert raised.value.__context__ is None


def test_without_one_it_is_the_error_of_the_region() -> None:
    x, at = torch.arange(3.0), torch.tensor([1])
    region = AdmittedRegion(_refuse, _region(lambda x, at: x[at] * 2, x, at))
    with pytest.raises(_Refused, match="the region's own message"):
        region(x, at)
