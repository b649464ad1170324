"""Which calls on a GPU the executor claims, and the reasons for the others. Proxies suffice, so no GPU is needed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from fake_cudnn import H200, installed

from thunder_core.ir.proxy import TensorProxy
from thunder_plugin_cudnn import layer_norm, plans, rms_norm
from thunder_plugin_cudnn.attention_support import Support
from thunder_plugin_cudnn.library import Hardware, spelled

CUDA = torch.device("cuda", 0)


def proxy(*shape: int, dtype: torch.dtype = torch.bfloat16, device: torch.device = CUDA, **more: Any) -> TensorProxy:
    strides = torch.empty(shape, device="meta").stride()
    return replace(TensorProxy("x", shape, strides, dtype, device, False, 0), **more)


@pytest.fixture(autouse=True)
def _no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library does not check the call here."""
    monkeypatch.setattr(plans, "refusal", lambda *args: None)


def attention(support: Support | None = None, **changes: Any) -> bool | str:
    arguments: dict[str, Any] = {name: proxy(2, 8, 32, 64) for name in ("query", "key", "value")} | changes
    return (support or Support(False, False, "cuda"))(**arguments)


def all_of(**more: Any) -> dict[str, TensorProxy]:
    return {name: proxy(2, 8, 32, 64, **more) for name in ("query", "key", "value")}


def sized(
    queries: int, keys: int, size: int = 64, value_size: int | None = None, **more: Any
) -> dict[str, TensorProxy]:
    key = proxy(2, 8, keys, size, **more)
    return {"query": proxy(2, 8, queries, size, **more), "key": key, "value": proxy(2, 8, keys, value_size or size)}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        all_of(dtype=torch.float16, requires_grad=True),
        {"is_causal": True, "scale": 0.1},
        {"enable_gqa": True, "key": proxy(2, 2, 32, 64), "value": proxy(2, 2, 32, 64)},
        sized(7, 51, 40, requires_grad=True),
        sized(1, 100),
        sized(32, 32, 256, requires_grad=True),
        sized(32, 32, 192, 128),
        {"query": proxy(2, 8, 32, 64, stride=(3 * 8 * 32 * 64, 64, 3 * 8 * 64, 1))},
        {"attn_mask": proxy(32, 32, dtype=torch.bool)},
        {"attn_mask": proxy(2, 1, 32, 32, dtype=torch.float32)},
        {"attn_mask": proxy(1, 8, 32, 32, requires_grad=True)},
    ],
    ids=range(12),
)
def test_taken(changes: dict[str, Any]) -> None:
    assert attention(**changes) is True


DECLINED: dict[str, tuple[dict[str, Any], str]] = {
    "cpu": ({"query": proxy(2, 8, 32, 64, device=torch.device("cpu"))}, "it runs on cuda, and query is on cpu"),
    "devices": ({"key": proxy(2, 8, 32, 64, device=torch.device("cuda", 1))}, "tensors are on cuda:0 and cuda:1"),
    "dimensions": ({"query": proxy(2, 32, 64)}, "query has 3 dimensions, not 4"),
    "dtype": (all_of(dtype=torch.float32), "torch.float32 is not implemented"),
    "dtypes": ({"key": proxy(2, 8, 32, 64, dtype=torch.float16)}, "query, key and value have the dtypes"),
    "empty": (sized(0, 32), "a tensor is empty"),
    "batch": ({"query": proxy(3, 8, 32, 64)}, "inconsistent sizes"),
    "heads": ({"key": proxy(2, 2, 32, 64), "value": proxy(2, 2, 32, 64)}, "8 query heads and 2 key heads"),
    "divisor": (
        {"key": proxy(2, 3, 32, 64), "value": proxy(2, 3, 32, 64), "enable_gqa": True},
        "8 query heads and 3 key heads",
    ),
    "multiple": (sized(32, 32, 60), "head dimension 60 is not a multiple of 8"),
    "limit": (sized(32, 32, 264), "head dimension 264 is above 256"),
    "last stride": ({"query": proxy(2, 8, 32, 64, stride=(16384, 2048, 1, 32))}, "the last stride of query is 32"),
    "alignment": ({"query": proxy(2, 8, 32, 64, stride=(16640, 2080, 65, 1))}, "a stride of query is 65"),
    "expanded": ({"key": proxy(2, 8, 32, 64, stride=(2048, 0, 64, 1))}, "a stride of key is 0"),
    "one key": (sized(32, 1), "there is only one key"),
    "one query": (sized(1, 32, requires_grad=True), "one query only, and gradients are needed"),
    "two masks": ({"attn_mask": proxy(32, 32), "is_causal": True}, "attn_mask and is_causal exclude each other"),
    "mask's dtype": ({"attn_mask": proxy(32, 32, dtype=torch.float16)}, "attn_mask is torch.float16"),
    "mask's shape": ({"attn_mask": proxy(2, 32, 32)}, "attn_mask has the shape (2, 32, 32)"),
    "mask's keys": ({"attn_mask": proxy(32, 1)}, "attn_mask has the shape (32, 1)"),
    "mask's queries": ({"attn_mask": proxy(2, 1, 1, 32)}, "attn_mask is the same for all queries"),
    "mask's repeated queries": (
        {"attn_mask": proxy(2, 1, 32, 32, stride=(32, 32, 0, 1))},
        "attn_mask is the same for all queries",
    ),
    "mask's stride": ({"attn_mask": proxy(32, 32, stride=(1, 32))}, "the last stride of attn_mask is 32"),
    "mask's gradient": (
        {"attn_mask": proxy(32, 32, dtype=torch.float32, requires_grad=True)},
        "attn_mask, whose gradient is needed, is torch.float32",
    ),
    "expanded mask": (
        {"attn_mask": proxy(2, 8, 32, 32, stride=(0, 0, 32, 1), requires_grad=True)},
        "attn_mask, whose gradient is needed, is not contiguous",
    ),
    "mask's half of a tile": (
        sized(32, 192, requires_grad=True) | {"attn_mask": proxy(32, 192)},
        "gradients may be NaN with attn_mask and 192 keys",
    ),
    "dropout": ({"dropout_p": 0.1}, "the option dropout enables it"),
    "symbolic": ({"dropout_p": "p"}, "must be plain numbers"),
}


