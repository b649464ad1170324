"""Normalizations through programs, with the fake in the library's place on a CPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

import thunder
import thunder_plugin_composites as composites
from thunder_plugin_cudnn.executor import CudnnExecutor
from thunder_plugin_cudnn.options import CudnnOptions

SIZE = 16
EXECUTOR = CudnnExecutor(CudnnOptions(operations=("layer_norm", "rms_norm")), device="cpu")


def layer(x: Any, w: Any, b: Any) -> Any:
    return F.layer_norm(x, (SIZE,), w, b)


PROGRAMS: dict[str, Any] = {
    "layer": layer,
    "layer without": lambda x, w, b: F.layer_norm(x, (SIZE,), eps=1e-3) + w + b,
    "layer, weight": lambda x, w, b: F.layer_norm(x, (SIZE,), w) + b,
    "layer, bias": lambda x, w, b: F.layer_norm(x, (SIZE,), None, b) * w,
    "layer, two dimensions": lambda x, w, b: F.layer_norm(x, (3, SIZE)) * w + b,
    "rms": lambda x, w, b: F.rms_norm(x, (SIZE,), w, 1e-5) + b,
    "rms, default": lambda x, w, b: F.rms_norm(x, (SIZE,), w) + b,
    "rms without": lambda x, w, b: F.rms_norm(x, (SIZE,)) + w + b,
    "part of the input": lambda x, w, b: layer(x[1:], w, b),
}


def spelled_out(x: Any, w: Any, b: Any) -> Any:
    """As LitGPT does it."""
    wide = x.float()
    n = wide * torch.rsqrt(torch.mean(wide * wide, dim=-1, keepdim=True) + 1e-5)
    return (n * w.float()).to(dtype=x.dtype) + b


def outcome(program: Any, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    leaves = [tensor.detach().clone().requires_grad_() for tensor in tensors]
    output = program(*leaves)
    cotangent = torch.sin(torch.arange(output.numel()).view(output.shape)).to(output.dtype)
    return [output.detach(), *torch.autograd.grad(output, leaves, cotangent)]


def tensors(dtype: torch.dtype) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn(shape, dtype=dtype) for shape in ((2, 3, SIZE), (SIZE,), (SIZE,))]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.slow
def test_programs(name: str, dtype: torch.dtype) -> None:
    compiled = thunder.jit(PROGRAMS[name], executors=[EXECUTOR])
    given = tensors(dtype)
    tolerance = {"rtol": 3e-2, "atol": 3e-2} if dtype is torch.bfloat16 else {}
    for found, expected in zip(outcome(compiled, given), outcome(PROGRAMS[name], given), strict=True):
        torch.testing.assert_close(found, expected, **tolerance)
        assert found.stride() == expected.stride()
    with torch.no_grad():
        torch.testing.assert_close(compiled(*given), PROGRAMS[name](*given), **tolerance)
    assert "cudnn" in [line.symbol.executor for line in thunder.last_traces(compiled)[-1].symbols]


@pytest.mark.parametrize("unit_offset", [False, True])
@pytest.mark.parametrize("of_weight", [torch.bfloat16, torch.float32], ids=str)
def test_the_composite(unit_offset: bool, of_weight: torch.dtype) -> None:
    """The functions that stand in traces for it, against its definition."""
    from thunder_plugin_cudnn import rms_norm

    x, w, _ = tensors(torch.bfloat16)
    leaves = [x.requires_grad_(), w.to(of_weight).requires_grad_()]
    expected = composites.rms_norm(*leaves, 1e-5, unit_offset)
    cotangent = torch.sin(torch.arange(x.numel()).view(x.shape)).bfloat16()
    wanted = torch.autograd.grad(expected, leaves, cotangent)
    with torch.no_grad():
        found, residuals = rms_norm.forward_composite(*leaves, 1e-5, unit_offset)
        torch.testing.assert_close(found, expected, rtol=1e-2, atol=1e-2)
        assert torch.equal(rms_norm.run_composite(*leaves, 1e-5, unit_offset), found)
        gradients = rms_norm.backward(residuals, (cotangent,), (True, True))
    torch.testing.assert_close(gradients, wanted, rtol=3e-2, atol=3e-2)


def test_what_models_spell_out() -> None:
    compiled = thunder.jit(spelled_out, executors=[EXECUTOR])
    given = tensors(torch.bfloat16)
    torch.testing.assert_close(outcome(compiled, given), outcome(spelled_out, given), rtol=3e-2, atol=3e-2)
    assert "cudnn" in [line.symbol.executor for line in thunder.last_traces(compiled)[-1].symbols]


def test_rows_of_one_element() -> None:
    """cuDNN's gradient of these was -2.55e-5 on an H200, and 0 is right."""
    x = torch.randn(3, 1, requires_grad=True)
    compiled = thunder.jit(lambda x: F.layer_norm(x, (1,)), executors=[EXECUTOR])
    compiled(x).sum().backward()
    assert not x.grad.any()
    reasons = [reason for line in thunder.explain(compiled).decisions for _, reason in line.declined]
    assert "rows have one element, for which cuDNN's gradient is not zero" in reasons
