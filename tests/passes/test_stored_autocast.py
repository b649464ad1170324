"""Explicit forms of ops under autocast on disk: what is found again, and what is decided again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import thunder
from tests.passes.on_cuda import on_cuda
from thunder_core.autodiff.derivatives.derivative import PLAIN
from thunder_core.executors import disk_tables
from thunder_core.executors.disk_tables import save_tables
from thunder_core.passes import explicit_autocast
from thunder_core.passes.autocast_rewrites import Rewrite


@pytest.fixture
def decided(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the symbols whose form was decided in this process."""
    names: list[str] = []
    decide = explicit_autocast._decide

    def counted(bound: Any, context: Any) -> Any:
        names.append(bound.symbol.name)
        return decide(bound, context)

    monkeypatch.setattr(explicit_autocast, "_decide", counted)
    return names


@pytest.fixture
def start_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Write what is to be kept, and forget what this process knows."""
    monkeypatch.setenv("THUNDER_CACHE_DIR", str(tmp_path / "cache"))

    def forget() -> None:
        assert save_tables() == []
        monkeypatch.setattr(disk_tables, "_tables", {})
        explicit_autocast._cache.clear()

    forget()
    return forget


@torch.library.custom_op("thunder_autocast::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    """Of a user, whose casts may be others in the next process."""
    return x * 2


@twice.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


CASES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "unchanged": lambda x: x.sin() * 2,
    "arguments are cast": lambda x: F.linear(x, x),
    "an option": lambda x: F.softmax(x, -1),
    "its parts": lambda x: F.multi_head_attention_forward(
        x[:, None], x[:, None], x[:, None], 4, 2, x.repeat(3, 1), None, None, None, False, 0.0, x, None,
        need_weights=False)[0],
    "several dtypes": lambda x: F.cross_entropy(x.half() @ x, x.softmax(-1)),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_forms_are_read_as_they_were_made(start_again: Callable[[], None], decided: list[str], case: str) -> None:
    x = torch.randn(4, 4)

    def run(call: Callable[..., torch.Tensor]) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return call(x)

    first = thunder.jit(CASES[case])
    torch.testing.assert_close(run(first), run(CASES[case]))
    assert decided
    decided.clear()
    start_again()
    second = thunder.jit(CASES[case])
    torch.testing.assert_close(run(second), run(CASES[case]))
    assert decided == []
    assert [str(trace) for trace in thunder.last_traces(first)] == [str(trace) for trace in thunder.last_traces(second)]


def test_ops_of_users_are_decided_again(start_again: Callable[[], None], decided: list[str]) -> None:
    for _ in range(2):
        with torch.autocast("cpu", torch.bfloat16):
            thunder.jit(lambda x: twice(x.sin()))(torch.ones(3))
        start_again()
    assert [name.split(".")[-2] for name in decided] == ["torch", "twice", "twice"]


def test_a_gpu_that_is_not_there(start_again: Callable[[], None], decided: list[str]) -> None:
    bound = thunder.last_traces(_called(thunder.jit(F.linear)))[0].symbols[0]
    context = replace(PLAIN, autocast=(("cuda", torch.bfloat16),))
    line = on_cuda(bound, context)
    assert line is not None
    for _ in range(2):
        assert explicit_autocast.explicit_form(line, context) == Rewrite("cuda", torch.bfloat16)
        start_again()
    assert len(decided) == 1


def _called(program: Any) -> Any:
    program(torch.ones(2, 2), torch.ones(2, 2))
    return program


def test_another_dtype_of_autocast_is_another_entry(start_again: Callable[[], None], decided: list[str]) -> None:
    for dtype in (torch.bfloat16, torch.float16):
        with torch.autocast("cpu", dtype):
            assert thunder.jit(F.linear)(torch.ones(2, 2), torch.ones(2, 2)).dtype is dtype
        start_again()
    assert len(decided) == 2
