"""With nvFuser itself, on a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import thunder
from thunder_core.plugins.host import host
from thunder_core.plugins.states import PluginState
from thunder_plugin_nvfuser.reproducers import save_reproducers
from thunder_testing import executor_suite

_RECORD = next(record for record in host().records if record.name == "nvfuser")
_WHY = "no CUDA device" if not torch.cuda.is_available() else f"{_RECORD.state.value}: {_RECORD.why}"
_USABLE = torch.cuda.is_available() and _RECORD.state in (PluginState.AVAILABLE, PluginState.LOADED)

pytestmark = pytest.mark.skipif(not _USABLE, reason=_WHY)

if _USABLE:
    test_conformance = executor_suite("nvfuser", devices=("cuda",), options={"smallest": 1})


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.gate = nn.LayerNorm(64), nn.Linear(64, 128), nn.Linear(64, 128)
        self.down = nn.Linear(128, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normal = self.norm(x)
        return x + self.down(F.silu(self.gate(normal)) * self.up(normal))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_training(dtype: torch.dtype, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*[Layer() for _ in range(3)]).to("cuda", dtype)
    x = torch.randn(8, 64, device="cuda", dtype=dtype)
    program: Any = thunder.jit(model, executors=["nvfuser"])
    found = []
    for run in (program, model):
        model.zero_grad()
        loss = F.cross_entropy(run(x).float(), torch.arange(8, device="cuda"))
        loss.backward()
        found.append([loss.detach(), *[parameter.grad.clone() for parameter in model.parameters()]])
    tolerance = 2e-2 if dtype is torch.bfloat16 else 1e-4
    torch.testing.assert_close(*found, rtol=tolerance, atol=tolerance)
    assert save_reproducers([thunder.last_traces(program)[-1]], tmp_path)
    assert thunder.explain(program).entries[0].regions.contents
