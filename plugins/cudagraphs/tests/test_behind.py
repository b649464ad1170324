"""Graphs of programs whose regions other processes compile: captured once all regions run their final code."""

from __future__ import annotations

import pytest
import torch
from graphed_programs import Network, Pair, same

import thunder
from thunder_fusion import behind
from thunder_plugin_cudagraphs import CUDAGraphs
from thunder_plugin_cudagraphs.program import NOT_COMPILED
from thunder_testing.behind import Coded, HeldJob


@torch.no_grad()
def test_captured_after_the_exchange(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    monkeypatch.setattr(HeldJob, "jobs", [], raising=False)
    monkeypatch.setattr(behind, "Job", HeldJob)
    executor, eager = Coded(), Network().to(device)
    compiled = thunder.jit(eager, executors=[executor], transforms=[CUDAGraphs(copy_below=0)], compile="behind")
    pair = Pair(eager, compiled)
    for call in range(12):
        x = torch.randn(2, 5, 16, device=device)
        same(compiled(x), eager(x))
        HeldJob.jobs[0].ended = call >= 3
    statistics = pair.statistics("inference")
    assert (
        dict(statistics.ungraphed)[NOT_COMPILED] == 5 + 1
    )  # waiting, compared, and the call that reads the comparison
    assert statistics.replays >= 3
    assert len(executor.ran) >= 3
