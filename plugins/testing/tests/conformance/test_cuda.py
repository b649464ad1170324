"""The suite on a GPU, with kernels in Triton: right ones pass, those without a mask are found."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from messages import failures

from thunder_core.executors import Claim, DerivativePair, OperatorExecutor
from thunder_testing.conformance.suite import executor_cases

triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
ON_GPU: dict[str, Any] = {"devices": ("cuda",), "dtypes": (torch.float32, torch.bfloat16), "limit": 4}


@triton.jit
def silu_kernel(x, y, count, MASKED: tl.constexpr, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = place < count
    value = tl.load(x + place, mask=mask).to(tl.float32)
    result = value / (1 + tl.exp(-value))
    tl.store(y + place, result.to(y.dtype.element_ty), mask=(mask if MASKED else place < count + 3))


def silu(input: torch.Tensor, masked: bool = True) -> torch.Tensor:
    flat = input.contiguous()
    result = torch.empty_like(flat)
    if flat.numel():
        silu_kernel[(triton.cdiv(flat.numel(), 256),)](flat, result, flat.numel(), MASKED=masked, BLOCK=256)
    return torch.empty_like(input).copy_(result) if input.stride() != result.stride() else result


def silu_without_mask(input: torch.Tensor) -> torch.Tensor:
    return silu(input, masked=False)


def forward(input: torch.Tensor) -> Any:
    return silu(input), (input,)


def fake(input: torch.Tensor) -> Any:
    return torch.empty_like(input), (input,)


def backward(residuals: Any, cotangents: Any, wanted: Any) -> Any:
    (x,), (cotangent,) = residuals, cotangents
    wide, gate = x.float(), torch.sigmoid(x.float())
    gradient = (cotangent.float() * (gate + wide * gate * (1 - gate))).to(x.dtype)
    return (torch.empty_like(x).copy_(gradient),)


def check_dtype(input: Any) -> bool | str:
    return True if input.dtype in (torch.float32, torch.bfloat16) else f"there is no kernel for {input.dtype}"


def kernels(run: Any) -> OperatorExecutor:
    return OperatorExecutor(
        "triton_kernels", (Claim(F.silu, run, check_dtype, DerivativePair(forward, backward, fake)),)
    )


def test_right_kernel_passes() -> None:
    assert list(failures(kernels(silu), "*", **ON_GPU)) == []
    ids = {case.id for case in executor_cases(kernels(silu), **ON_GPU)}
    assert "torch.nn.functional.silu-memory-cuda-bfloat16-0" in ids


def test_writes_behind_the_result_are_found() -> None:
    executor = OperatorExecutor("triton_kernels", (Claim(F.silu, silu_without_mask, check_dtype),))
    found = list(failures(executor, "*-memory-*", **ON_GPU))
    assert any("the rule of memory bounds is broken" in message and "0 bytes behind" in message for message in found)
    assert any('device="cuda:0"' in message for message in found)


@pytest.mark.parametrize("symbol", [torch.softmax, F.layer_norm, torch.matmul, F.dropout, torch.sum, F.cross_entropy])
def test_pytorch_itself_passes(symbol: Any) -> None:
    from thunder_testing.conformance.subject import symbol_of

    executor = OperatorExecutor("same", (Claim(symbol, symbol_of(symbol).target),))
    assert list(failures(executor, "*", **ON_GPU)) == []
