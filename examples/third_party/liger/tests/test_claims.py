"""Decisions for tensors on a GPU, whether or not there is one, and a model that trains with the kernels."""

import pytest
import torch
from torch import nn

import thunder
from thunder_liger import executor as liger


def decisions(program, *args, device="cuda"):
    """The operations, with their executors and the reasons why Liger declined them."""
    compiled = thunder.jit(program, executors=["liger"])
    thunder.precompile(compiled, args, device=device)
    found = thunder.explain(compiled).entries[-1].decisions
    return {(line.symbol.rpartition(".")[2], line.executor, dict(line.declined).get("liger")) for line in found}


@pytest.mark.parametrize(
    ("capability", "executor", "reason"),
    [((9, 0), "liger", None), ((7, 5), "reference", "compute capability (7, 5), and (8, 0) is needed")],
)
def test_claims_on_a_gpu(capability, executor, reason, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(liger, "INTERPRETED", False)
    norm = nn.LayerNorm(8, device="meta", dtype=torch.bfloat16)
    x = torch.empty(2, 8, device="meta", dtype=torch.bfloat16)
    with torch.no_grad():
        assert ("layer_norm", executor, reason) in decisions(norm, x)


class Block(nn.Module):
    """A layer and a loss as in Llama."""

    def __init__(self):
        super().__init__()
        self.norm = nn.Parameter(torch.ones(16))
        self.gate, self.up = nn.Linear(16, 24, bias=False), nn.Linear(16, 24, bias=False)
        self.down, self.head = nn.Linear(24, 16, bias=False), nn.Linear(16, 11, bias=False)

    def forward(self, x, target):
        normed = self.norm * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5))
        x = x + self.down(nn.functional.silu(self.gate(normed)) * self.up(normed))
        return nn.functional.cross_entropy(self.head(x).view(-1, 11), target.view(-1))


def test_a_model_trains_with_the_kernels():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = Block().to(device)
    compiled = thunder.jit(model, executors=["liger"])
    x, target = torch.randn(2, 3, 16, device=device), torch.randint(11, (2, 3), device=device)
    expected = torch.autograd.grad(model(x, target), tuple(model.parameters()))
    loss = compiled(x, target)
    torch.testing.assert_close(torch.autograd.grad(loss, tuple(model.parameters())), expected)
    claimed = {line.symbol for line in thunder.explain(compiled).entries[-1].decisions if line.executor == "liger"}
    assert {name.rpartition(".")[2] for name in claimed} >= {"rms_norm", "swiglu", "linear_cross_entropy"}
