"""Gradients at zeros, infinities and NaN are those of eager, also where formulas depend on values; anomaly mode."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import thunder
from thunder_testing.pointwise import Pointwise

_INF = float("inf")
INPUTS = {
    "zeros": [0.0, 0.0, _INF],
    "a zero": [0.0, 1.0, _INF],
    "none": [2.0, _INF, -3.0],
    "not a number": [0.0, float("nan"), _INF],
    "all zeros": [0.0, 0.0, 0.0],
    "signed": [-0.0, -_INF, 0.5],
}
FORMULAS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "prod": torch.prod,
    "prod of a dimension": lambda x: x.prod(0, keepdim=True),
    "prod of a matrix": lambda x: x.view(3, 1).prod(1).prod(),
    "cumprod": lambda x: x.cumprod(0),
    "max": torch.max,
    "min": torch.min,
    "median": torch.median,
    "nanmedian": torch.nanmedian,
    "amax": torch.amax,
    "norm": torch.norm,
    "norm of order 0.5": lambda x: torch.linalg.vector_norm(x, 0.5),
    "norm of order 1": lambda x: x.norm(1),
    "norm of order 3": lambda x: x.norm(3),
    "largest norm": lambda x: x.norm(_INF),
    "normalize": lambda x: F.normalize(x, dim=0),
    "std": torch.std,
    "sqrt": torch.sqrt,
    "power": lambda x: x**0.5,
    "xlogy": lambda x: torch.xlogy(x, x),
    "logsumexp": lambda x: x.logsumexp(0),
    "logaddexp": lambda x: torch.logaddexp(x, x.flip(0)),
    "atan2": lambda x: torch.atan2(x, x.flip(0)),
    "sinc": torch.sinc,
}


@pytest.mark.parametrize("name", FORMULAS)
@pytest.mark.battery
def test_gradients_at_special_values(name: str) -> None:
    function = FORMULAS[name]
    compiled = thunder.jit(lambda x: function(x) * 1, executors=[Pointwise()])
    for values in INPUTS.values():
        for gradient in (1.0, _INF, 0.0):
            found = []
            for run in (function, compiled):
                x = torch.tensor(values, requires_grad=True)
                result = run(x)
                found.append(torch.autograd.grad(result, x, torch.full_like(result, gradient))[0])
            torch.testing.assert_close(found[1], found[0], equal_nan=True, msg=f"{values}, {gradient}: {found}")


@pytest.mark.parametrize("function", [torch.relu, F.gelu, torch.sgn, lambda x: F.layer_norm(x, (3,))])
def test_compilation_in_anomaly_mode_is_silent(function: Any) -> None:
    """Only the mode itself warns, and errors of the program are found as without it."""
    x = torch.randn(2, 3, requires_grad=True)
    compiled = thunder.jit(lambda x: function(x).sum() * 2, executors=[])
    with warnings.catch_warnings(), torch.autograd.set_detect_anomaly(True):
        warnings.simplefilter("error")
        (found,) = torch.autograd.grad(compiled(x), x)
    torch.testing.assert_close(found, torch.autograd.grad(function(x).sum() * 2, x)[0])
    assert "eager" not in str(thunder.explain(compiled).entries[0].training.sources)


def test_anomaly_mode_finds_nan_in_compiled_backward() -> None:
    x = torch.zeros(3, requires_grad=True)
    compiled = thunder.jit(lambda x: (x.sqrt() * 0).sum(), executors=[])
    with torch.autograd.set_detect_anomaly(True):
        loss = compiled(x)
        with pytest.warns(UserWarning, match="Error detected"), pytest.raises(RuntimeError, match="nan values"):
            loss.backward()
