"""Reasons: each condition of each kernel, by proxies; a GPU is not needed for these."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from thunder_core.ir.proxy import TensorProxy
from thunder_plugin_sdpa import backends, conditions
from thunder_plugin_sdpa.backends import BACKENDS
from thunder_plugin_sdpa.call import Call
from thunder_plugin_sdpa.choice import choose


def tensor(*shape: int, dtype: torch.dtype = torch.bfloat16, device: str = "cuda:0", **fields: Any) -> TensorProxy:
    dense = torch.empty(shape, device="meta").stride()
    made = TensorProxy("x", shape, dense, dtype, torch.device(device), False, 0)
    return replace(made, **fields)


def call(**fields: Any) -> Call:
    query = fields.pop("query", tensor(2, 8, 16, 64))
    key = fields.pop("key", tensor(2, 8, 16, 64))
    value = fields.pop("value", key)
    names = {"attn_mask": None, "dropout_p": 0.0, "is_causal": False, "scale": None, "enable_gqa": False}
    return Call.of(query, key, value, **names | fields)


WIDE = {"query": tensor(2, 8, 16, 260), "key": tensor(2, 8, 16, 260)}
CASES: dict[str, tuple[dict[str, Any], dict[str, str | None]]] = {
    "plain": ({}, {"cudnn": None, "flash": None, "efficient": None}),
    "wide": (
        WIDE,
        {
            "cudnn": "head dimension 260 is above 128",
            "flash": "head dimension 260 is above 256",
            "efficient": "head dimension 260 is not a multiple of 8",
        },
    ),
    "not aligned": (
        {"query": tensor(2, 8, 16, 60), "key": tensor(2, 8, 16, 60)},
        {
            "cudnn": "head dimension 60 is not a multiple of 8",
            "flash": None,
            "efficient": "head dimension 60 is not a multiple of 8",
        },
    ),
    "float32": (
        {"query": tensor(2, 8, 16, 64, dtype=torch.float32), "key": tensor(2, 8, 16, 64, dtype=torch.float32)},
        {
            "cudnn": "torch.float32 is not implemented",
            "flash": "torch.float32 is not implemented",
            "efficient": None,
        },
    ),
    "dtypes": (
        {"query": tensor(2, 8, 16, 64, dtype=torch.float16)},
        dict.fromkeys(
            ("cudnn", "flash", "efficient"), "query, key and value have the dtypes torch.float16, torch.bfloat16"
        ),
    ),
    "mask": (
        {"attn_mask": tensor(16, 16)},
        {"cudnn": None, "flash": "it does not support attn_mask", "efficient": None},
    ),
    "mask with gradient": (
        {"attn_mask": tensor(16, 16, requires_grad=True)},
        {
            "cudnn": "it does not compute the gradient of attn_mask",
            "flash": "it does not support attn_mask",
            "efficient": None,
        },
    ),
    "mask of another shape": (
        {"attn_mask": tensor(8, 16, 16)},
        dict.fromkeys(("cudnn", "efficient"), "attn_mask has the shape (8, 16, 16), and (2, 8, 16, 16) is needed"),
    ),
    "mask of another dtype": (
        {"attn_mask": tensor(16, 16, dtype=torch.float32)},
        dict.fromkeys(("cudnn", "efficient"), "attn_mask is torch.float32, and query torch.bfloat16"),
    ),
    "transposed mask": (
        {"attn_mask": tensor(16, 16, stride=(1, 16))},
        dict.fromkeys(("cudnn", "efficient"), "the last stride of attn_mask is 16, not 1"),
    ),
    "grouped": (
        {"key": tensor(2, 2, 16, 64), "enable_gqa": True},
        {"cudnn": None, "flash": None, "efficient": None},
    ),
    "heads": (
        {"key": tensor(2, 2, 16, 64)},
        dict.fromkeys(("cudnn", "flash", "efficient"), "numbers of heads differ: 8, 2, 2"),
    ),
    "heads that do not divide": (
        {"key": tensor(2, 3, 16, 64), "enable_gqa": True},
        dict.fromkeys(("cudnn", "flash", "efficient"), "3 key heads and 3 value heads do not divide 8"),
    ),
    "causal, not square": (
        {"key": tensor(2, 8, 32, 64), "is_causal": True},
        {"cudnn": None, "flash": "is_causal with 16 queries and 32 keys", "efficient": None},
    ),
    "dropout": ({"dropout_p": 0.25}, {"cudnn": None, "flash": None, "efficient": None}),
    "odd dropout": (
        {"dropout_p": 0.1},
        {"cudnn": "dropout_p 0.1 is not a multiple of 1/16", "flash": None, "efficient": None},
    ),
    "one key": (
        {"key": tensor(2, 8, 1, 64)},
        {"cudnn": "there is only one key", "flash": None, "efficient": None},
    ),
    "mask and half a tile of keys": (
        {"key": tensor(2, 8, 192, 64, requires_grad=True), "attn_mask": tensor(16, 192)},
        {"cudnn": "its gradients may be NaN with attn_mask and 192 keys", "flash": "it does not support attn_mask"},
    ),
    "mask and half a tile of keys, without gradients": (
        {"key": tensor(2, 8, 192, 64), "attn_mask": tensor(16, 192)},
        {"cudnn": None, "efficient": None},
    ),
    **{
        f"empty {name}": (
            dict.fromkeys(("query", "key", "value"), tensor(*shape)),
            dict.fromkeys(("cudnn", "flash", "efficient"), "a tensor is empty"),
        )
        for name, shape in {"batch": (0, 8, 16, 64), "sequence": (2, 8, 0, 64), "head": (2, 8, 16, 0)}.items()
    },
    "strides": (
        {"query": tensor(2, 8, 16, 64, stride=(8192, 1024, 1, 16))},
        dict.fromkeys(("cudnn", "flash", "efficient"), "the last stride of query is 16, not 1"),
    ),
    "batches": (
        {"key": tensor(1, 8, 16, 64)},
        dict.fromkeys(("cudnn", "flash", "efficient"), "batch sizes differ: 2, 1, 1"),
    ),
    "sizes": (
        {"value": tensor(2, 8, 16, 32)},
        {"cudnn": None, "flash": "head dimensions differ: 64, 64, 32", "efficient": None},
    ),
    "three dimensions": (
        {"query": tensor(8, 16, 64)},
        dict.fromkeys(("cudnn", "flash", "efficient"), "query, key and value need four dimensions, and one has 3"),
    ),
    "causal and mask": (
        {"attn_mask": tensor(16, 16), "is_causal": True},
        dict.fromkeys(("cudnn", "flash", "efficient"), "attn_mask and is_causal exclude each other"),
    ),
}


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fake GPU for conditions: its capability is set, and PyTorch's check is not called."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (9, 0))
    monkeypatch.setattr(conditions.torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(backends.Backend, "refusal", lambda own, given: conditions.plain(given) or own._reason(given))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.usefixtures("gpu")
def test_words(name: str) -> None:
    fields, expected = CASES[name]
    rows = {backend.name: backend for backend in BACKENDS if backend.device == "cuda"}
    found = {kernel: rows[kernel].refusal(call(**fields)) for kernel in expected}
    assert found == expected


@pytest.mark.usefixtures("gpu")
def test_flags_of_the_user() -> None:
    rows = {backend.name: backend for backend in BACKENDS if backend.device == "cuda"}
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        assert rows["flash"].refusal(call()) is None
        off = "is disabled by sdpa_kernel or torch.backends.cuda"
        assert rows["cudnn"].refusal(call()) == f"cuDNN attention {off}"
        assert rows["efficient"].refusal(call()) == f"memory-efficient attention {off}"
    torch.use_deterministic_algorithms(True)
    try:
        assert rows["cudnn"].refusal(call()) == "deterministic algorithms are required"
        assert rows["flash"].refusal(call()) is None
    finally:
        torch.use_deterministic_algorithms(False)


def test_older_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (7, 5))
    monkeypatch.setattr(backends, "_accepted", lambda accepts, given: False)
    rows = {backend.name: backend for backend in BACKENDS if backend.device == "cuda"}
    assert rows["flash"].refusal(call()) == "the GPU has compute capability (7, 5), and (8, 0) is needed"
    assert rows["efficient"].refusal(call()) == "torch.backends.cuda.can_use_efficient_attention returned False"


@pytest.mark.parametrize("accepts", [True, False])
def test_empty_tensors_on_a_gpu_are_for_the_formula(monkeypatch: pytest.MonkeyPatch, accepts: bool) -> None:
    """PyTorch's own choice among its kernels is wrong for them."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (9, 0))
    monkeypatch.setattr(backends, "_accepted", lambda row, given: accepts)
    chosen = choose(call(**dict.fromkeys(("query", "key", "value"), tensor(0, 8, 16, 24))), ("cudnn", "flash", "math"))
    assert chosen.name == "math"
    assert dict(chosen.passed) == dict.fromkeys(("cudnn", "flash"), "a tensor is empty")


def test_the_order_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    own = {key: tensor(2, 8, 16, 64, device="cpu") for key in ("query", "key", "value")}
    chosen = choose(call(**own), ("cudnn", "flash", "efficient"))
    assert chosen.name == "flash"
    assert chosen.passed == (("cudnn", "it runs on cuda, and the tensors are on cpu"),)
    assert choose(call(**own), ("math", "flash")).name == "math"
    assert choose(call(**own), ("efficient",)).name is None