def test_half_of_a_tile_without_gradients_or_mask() -> None:
    assert attention(**sized(32, 192), attn_mask=proxy(32, 192)) is True
    assert attention(**sized(32, 192, requires_grad=True)) is True


@pytest.mark.parametrize("name", DECLINED)
def test_declined(name: str) -> None:
    changes, reason = DECLINED[name]
    found = attention(**changes)
    assert found is not True
    assert reason in str(found)


@pytest.mark.parametrize(
    ("hardware", "changes", "reason"),
    [
        (None, {}, "there is no CUDA device"),
        (Hardware((7, 5), 91900), {}, "compute capability 7.5, and 8.0 is needed"),
        (Hardware((9, 0), 90100), {}, "cuDNN 9.1.0 is installed, and 9.5.0 is needed"),
        (Hardware((9, 0), 91001), {}, "cuDNN 9.10.1 computes attention wrongly"),
        (Hardware((8, 0), 91900), sized(32, 32, 256, requires_grad=True), "above 128"),
        (Hardware((8, 0), 91900), sized(32, 32, 256), None),
        (Hardware((10, 0), 91900), sized(32, 32, 256), "above 128"),
        (Hardware((10, 0), 91900), sized(32, 32, 192, 128, requires_grad=True), None),
        (
            Hardware((10, 0), 91900),
            all_of(requires_grad=True) | {"attn_mask": proxy(32, 32, requires_grad=True)},
            "of a mask",
        ),
    ],
)
def test_hardware(hardware: Hardware | None, changes: dict[str, Any], reason: str | None) -> None:
    with installed(hardware):
        found = attention(Support(False, True, "cuda"), **changes)
    assert found is True if reason is None else isinstance(found, str) and reason in found


def test_switched_off() -> None:
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        assert "is disabled" in str(attention())


@pytest.mark.parametrize(
    ("input", "weight", "more", "reason"),
    [
        (proxy(4, 16), proxy(16), {}, None),
        (proxy(4, 16, dtype=torch.float32), proxy(16, dtype=torch.float32), {}, None),
        (proxy(4, 16), proxy(16, dtype=torch.float32), {}, "weight is torch.float32, and input torch.bfloat16"),
        (proxy(4, 16, dtype=torch.float64), proxy(16, dtype=torch.float64), {}, "torch.float64 is not implemented"),
        (proxy(4, 16, stride=(1, 4)), proxy(16), {}, "input is not contiguous"),
        (proxy(0, 16), proxy(16), {}, "input has 0 elements"),
        (proxy(4, 16, device=torch.device("cpu")), proxy(16), {}, "it runs on cuda, and input is on cpu"),
        (proxy(4, 16), proxy(8), {}, "weight has the shape (8,), not (16,)"),
        (proxy(4, 16), proxy(16), {"eps": "e"}, "eps is not a plain number"),
    ],
    ids=range(9),
)
def test_norms(input: TensorProxy, weight: TensorProxy, more: dict[str, Any], reason: str | None) -> None:
    for module in (layer_norm, rms_norm):
        found = module._unfit_call("cuda", input, (16,), weight, **more)
        assert found is None if reason is None else reason in str(found)


@pytest.mark.parametrize(
    ("input", "weight", "more", "reason"),
    [
        (proxy(4, 16), proxy(16), {}, None),
        (proxy(4, 16), proxy(16, dtype=torch.float32), {"unit_offset": True}, None),
        (proxy(4, 16), proxy(16), {"rounded": True}, "it is rounded before the multiplication by the weight"),
        (proxy(4, 16), proxy(16, dtype=torch.float16), {}, "weight is torch.float16, and input torch.bfloat16"),
        (proxy(), proxy(), {}, "input has no dimension"),
    ],
    ids=range(5),
)
def test_the_composite(input: TensorProxy, weight: TensorProxy, more: dict[str, Any], reason: str | None) -> None:
    found = rms_norm._unfit_composite("cuda", input, weight, 1e-5, **more)
    assert found is None if reason is None else reason in str(found)


def test_versions_are_spelled() -> None:
    assert [spelled(H200.version), spelled(91002)] == ["9.19.0", "9.10.2"]
