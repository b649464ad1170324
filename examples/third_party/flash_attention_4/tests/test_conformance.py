"""Conformance: of the kernels on a GPU with the library, else of the calls, with a fake of it on the CPU."""

import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from thunder_core.ir.proxy import TensorProxy
from thunder_core.plugins.host import host
from thunder_core.plugins.states import PluginState
from thunder_flash_attention_4 import executor as claims
from thunder_testing import executor_suite

STATE = next((each for each in host().records if each.name == "flash_attention_4"), None)
USABLE = STATE is not None and STATE.state in (PluginState.AVAILABLE, PluginState.LOADED) and torch.cuda.is_available()
if not USABLE:
    sys.path.insert(0, str(Path(__file__).parent))
    import fake_flash_attention

    fake_flash_attention.install()


def attention(device, dtype):
    if dtype in (torch.float16, torch.bfloat16):
        q, k, v = torch.randn(3, 2, 5, 4, 16, device=device, dtype=dtype).transpose(2, 3)
        given = {"attn_mask": None, "dropout_p": 0.0, "enable_gqa": False}
        yield (q, k, v), {**given, "is_causal": True, "scale": 0.5}
        yield (q.contiguous(), k, v.contiguous()), {**given, "is_causal": False, "scale": None}
        yield (q, k[:, :2].contiguous(), v[:, :2].contiguous()), {**given, "is_causal": False, "enable_gqa": True}


test_conformance = executor_suite(
    "flash_attention_4" if USABLE else claims.executor(None, "cpu"),
    devices=("cuda",) if USABLE else ("cpu",),
    dtypes=(torch.float16, torch.bfloat16),
    samples={F.scaled_dot_product_attention: attention},
    limit=8,
)


def test_the_kernels_are_tested():
    if not USABLE:
        why = "it is not installed" if STATE is None else f"{STATE.state.value}: {STATE.why or 'there is no GPU'}"
        pytest.skip(f"the calls alone were tested, with a fake of FlashAttention-4: {why}")


def proxy(*shape, dtype=torch.bfloat16, device="cuda"):
    strides = torch.empty(shape, device="meta").stride()
    return TensorProxy("x", shape, strides, dtype, torch.device(device), False, 0)


def test_reasons_on_a_gpu(monkeypatch):
    q, few, short = proxy(2, 4, 8, 64), proxy(2, 2, 8, 64), proxy(2, 4, 5, 64)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    assert claims.check("cuda", q, q, q) == "compute capability (8, 0), and 9.x or 10.x is needed"
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    assert claims.check("cuda", q, q, q, is_causal=True) is True
    assert claims.check("cuda", q, few, few, enable_gqa=True) is True
    assert claims.check("cuda", q, short, short) is True
    for args, options, text in [
        ((q, q, q), {"dropout_p": 0.1}, "masks other than is_causal, and dropout"),
        ((q, few, few), {}, "4 heads of queries and 2 of keys"),
        ((q, short, short), {"is_causal": True}, "aligned to the last key"),
        ((proxy(2, 4, 8, 12),) * 3, {}, "strides"),
        ((proxy(2, 4, 8, 256),) * 3, {}, "heads have 256 elements"),
        ((proxy(2, 4, 8, 64, dtype=torch.float32),) * 3, {}, "query is torch.float32"),
        ((proxy(2, 4, 8, 64, device="cpu"),) * 3, {}, "query is on cpu"),
    ]:
        assert text in claims.check("cuda", *args, **options)
