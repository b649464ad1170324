"""The library on a GPU, against eager PyTorch in float64, and against itself."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import thunder
import thunder_plugin_composites as composites
from thunder_core.plugins.host import host
from thunder_core.plugins.states import PluginState
from thunder_plugin_cudnn import attention, handles
from thunder_testing import executor_suite

RECORD = next(record for record in host().records if record.name == "cudnn")
USABLE = RECORD.state in (PluginState.AVAILABLE, PluginState.LOADED)
WHY = "needs a GPU" if USABLE else RECORD.why
pytestmark = pytest.mark.skipif(not USABLE or not torch.cuda.is_available(), reason=WHY)

if USABLE and torch.cuda.is_available():
    from cudnn_samples import OPERATIONS, SAMPLES

    test_conformance = executor_suite(
        "cudnn",
        options={"operations": OPERATIONS},
        devices=("cuda",),
        samples=SAMPLES,
        skip={"*composites.rms_norm-claims": "programs record its parts, and a pass finds it"},
    )


def inputs(
    queries: int = 256, keys: int = 256, heads: int = 8, key_heads: int = 8, size: int = 64, dtype: Any = torch.bfloat16
) -> list[torch.Tensor]:
    torch.manual_seed(0)
    shapes = (heads, queries), (key_heads, keys), (key_heads, keys)
    return [torch.randn(2, s, h, size, dtype=dtype, device="cuda").transpose(1, 2) for h, s in shapes]


def outcome(program: Any, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    leaves = [tensor.detach().requires_grad_(tensor.is_floating_point()) for tensor in tensors]
    output = program(*leaves)
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    cotangent = torch.sin(torch.arange(output.numel(), device="cuda").double().view(output.shape)).to(output.dtype)
    return [output.detach(), *torch.autograd.grad(output, wanted, cotangent)]


def compare(program: Any, tensors: list[torch.Tensor], in_eager: Any = None, **options: Any) -> Any:
    """The error against float64 is at most twice eager's own, as far as rounding goes."""
    compiled = thunder.jit(program, executors=[{"cudnn": options}])
    found, eager = outcome(compiled, tensors), outcome(in_eager or program, tensors)
    wide = outcome(program, [tensor.double() if tensor.is_floating_point() else tensor for tensor in tensors])
    for one, own, exact in zip(found, eager, wide, strict=True):
        error, usual = ((each.double() - exact).norm() / exact.norm() for each in (one, own))
        assert error <= 2 * usual + 1e-3, (float(error), float(usual))
        assert one.stride() == own.stride()
    assert "cudnn" in thunder.explain(compiled).entries[0].executors
    return compiled


CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}),
    "causal": ({}, {"is_causal": True}),
    "more queries": ({"queries": 320}, {"is_causal": True}),
    "more keys": ({"keys": 320}, {"is_causal": True}),
    "scaled": ({}, {"scale": 0.3}),
    "grouped": ({"key_heads": 2}, {"is_causal": True, "enable_gqa": True}),
    "odd lengths": ({"queries": 37, "keys": 51}, {}),
    "short": ({"queries": 2, "keys": 2, "size": 8}, {}),
    "size 128": ({"size": 128}, {"is_causal": True}),
    "size 40": ({"size": 40}, {"is_causal": True}),
    "float16": ({"dtype": torch.float16}, {"is_causal": True}),
    "long": ({"queries": 2048, "keys": 2048, "heads": 4, "key_heads": 1}, {"is_causal": True, "enable_gqa": True}),
}


@pytest.mark.parametrize("name", CASES)
def test_attention(name: str) -> None:
    sizes, arguments = CASES[name]
    compare(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, **arguments), inputs(**sizes))


def test_size_256() -> None:
    if torch.cuda.get_device_capability()[0] != 9:
        pytest.skip("only GPUs of compute capability 9")
    compare(PLAIN, inputs(size=256))


