"""The trace for Perfetto."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

import thunder


def program(x: torch.Tensor) -> torch.Tensor:
    return (x.exp().sin() + 1).sum()


@pytest.mark.parametrize("measured", [False, True])
def test_ops_memory_and_passes_are_events(tmp_path: Path, measured: bool) -> None:
    timing: list[Any] = [{"line_timing": {"report": "none", "rows": 8}}] if measured else []
    compiled = thunder.jit(program, executors=[], transforms=timing)
    x = torch.randn(256)
    torch.testing.assert_close(compiled(x), program(x))
    thunder.explain(compiled).to_perfetto(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    ops = [event for event in spans if "executor" in event["args"]]
    assert [event["args"]["index"] for event in ops] == [0, 1, 2, 3]
    assert all(after["ts"] == pytest.approx(each["ts"] + each["dur"]) for each, after in itertools.pairwise(ops))
    assert all((event["dur"] != 1.0) == measured for event in ops)
    bytes_ = [next(iter(event["args"].values())) for event in events if event["ph"] == "C"]
    assert bytes_ == [1024, 2048, 2048, 1028]
    stages = [stage.name for stage in thunder.explain(compiled).stages]
    assert [event["name"] for event in spans if "ops" in event["args"]] == stages[: len(spans) - len(ops)]
    titles = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert ("not measured" in titles[0]) != measured


def test_collectives_are_spans_from_their_start_to_their_wait(tmp_path: Path) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        work = dist.all_reduce(y := x.exp(), async_op=True)
        other = x.sin()
        work.wait()
        return y + other

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        compiled = thunder.jit(program, executors=[])
        x = torch.randn(4)
        torch.testing.assert_close(compiled(x), program(x))
        report = thunder.explain(compiled)
        report.to_perfetto(tmp_path / "trace.json")
        report.to_html(tmp_path / "out.html")
    finally:
        dist.destroy_process_group()
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    (span,) = [event for event in events if event["ph"] == "X" and "wait" in event["args"]]
    assert span["name"] == report.collectives[0].kind == "all_reduce"
    assert span["args"]["wait"] > span["args"]["op"]
    assert span["dur"] == pytest.approx(span["args"]["wait"] - span["args"]["op"] + 1)
    assert '"kind":"all_reduce"' in (tmp_path / "out.html").read_text()
