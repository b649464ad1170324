"""The real Apex, on a GPU: the same calls as on a CPU with the stand-in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import thunder
import thunder_plugin_composites as composites
from thunder_core.plugins.host import host
from thunder_core.plugins.states import PluginState


def reason_to_skip() -> str | None:
    """The plugin's own status, where it has one."""
    record = next(record for record in host().records if record.name == "apex")
    if record.state not in (PluginState.AVAILABLE, PluginState.LOADED):
        return f"{record.state.value}: {record.why}; {record.advice}"
    return None if torch.cuda.is_available() else "needs a GPU"


pytestmark = pytest.mark.skipif(reason_to_skip() is not None, reason=str(reason_to_skip()))

WIDTH = 1000
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def outcome(function: Callable[..., Tensor], *tensors: Tensor) -> list[Tensor]:
    """The result and the gradients."""
    leaves = [each.detach().requires_grad_() for each in tensors]
    result = function(*leaves)
    torch.manual_seed(1)
    return [result.detach(), *torch.autograd.grad(result, leaves, torch.randn_like(result))]


def is_as_exact(program: Callable[..., Tensor], options: dict[str, Any], *tensors: Tensor) -> None:
    """Errors against float64 are below three times those of eager, and one unit in the last place."""
    function = thunder.jit(program, executors=[{"apex": options}])
    found, eager = outcome(function, *tensors), outcome(program, *tensors)
    exact = outcome(program, *(each.double() for each in tensors))
    assert any(each.executor == "apex" for each in thunder.explain(function).decisions)
    for one, other, right in zip(found, eager, exact):
        assert (one.dtype, one.stride()) == (other.dtype, other.stride())
        unit = torch.finfo(one.dtype).eps * right.abs().max()
        assert (one.double() - right).abs().max() <= 3 * (other.double() - right).abs().max() + unit


@pytest.mark.parametrize("memory_efficient", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ["layer_norm", "plain layer_norm", "rms_norm", "plain rms_norm", "composite"])
def test_normalizations(name: str, dtype: torch.dtype, memory_efficient: bool) -> None:
    programs: dict[str, Callable[..., Tensor]] = {
        "layer_norm": lambda x, w, b: F.layer_norm(x, (WIDTH,), w, b, 1e-5),
        "plain layer_norm": lambda x: F.layer_norm(x, (WIDTH,)),
        "rms_norm": lambda x, w: F.rms_norm(x, (WIDTH,), w, 1e-5),
        "plain rms_norm": lambda x: F.rms_norm(x, (WIDTH,), eps=1e-5),
        "composite": lambda x, w: composites.rms_norm(x, w, 1e-5, rounded=True),
    }
    x, b = torch.randn(7, 9, WIDTH, device="cuda", dtype=dtype), torch.randn(WIDTH, device="cuda", dtype=dtype)
    w = torch.rand(WIDTH, device="cuda", dtype=dtype) + 0.5
    tensors = (x, w, b)[: programs[name].__code__.co_argcount]
    is_as_exact(programs[name], {"memory_efficient": memory_efficient}, *tensors)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_cross_entropy(dtype: torch.dtype, reduction: str, smoothing: float) -> None:
    labels = torch.randint(0, WIDTH, (63,), device="cuda")
    labels[::5] = -100
    logits = 3 * torch.randn(63, WIDTH, device="cuda", dtype=dtype)
    is_as_exact(lambda x: F.cross_entropy(x, labels, reduction=reduction, label_smoothing=smoothing), {}, logits)


def test_masked_classes() -> None:
    logits = torch.randn(8, WIDTH, device="cuda")
    logits[:, ::7] = -torch.inf
    labels = torch.ones(8, dtype=torch.int64, device="cuda")
    function = thunder.jit(lambda x: F.cross_entropy(x, labels), executors=["apex"])
    torch.testing.assert_close(outcome(function, logits), outcome(lambda x: F.cross_entropy(x, labels), logits))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_on_another_device() -> None:
    """Apex launches on the current device, which is the first one here."""
    x = torch.randn(8, WIDTH, device="cuda:1")
    is_as_exact(lambda x: F.layer_norm(x, (WIDTH,)), {}, x)
