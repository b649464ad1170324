"""A kernel of a cache, through the library `kernels`: conformance, reasons to decline, and errors."""

import os

import pytest
import torch

import thunder
from thunder_core.errors import PluginError
from thunder_core.ir.proxy import TensorProxy
from thunder_hub_kernels import Kernel
from thunder_hub_kernels.executor import unfit
from thunder_testing import executor_suite

SILU = {"operation": "torch.nn.functional.silu", "repository": "example/activation", "function": "silu", "out": True}
SILU |= {"device": "cpu", "dtypes": ["float32", "float64"]}
EXP = {"operation": "torch.exp", "repository": "example/activation", "function": "exp", "device": "cpu"}


def options(*kernels, **others):
    return {"lock": os.environ["TEST_LOCK"], "kernels": list(kernels), **others}


test_conformance = executor_suite("hub_kernels", options=options(SILU, EXP), limit=2)


def decided(x, *kernels):
    """The executor of silu, its variant, and why the kernel declined it."""
    compiled = thunder.jit(torch.nn.functional.silu, executors=[{"hub_kernels": options(*kernels)}])
    torch.testing.assert_close(compiled(x), torch.nn.functional.silu(x))
    (line,) = thunder.explain(compiled).entries[-1].decisions
    return line.executor, line.variant, dict(line.declined).get("hub_kernels")


def test_decisions():
    x = torch.randn(3, 4)
    assert decided(x, SILU) == ("hub_kernels", "example/activation:silu", None)
    assert decided(x.t(), SILU)[2] == "a tensor is not contiguous, or empty"
    assert decided(x.half(), SILU)[2] == "torch.float16 is not implemented"
    assert decided(x, SILU | {"device": "cuda"})[2] == "the kernel runs on cuda, and a tensor is on cpu"
    assert (
        "example/absent has no build for this system in the cache"
        in decided(x, SILU | {"repository": "example/absent"})[2]
    )


def test_reasons_on_a_gpu(monkeypatch):
    tensor = TensorProxy("x", (3,), (1,), torch.float32, torch.device("cuda"), False, 0)
    kernel = Kernel(**SILU | {"device": "cuda"})
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    assert unfit(kernel, [tensor]) == "compute capability (7, 5), and (8, 0) is needed"
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    assert unfit(kernel, [tensor]) is None


@pytest.mark.parametrize(
    ("kernel", "others", "text"),
    [
        (SILU | {"operation": "torch.nosuch"}, {}, "there is no operation torch.nosuch"),
        (SILU | {"function": "gelu"}, {}, "has no function gelu; it has exp, silu, torch"),
        (SILU | {"repository": "example/other"}, {}, "Kernel `example/other` is not locked"),
        (SILU, {"lock": "nowhere.lock"}, "there is no lock file nowhere.lock"),
    ],
)
def test_errors(kernel, others, text):
    with pytest.raises(PluginError, match=text):
        thunder.jit(torch.exp, executors=[{"hub_kernels": options(kernel, **others)}])(torch.ones(1))
