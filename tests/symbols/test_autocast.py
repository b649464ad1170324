"""The autocast classes against PyTorch's dispatcher and its behaviour."""

import pytest
import torch
from torch.nn import functional

from thunder_core.ir.symbol import Autocast
from thunder_core.symbols.autocast import autocast_classes, autocast_of
from thunder_core.symbols.registry import registry


def operator_overloads(printed: str) -> list[str]:
    """Qualified names of the ATen overloads that a symbol has the name of."""
    for namespace in ("torch.linalg.", "torch.fft.", "torch.special."):
        printed = printed.replace(namespace, namespace[:-1] + "_")
    base = printed.rpartition(".")[2]
    packet = getattr(torch.ops.aten, base, None)
    if packet is None:
        return []
    return [f"aten::{base}" + ("" if name == "default" else f".{name}") for name in packet.overloads()]


def has_kernel(overload: str, key: str) -> bool:
    try:
        return torch._C._dispatch_has_kernel_for_dispatch_key(overload, key)
    except RuntimeError:  # overloads of TorchScript alone are unknown to the dispatcher
        return False


@pytest.mark.parametrize("device_type", ["cpu", "cuda"])
def test_exactly_the_symbols_with_an_autocast_kernel_have_a_class(device_type: str) -> None:
    key = "Autocast" + device_type.upper()
    rows = [name for name, style in registry.catalogue.rows if style.name == "FUNCTION"]
    printed = [name for name in rows if name.startswith("torch.")]
    expected = {name for name in printed if any(has_kernel(item, key) for item in operator_overloads(name))}
    assert {name for name in printed if device_type in autocast_of(name)} == expected


def test_every_class_belongs_to_a_row() -> None:
    printed = {name for name, _ in registry.catalogue.rows}
    assert autocast_classes().keys() <= printed


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (torch.matmul, [(3, 3), (3, 3)]),
        (functional.linear, [(3, 3), (3, 3)]),
        (torch.baddbmm, [(2, 3, 3), (2, 3, 3), (2, 3, 3)]),
        (torch.prelu, [(3, 3), (1,)]),
        (torch.prod, [(3, 3)]),
        (functional.mse_loss, [(3, 3), (3, 3)]),
        (torch.trace, [(3, 3)]),
        (torch.cat, None),
        (torch.exp, [(3, 3)]),
        (torch.add, [(3, 3), (3, 3)]),
    ],
    ids=lambda item: getattr(item, "__name__", ""),
)
def test_class_is_what_autocast_does_on_cpu(function, arguments) -> None:
    def make(dtype: torch.dtype) -> list:
        if arguments is None:
            return [[torch.ones(2, dtype=torch.float32), torch.ones(2, dtype=dtype)]]
        return [torch.rand(shape, dtype=dtype) for shape in arguments]

    symbol, _, _ = registry.resolve(function, tuple(make(torch.float32)), {})
    with torch.autocast("cpu", dtype=torch.bfloat16):
        from_float32 = function(*make(torch.float32)).dtype
        from_bfloat16 = function(*make(torch.bfloat16)).dtype
    expected = {
        Autocast.LOWER_PRECISION: (torch.bfloat16, torch.bfloat16),
        Autocast.FLOAT32: (torch.float32, torch.float32),
        Autocast.PROMOTE: (torch.float32, torch.float32),
        None: (torch.float32, torch.bfloat16),
    }
    assert (from_float32, from_bfloat16) == expected[symbol.autocast.get("cpu")]