PLAIN = lambda q, k, v: F.scaled_dot_product_attention(q, k, v)  # noqa: E731
LAYOUTS: dict[str, Any] = {
    "heads outside": lambda x: x.contiguous(),
    "a slice": lambda x: torch.cat((x, x), -1)[..., : x.shape[-1]],
    "padded rows": lambda x: F.pad(x, (0, 8))[..., : x.shape[-1]],
    "an odd offset": lambda x: torch.cat((x.flatten()[:1], x.flatten()))[1:].view(x.shape),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts(name: str) -> None:
    def program(*tensors: torch.Tensor, layout: str = name) -> torch.Tensor:
        return PLAIN(*map(LAYOUTS[layout], tensors))

    # PyTorch's own attention ends the process's CUDA context where an address is not aligned
    in_eager = partial(program, layout="heads outside") if name == "an odd offset" else program
    compare(program, inputs(), in_eager)


def test_a_cotangent_that_is_expanded() -> None:
    compiled = thunder.jit(lambda *x: PLAIN(*x).sum(), executors=["cudnn"])
    results = []
    for program in (compiled, lambda *x: PLAIN(*x).sum()):
        leaves = [tensor.detach().requires_grad_() for tensor in inputs()]
        results.append(torch.autograd.grad(program(*leaves), leaves))
    torch.testing.assert_close(*results, rtol=3e-2, atol=3e-2)


MASKS: dict[str, Any] = {
    "truth": lambda: torch.rand(256, 256, device="cuda") > 0.3,
    "expanded truth": lambda: (torch.rand(2, 1, 256, 256, device="cuda") > 0.3).expand(2, 8, 256, 256),
    "window": lambda: torch.ones(256, 256, device="cuda", dtype=torch.bool).tril().triu(-64),
    "of all": lambda: torch.randn(2, 8, 256, 256, device="cuda"),
    "of heads": lambda: torch.randn(8, 256, 256, device="cuda"),
}


@pytest.mark.parametrize("name", MASKS)
def test_masks(name: str) -> None:
    torch.manual_seed(1)
    mask = MASKS[name]()

    def program(query: Any, key: Any, value: Any) -> Any:
        added = mask if mask.dtype is torch.bool else mask.to(query.dtype)
        return F.scaled_dot_product_attention(query, key, value, added)

    compare(program, inputs())


@pytest.mark.parametrize("shape", [(256, 256), (8, 256, 256), (2, 1, 256, 256), (2, 8, 256, 256)], ids=str)
def test_gradients_of_masks(shape: tuple[int, ...]) -> None:
    torch.manual_seed(1)
    compare(F.scaled_dot_product_attention, [*inputs(), torch.randn(shape, dtype=torch.bfloat16, device="cuda")])


def test_dropout() -> None:
    """The share of dropped weights, its reproduction, and that backward drops the same."""
    query, key, value = inputs(queries=512, keys=512)
    query, value = torch.zeros_like(query), torch.ones_like(value)
    compiled = thunder.jit(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, dropout_p=0.25),
        executors=[{"cudnn": {"dropout": True}}],
    )
    found = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        leaf = value.detach().requires_grad_()
        output = compiled(query, key, leaf)
        (gradient,) = torch.autograd.grad(output, leaf, torch.ones_like(output))
        found.append((output.detach(), gradient))
    assert abs(found[0][0].float().mean() - 1) < 1e-2  # equal weights, each kept with probability 3/4 and divided by it
    spread = found[0][0].float().std()
    assert 0.7 < spread / (0.25 / 0.75 / 512) ** 0.5 < 1.3
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=0)
    assert not torch.equal(found[0][0], found[2][0])
    for output, gradient in found:  # the sum over queries of what a key was given is the sum over keys of the result
        torch.testing.assert_close(output.float().sum((2, 3)), gradient.float().sum((2, 3)), rtol=1e-2, atol=1)


def test_deterministic() -> None:
    compiled = compare(CASES_GROUPED, inputs(key_heads=2), deterministic=True)
    first, second = (outcome(compiled, inputs(key_heads=2)) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        assert torch.equal(one, other)


def CASES_GROUPED(q: Any, k: Any, v: Any) -> Any:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


def test_it_is_captured_in_a_cuda_graph() -> None:
    given = inputs()
    expected, residuals = attention.forward(*given, is_causal=True)
    cotangent = torch.randn_like(expected)
    wanted = attention.backward(residuals, (cotangent,), (True, True, True))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output, residuals = attention.forward(*given, is_causal=True)
        gradients = attention.backward(residuals, (cotangent,), (True, True, True))
    for tensor in (output, *gradients):
        tensor.zero_()
    graph.replay()
    torch.testing.assert_close((output, *gradients), (expected, *wanted), rtol=1e-2, atol=1e-2)


def test_streams_and_threads() -> None:
    from concurrent.futures import ThreadPoolExecutor

    given = inputs()
    expected = attention.run(*given)

    def work(_: int) -> bool:
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.cuda.current_stream().wait_stream(torch.cuda.default_stream())
            return all(torch.equal(attention.run(*given), expected) for _ in range(20))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(8)))
    assert len(handles.IDLE[given[0].device]) <= 5


NORMS: dict[str, Any] = {
    "layer": lambda x, w, b: F.layer_norm(x, w.shape, w, b),
    "layer without": lambda x, w, b: F.layer_norm(x, w.shape) + w + b,
    "layer, bias": lambda x, w, b: F.layer_norm(x, w.shape, None, b) * w,
    "rms": lambda x, w, b: F.rms_norm(x, w.shape, w) + b,
    "rms without": lambda x, w, b: F.rms_norm(x, w.shape, None, 1e-5) + w + b,
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("size", [96, 1000, 2048, 16384])
@pytest.mark.parametrize("name", NORMS)
def test_norms(name: str, size: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    shapes = (3, 67, size), (size,), (size,)
    tensors = [torch.randn(shape, dtype=dtype, device="cuda") for shape in shapes]
    compare(NORMS[name], tensors, operations=("layer_norm", "rms_norm"))


@pytest.mark.parametrize("unit_offset", [False, True])
@pytest.mark.parametrize("of_weight", [torch.bfloat16, torch.float32], ids=str)
def test_the_composite(unit_offset: bool, of_weight: torch.dtype) -> None:
    from thunder_plugin_cudnn import rms_norm

    x = torch.randn(64, 2048, dtype=torch.bfloat16, device="cuda", requires_grad=True)
    w = torch.randn(2048, dtype=of_weight, device="cuda", requires_grad=True)
    expected = composites.rms_norm(x, w, 1e-5, unit_offset)
    cotangent = torch.randn_like(expected)
    wanted = torch.autograd.grad(expected, (x, w), cotangent)
    with torch.no_grad():
        found, residuals = rms_norm.forward_composite(x, w, 1e-5, unit_offset)
        gradients = rms_norm.backward(residuals, (cotangent,), (True, True))
    torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-2)
    torch.testing.assert_close(gradients, wanted, rtol=3e-2, atol=3e-2)
