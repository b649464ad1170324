"""Inductor's kernels in place of PyTorch's, exchanged while a program is in use."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import thunder
from thunder_fusion import behind, compiled_regions
from thunder_testing.behind import HeldJob


class Statistics(nn.Module):
    """A region that writes a buffer, between others."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.register_buffer("cache", torch.zeros(4, 8))

    def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        hidden = nn.functional.gelu(self.first(x))
        with torch.no_grad():
            self.cache.index_copy_(0, position, hidden * 2 + 1)
        return nn.functional.dropout(hidden, 0.5).sin() * 2


@pytest.mark.parametrize("training", [pytest.param(True, marks=pytest.mark.battery), False])
def test_as_eager_at_each_call(monkeypatch: pytest.MonkeyPatch, training: bool) -> None:
    """To the bit until code arrives; up to rounding, which the report names, afterwards."""
    monkeypatch.setattr(HeldJob, "jobs", [], raising=False)
    monkeypatch.setattr(behind, "Job", HeldJob)
    monkeypatch.setenv("THUNDER_CACHE_DIR", "")
    compiled_regions._cache.clear()
    eager = Statistics()
    compiled = thunder.jit(copy.deepcopy(eager), executors=["inductor"], compile="behind")
    before = [model.cache._version for model in (eager, compiled)]
    for call in range(6):
        x, position = torch.randn(2, 8), torch.randperm(4)[:2]
        both = []
        for model in (eager, compiled):
            torch.manual_seed(call)
            with torch.set_grad_enabled(training):
                results = [model(x, position)]
            if training:
                model.zero_grad()
                results[0].square().sum().backward()
                results += [parameter.grad for parameter in model.parameters()]
            both.append([*[result.detach() for result in results], model.cache.clone(), torch.get_rng_state()])
        assert compiled.cache._version - before[1] == eager.cache._version - before[0]
        exact = {"rtol": 0, "atol": 0} if call < 3 else {}
        torch.testing.assert_close(both[1], both[0], **exact)
        for job in HeldJob.jobs if call == 1 else ():
            job.ended = True
    assert len(HeldJob.jobs) == 1
    regions = thunder.explain(compiled).entries[0].regions
    assert regions is not None
    assert regions.behind == {"code of another process runs it": regions.regions}
    assert all("; compared with PyTorch's kernels, it differs by " in content for content in regions.contents)
