"""Decisions for tensors on a GPU, whether or not there is one, and a model that trains with the kernels."""

import torch
from torch import nn

import thunder
from thunder_core.ir.proxy import TensorProxy
from thunder_liger import executor as liger


def proxy(*shape, dtype=torch.bfloat16, device="cuda"):
    strides = torch.empty(shape, device="meta").stride()
    return TensorProxy("x", shape, strides, dtype, torch.device(device), False, 0)


def test_reasons_on_a_gpu(monkeypatch):
    x, weight = proxy(4, 16), proxy(16)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    monkeypatch.setattr(liger, "INTERPRETED", False)
    assert liger.check_rms_norm(x, weight, 1e-5) == "compute capability (7, 5), and (8, 0) is needed"
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    assert liger.check_rms_norm(x, weight, 1e-5) is True
    assert liger.check_rms_norm(x, weight, 1e-5, True, True) == "1 + weight is not rounded by Liger"
    assert liger.check_layer_norm(x, (16,), weight, weight) is True
    assert liger.check_layer_norm(x, (16,), weight, proxy(16, dtype=torch.float32)).startswith("arguments are torch.fl")
    assert liger.check_gated(x, x, "tanh") is True
    assert liger.check_gated(x, x).startswith("shapes differ, or it is an exact GELU")
    assert liger.check_linear_loss(x, proxy(8, 16), proxy(4, dtype=torch.int64)) is True
    assert liger.check_gated(*[proxy(1, 65537)] * 2, "tanh") == "rows of 65537 elements exceed 65,536"
    assert liger.unfit(proxy(4, 16, device="cpu")).startswith("Triton's kernels run on GPUs")


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
