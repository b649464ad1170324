"""Softmax: PyTorch's, and attention's with scale and mask; short rows, and long ones block by block."""

from __future__ import annotations

import re

import against_eager
import pytest
import torch
from against_eager import DEVICE, assert_as_accurate_as_eager, table

import thunder
from thunder_core.executors import OperatorExecutor
from thunder_plugin_triton import softmax, softmax_calls
from thunder_plugin_triton.options import TritonOptions
from thunder_plugin_triton.tuning import Tunable

DTYPES = (torch.float32, torch.bfloat16)


@pytest.fixture(params=[32768, 16], ids=["rows", "blocks"])
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Rows of more than 16 elements count as long, for a new executor: others have cached their answers."""
    monkeypatch.setattr(softmax, "LARGEST", request.param)
    monkeypatch.setattr(softmax_calls, "LARGEST", request.param)
    small = Tunable("small blocks", lambda *key: [{"BLOCK": 32, "num_warps": 4}])
    for name in ("_FORWARD_BLOCKS", "_BACKWARD_BLOCKS"):
        monkeypatch.setattr(softmax_calls, name, small)
    monkeypatch.setattr(against_eager, "EXECUTORS", [OperatorExecutor("triton", softmax.claims(TritonOptions()))])
    return "triton.rows" if request.param > 16 else "triton.blocks"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_softmax(kernels: str, dtype: torch.dtype) -> None:
    for width in (1, 50):
        x = (torch.randn(2, 2, width) * 4).to(DEVICE, dtype)
        compiled = assert_as_accurate_as_eager(lambda x: torch.softmax(x, -1), x, name="softmax")
    assert kernels in table(compiled)

    def widening(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, 2, dtype=torch.promote_types(x.dtype, torch.float32))

    assert_as_accurate_as_eager(widening, x, name="softmax")


@pytest.mark.parametrize("shape", [(2, 1, 3, 40), (3, 40), (1, 2, 1, 40), (40,)], ids=str)
@pytest.mark.slow
def test_scale_and_mask(kernels: str, shape: tuple[int, ...]) -> None:
    dtype = torch.float32 if len(shape) > 2 else torch.bfloat16
    x = (torch.randn(2, 2, 3, 40) * 4).to(DEVICE, dtype)
    hidden = (torch.rand(shape, device=DEVICE) > 0.6) & (torch.arange(40, device=DEVICE) > 3)
    mask = torch.zeros(shape, dtype=dtype, device=DEVICE).masked_fill(hidden, -torch.inf)

    def attend(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x * 0.25 + mask.to(x.dtype), -1)

    assert_as_accurate_as_eager(attend, x, name="scaled_softmax")


@pytest.mark.parametrize("dtypes", [(torch.float16, torch.float32), (torch.float16, torch.bfloat16)], ids=str)
def test_a_mask_without_dimensions_does_not_promote(kernels: str, dtypes: tuple[torch.dtype, torch.dtype]) -> None:
    x, mask = torch.randn(3, 40, device=DEVICE, dtype=dtypes[0]), torch.tensor(0.5, device=DEVICE, dtype=dtypes[1])
    assert_as_accurate_as_eager(lambda x: torch.softmax(x * 0.5 + mask, -1), x, name="scaled_softmax")


def test_rows_without_anything_are_not_numbers(kernels: str) -> None:
    x = torch.randn(3, 40, device=DEVICE)
    x[1] = -torch.inf
    x[2, 5] = torch.inf
    compiled = thunder.jit(lambda x: torch.softmax(x, -1), executors=against_eager.EXECUTORS)
    torch.testing.assert_close(compiled(x), torch.softmax(x, -1), equal_nan=True)
    assert kernels in table(compiled)


def test_a_mask_with_a_gradient_is_declined() -> None:
    x, mask = torch.randn(2, 2, 3, 8, device=DEVICE), torch.randn(3, 8, device=DEVICE, requires_grad=True)
    compiled = thunder.jit(lambda x, mask: torch.softmax(x * 0.5 + mask, -1), executors=["triton"])
    torch.testing.assert_close(compiled(x, mask), torch.softmax(x * 0.5 + mask, -1))
    assert "not triton: the mask requires grad" in table(compiled)
    assert re.search(r"torch.softmax +triton.rows", table(compiled))
