"""Products that write float32 where a cast to it is all that reads them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

import thunder
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.trace import Trace
from thunder_core.ir.tree import map_leaves
from thunder_core.ir.verifier import verify
from thunder_core.passes.transform import Phase, TransformContext
from thunder_frontend.record.front_end import front_end
from thunder_plugin_matmul import WidenProducts


def widened(function: Callable[..., Any], *shapes: tuple[int, ...], device: str = "cuda", dtype: Any = torch.bfloat16):
    """The trace of a program on half precision after the pass; the CPU records what would run on a GPU."""
    acquired = front_end.record(function, tuple([torch.randn(shape).to(dtype) for shape in shapes]), {}).trace

    def moved(leaf: Any) -> Any:
        return replace(leaf, device=torch.device(device)) if isinstance(leaf, TensorProxy) else leaf

    lines = [replace(line.map_arguments(moved), output=map_leaves(moved, line.output)) for line in acquired.symbols]
    inputs, output = map_leaves(moved, acquired.inputs), map_leaves(moved, acquired.output)
    trace: Trace = replace(acquired.with_symbols(lines, "moved"), inputs=inputs, output=output)
    after = WidenProducts().run(trace, TransformContext(Phase.BACKWARD))
    verify(after)
    return after


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_cast_goes_away(dtype: torch.dtype) -> None:
    trace = widened(lambda a, b: torch.mm(a.t(), b).to(torch.float32) * 2, (4, 3), (4, 5), dtype=dtype)
    transposed, product, _ = trace.symbols
    assert transposed.symbol.name == "torch.t"
    assert (product.symbol.name, product.kwargs) == ("torch.mm", {"out_dtype": torch.float32})
    assert product.output.dtype is torch.float32


@pytest.mark.parametrize(
    ("program", "options"),
    [
        (lambda a, b: a.mm(b).to(torch.float32), {"device": "cpu"}),
        (lambda a, b: a.mm(b).to(torch.float32), {"dtype": torch.float64}),
        (lambda a, b: a.mm(b).to(torch.float64), {}),
        (lambda a, b: (a.mm(b).to(torch.float32), a.mm(b)), {}),
        (lambda a, b: ((y := a.mm(b)).to(torch.float32), y.sin()), {}),
        (lambda a, b: (y := a.mm(b), y.to(torch.float32)), {}),
        (lambda a, b: a[None].matmul(b).to(torch.float32), {}),
        (lambda a, b: a.sin().to(torch.float32) + b.sin().to(torch.float32), {}),
    ],
)
def test_what_stays(program: Callable[..., Any], options: dict[str, Any]) -> None:
    trace = widened(program, (4, 4), (4, 4), **options)
    kept = any(line.symbol.name == "to" for line in trace.symbols)
    both = sum("mm" in line.symbol.name for line in trace.symbols) == 2  # of which one may be wide
    assert kept or both


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU: products of half precision write it on the CPU")
def test_gradients_under_autocast() -> None:
    module = torch.nn.Linear(64, 32, device="cuda")
    x = torch.randn(128, 64, device="cuda")
    compiled = thunder.jit(module, transforms=["widen_products"])
    with torch.autocast("cuda", torch.bfloat16):
        compiled(x).float().square().sum().backward()
    found, module.weight.grad = module.weight.grad, None
    with torch.autocast("cuda", torch.bfloat16):
        module(x).float().square().sum().backward()
    torch.testing.assert_close(found, module.weight.grad, rtol=2e-2, atol=2e-2)
    assert "out_dtype" in str(thunder.last_backward_traces(compiled)[-1])
