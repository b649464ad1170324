"""Calls that the executor declines, with reasons."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from against_eager import DEVICE, table

import thunder
from thunder_plugin_triton import environment

Program = Callable[[torch.Tensor], torch.Tensor]


def tensor(*shape: int, **options: Any) -> torch.Tensor:
    return torch.randn(shape, device=DEVICE, **options)


CASES: list[tuple[str, Program, torch.Tensor]] = [
    ("input is torch.float64", lambda x: F.rms_norm(x, (8,)), tensor(3, 8, dtype=torch.float64)),
    ("rows of 40000 elements: at most 32768", lambda x: F.rms_norm(x, (40000,)), tensor(1, 40000)),
    ("the elements of a row are not adjacent", lambda x: F.layer_norm(x, (8,)), tensor(8, 3).t()),
    ("the elements of a row are not adjacent", lambda x: F.rms_norm(x, (8,)), tensor(3, 16)[:, ::2]),
    ("rows are not at equal distances", lambda x: F.rms_norm(x, (8,)), tensor(4, 3, 8).transpose(0, 1)),
    ("rows are not at equal distances", lambda x: F.softmax(x, -1), tensor(4, 6, 8)[:, :3]),
    ("rows overlap", lambda x: F.layer_norm(x, (8,)), tensor(1, 8).expand(3, 8)),
    ("weight is not contiguous", lambda x: F.rms_norm(x[:, :8], (8,), x[0, ::2]), tensor(3, 16)),
    ("dimension 0 is not the last", lambda x: torch.softmax(x, 0), tensor(3, 8)),
    ("the result is torch.float64", lambda x: torch.softmax(x, -1, dtype=torch.float64), tensor(3, 8)),
    ("input has no dimensions", lambda x: torch.softmax(x, -1), tensor()),
    ("input is torch.int64", lambda x: torch.softmax(x, -1, dtype=torch.float32), torch.arange(6, device=DEVICE)),
    ("rows are empty", lambda x: torch.softmax(x, -1), tensor(3, 0)),
]


@pytest.mark.parametrize(("reason", "program", "x"), CASES, ids=[f"{number}" for number in range(len(CASES))])
def test_declined(reason: str, program: Program, x: torch.Tensor) -> None:
    compiled = thunder.jit(program, executors=["triton"])
    torch.testing.assert_close(compiled(x), program(x))
    assert reason in table(compiled)


def test_no_kernels_on_a_cpu_outside_of_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "INTERPRETED", False)
    environment.refusal_of_device.cache_clear()
    try:
        compiled = thunder.jit(lambda x: F.rms_norm(x, (8,)), executors=["triton"])
        x = torch.randn(2, 8)
        torch.testing.assert_close(compiled(x), F.rms_norm(x, (8,)))
        assert "not triton: tensors on cpu: Triton kernels run on CUDA (TRITON_INTERPRET=1" in table(compiled)
    finally:
        environment.refusal_of_device.cache_clear()


@pytest.mark.parametrize(
    ("device", "reason"), [("meta", "tensors on meta: "), ("cuda", "TRITON_INTERPRET=1: Triton's interpreter is for")]
)
@pytest.mark.skipif(not environment.INTERPRETED, reason="kernels are compiled here")
def test_other_devices(device: str, reason: str) -> None:
    assert reason in str(environment.refusal_of_device(torch.device(device)))
