"""Operators of PyTorch's OpInfo database, compiled, against eager.

All of them take hours, since each sample is a kernel; here are some of each kind. Regions may have a single line.
Kernels round in another order than eager, so values are compared with tolerances.
"""

from __future__ import annotations

from typing import Any

import pytest

import thunder
from thunder_plugin_inductor import compilers
from thunder_testing.opinfo import run_backward, run_operator
from thunder_testing.outcome import Outcome, Status

pytestmark = pytest.mark.skipif(
    compilers.missing_compiler("cpu") is not None, reason=str(compilers.missing_compiler("cpu"))
)

FORWARD = ("clamp", "index_select", "var_mean", "scatter_add")
BACKWARD = ("nn.functional.layer_norm", "log_softmax")


def inductor(function: Any) -> Any:
    return thunder.jit(function, executors=[{"inductor": {"smallest": 1}}])


@pytest.mark.parametrize("name", FORWARD)
@pytest.mark.battery
def test_operator(name: str) -> None:
    assert run_operator(name, inductor, samples=1, rtol=1e-5, atol=1e-6) == Outcome(Status.PASSED)


@pytest.mark.parametrize("name", BACKWARD)
@pytest.mark.battery
def test_gradients(name: str) -> None:
    assert run_backward(name, inductor, samples=1) == Outcome(Status.PASSED)


@pytest.mark.slow
def test_an_operator_and_its_gradient() -> None:
    assert run_backward("nn.functional.gelu", inductor, samples=1) == Outcome(Status.PASSED)
