"""The kernels of GPUs, against eager of the same quantized module."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from quantization_models import FILTERS, numbers
from torch import nn

import thunder
from thunder_core.errors import OptionError
from thunder_plugin_quantization.formats import has_float8_matmuls

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"),
    *[pytest.mark.filterwarnings(each) for each in FILTERS],
]

FORMATS: list[dict[str, Any]] = [
    {"weights": "int8"},
    {"weights": "int8", "activations": "int8"},
    {"weights": "int4"},
    {"weights": "int4", "differentiable": True},
    {"weights": "int4", "activations": "int8"},
    {"weights": "float8"},
    {"weights": "float8", "activations": "float8"},
    {"weights": "nf4"},
]


def model(dtype: torch.dtype) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(256, 512), nn.SiLU(), nn.Linear(512, 256, bias=False)).to("cuda", dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("options", FORMATS, ids=lambda each: "-".join(map(str, each.values())))
def test_results_are_those_of_eager(options: dict[str, Any], dtype: torch.dtype) -> None:
    given, x = model(dtype), numbers(32, 256, dtype=dtype).cuda()
    try:
        compiled = thunder.jit(given, transforms=[{"quantization": options}])
    except OptionError:
        if options.get("activations") == "float8" and not has_float8_matmuls(x.device):
            pytest.skip("needs a newer GPU")
        raise
    with torch.no_grad():
        result, expected, exact = compiled(x), thunder.original(compiled)(x), given(x)
    torch.testing.assert_close(result, expected, rtol=2e-2, atol=2e-2)
    assert (result - exact).norm() < 0.25 * exact.norm()


def test_float8_training() -> None:
    given, x = model(torch.bfloat16), numbers(32, 256, dtype=torch.bfloat16).cuda()
    if not has_float8_matmuls(x.device):
        pytest.skip("needs a newer GPU")
    compiled = thunder.jit(given, transforms=["float8_training"])
    compiled(x).square().mean().backward()
    found = [each.grad for each in given.parameters()]
    for each in given.parameters():
        each.grad = None
    thunder.original(compiled)(x).square().mean().backward()
    torch.testing.assert_close(found, [each.grad for each in given.parameters()], rtol=5e-2, atol=1e-3)
