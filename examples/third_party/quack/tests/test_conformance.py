"""Conformance: of the kernels on a GPU with quack, else of the calls, with a fake of quack on the CPU."""

import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import thunder_plugin_composites as composites
from thunder_core.ir.proxy import TensorProxy
from thunder_core.plugins.host import host
from thunder_core.plugins.states import PluginState
from thunder_quack import executor as claims
from thunder_testing import executor_suite

STATE = next((each for each in host().records if each.name == "quack"), None)
USABLE = STATE is not None and STATE.state in (PluginState.AVAILABLE, PluginState.LOADED) and torch.cuda.is_available()
if not USABLE:
    sys.path.insert(0, str(Path(__file__).parent))
    import fake_quack

    fake_quack.install()


def norms(device, dtype):
    x, weight = torch.randn(2, 3, 8, device=device, dtype=dtype), torch.randn(8, device=device, dtype=dtype)
    yield (x, weight, 1e-5), {}
    yield (x, weight, 1e-3, True), {}


def torch_norms(device, dtype):
    for (x, weight, eps, *_), _ in norms(device, dtype):
        yield (x, (8,), weight, eps), {}


def softmaxes(device, dtype):
    if dtype.is_floating_point:
        x = torch.randn(3, 4, 8, device=device, dtype=dtype)
        yield (x, -1), {}
        yield (x, 2), {"dtype": dtype}


def losses(device, dtype):
    x, target = torch.randn(6, 8, device=device, dtype=dtype), torch.tensor([0, 4, -100, 1, 2, 7], device=device)
    for reduction in ("mean", "sum", "none"):
        yield (x, target), {"weight": None, "ignore_index": -100, "reduction": reduction, "label_smoothing": 0.0}


SAMPLES = {composites.rms_norm: norms, F.rms_norm: torch_norms, torch.softmax: softmaxes, F.cross_entropy: losses}
test_conformance = executor_suite(
    "quack" if USABLE else claims.executor(None, "cpu"),
    devices=("cuda",) if USABLE else ("cpu",),
    samples=SAMPLES,
    limit=8,
)


def test_the_kernels_are_tested():
    if not USABLE:
        why = "it is not installed" if STATE is None else f"{STATE.state.value}: {STATE.why or 'there is no GPU'}"
        pytest.skip(f"the calls alone were tested, with a fake of quack: {why}")


def proxy(*shape, dtype=torch.bfloat16, device="cuda"):
    strides = torch.empty(shape, device="meta").stride()
    return TensorProxy("x", shape, strides, dtype, torch.device(device), False, 0)


def test_reasons_on_a_gpu(monkeypatch):
    x, target = proxy(4, 16), proxy(4, dtype=torch.int64)
    assert claims.unfit("cuda", proxy(4, 12)) == "rows of 12 elements are not multiples of 16 bytes"
    assert claims.unfit("cuda", proxy(4, 16, dtype=torch.float64)) == "torch.float64 is not implemented"
    assert "they must be torch.bfloat16 on one cuda device" in claims.unfit("cuda", x, proxy(16, device="cpu"))
    assert "weights of classes" in claims.unfit_cross_entropy("cuda", x, target, label_smoothing=0.1)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert claims.unfit("cuda", x) == "there is no GPU"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 9))
    assert claims.unfit("cuda", x) == "compute capability (8, 9), and (9, 0) is needed"
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    assert claims.unfit_rms_norm("cuda", x, proxy(16), 1e-5) is None
    assert claims.unfit_softmax("cuda", x, -1) is None
    assert claims.unfit_cross_entropy("cuda", x, target) is None
