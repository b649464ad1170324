"""The time of each line."""

from __future__ import annotations

import copy
import pickle
import time
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import thunder
from thunder_core.executors import Claim, OperatorExecutor
from thunder_plugin_debug import LineCallbacks, LineTiming, TimingRecord
from thunder_plugin_debug.timing_record import format_table
from thunder_testing.forked import run_forked


def slow_gelu(x: torch.Tensor) -> torch.Tensor:
    time.sleep(0.02)
    return F.gelu(x)


SLOW = OperatorExecutor("slow", (Claim(F.gelu, run=slow_gelu),))


def layers(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    for _ in range(3):
        x = F.gelu(torch.relu(x @ weight))
    return x.sum()


def test_the_slow_line_is_the_first() -> None:
    timing = LineTiming()
    compiled = thunder.jit(layers, executors=[SLOW], transforms=[timing])
    x, weight = torch.randn(2, 4), torch.randn(4, 4)
    compiled(x, weight)
    timing.reset()
    start = time.perf_counter()
    for _ in range(2):
        compiled(x, weight)
    wall = time.perf_counter() - start
    first, *others = timing.records
    assert (first.operation, first.executor, first.phase) == ("torch.nn.functional.gelu", "slow", "inference")
    assert (first.calls, first.clock) == (6, "cpu")
    assert first.mean >= 0.02
    assert first.place.endswith("in layers")
    assert {(record.operation, record.calls) for record in others} == {
        ("torch.matmul", 6),
        ("torch.relu", 6),
        ("torch.sum", 2),
    }
    totals = [record.total for record in timing.records]
    assert totals == sorted(totals, reverse=True)
    assert sum(totals) <= wall
    assert sum(record.share for record in timing.records) == pytest.approx(1)


def test_forward_and_backward() -> None:
    timing = LineTiming()
    compiled = thunder.jit(layers, transforms=[timing])
    compiled(torch.randn(2, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)).backward()
    assert {record.phase for record in timing.records} == {"forward", "backward"}
    (product,) = [record for record in timing.records if record.operation == "torch.matmul"]
    assert product.calls == 3


def test_other_transforms_are_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0]
    monkeypatch.setattr("thunder_plugin_debug.stopwatch.perf_counter_ns", lambda: now[0])
    timing = LineTiming()

    def sleep(*_: Any) -> None:
        now[0] += 1_000_000

    sleeping = LineCallbacks(before_line=sleep)
    x, weight = torch.randn(2, 4), torch.randn(4, 4)
    compiled = thunder.jit(layers, transforms=[sleeping, timing])
    compiled(x, weight)
    timing.reset()
    compiled(x, weight)
    assert now[0] > 0
    assert all(record.total == 0 for record in timing.records)


def test_reset_and_nothing_measured() -> None:
    timing = LineTiming()
    thunder.jit(layers, transforms=[timing])(torch.randn(2, 4), torch.randn(4, 4))
    assert timing.records
    timing.reset()
    assert timing.records == ()
    assert len(timing.table().splitlines()) == 1


def test_table() -> None:
    records = [
        TimingRecord("forward", "torch.matmul", "reference", "model.py:3 in forward", "cuda:0", 2, 3e-3, 0.75),
        TimingRecord("backward", "a + b + c + d + e", "kernels", "", "cpu", 10, 9e-4, 0.225),
        TimingRecord("backward", "torch.add", "reference", "", "cpu", 1, 1e-4, 0.025),
    ]
    assert format_table(records, 2).splitlines() == [
        "   total  share  calls     mean  clock   phase     executor   operation           line",
        " 3.00 ms  75.0%      2  1.50 ms  cuda:0  forward   reference  torch.matmul        model.py:3 in forward",
        "900.0 us  22.5%     10  90.0 us  cpu     backward  kernels    a + b + c + 2 more",
        "100.0 us in 1 more",
    ]


@pytest.mark.parametrize(
    "again", [copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))], ids=["copy", "pickle"]
)
def test_copies_of_compiled_modules(again: Any) -> None:
    timing = LineTiming(rows=7)
    compiled = thunder.jit(torch.nn.Linear(3, 3), transforms=[timing])
    compiled(torch.randn(2, 3))
    other = again(compiled)
    torch.testing.assert_close(other(torch.ones(2, 3)), compiled(torch.ones(2, 3)))
    assert timing.rows == 7


def test_wrong_option() -> None:
    with pytest.raises(thunder.ThunderError, match="use one of 'exit', 'none'"):
        LineTiming(report="always")  # type: ignore[arg-type]


@pytest.mark.parametrize("calls", [1, 0])
def test_report_at_exit(calls: int) -> None:
    code = f"""
import torch, thunder
from thunder_plugin_debug import LineTiming
f = thunder.jit(lambda x: torch.relu(x).exp(), transforms=[LineTiming(report="exit", rows=1)])
for _ in range({calls}):
    f(torch.ones(2))
"""
    done = run_forked(code)
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert done.stdout == ""
    if not calls:
        assert lines == []
        return
    title, columns, row, rest = lines
    assert title == "time of operations, by thunder_plugin_debug:"
    assert columns.split()[:2] == ["total", "share"]
    assert "inference" in row
    assert rest.endswith("in 1 more")
