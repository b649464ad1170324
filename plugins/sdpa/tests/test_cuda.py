"""The kernels of a GPU, against PyTorch restricted to the same kernel."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from attention_cases import CASES, Case, attention
from torch.nn.attention import SDPBackend, sdpa_kernel

import thunder
from thunder_plugin_sdpa.backends import BACKENDS
from thunder_plugin_sdpa.call import Call

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

KERNELS = {
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
}


def outcome(function: Any, tensors: list[torch.Tensor]) -> tuple[torch.Tensor, list[torch.Tensor], torch.Tensor]:
    """Result, gradients, and the generator's state afterwards."""
    leaves = [tensor.detach().requires_grad_(tensor.is_floating_point()) for tensor in tensors]
    torch.manual_seed(1)
    result = function(*leaves)
    if result is None:
        pytest.skip("PyTorch's own call returns nothing")  # cuDNN without batch, 2.11
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    torch.manual_seed(2)
    gradients = torch.autograd.grad(result, wanted, torch.randn_like(result))
    return result, list(gradients), torch.cuda.get_rng_state()


def same(actual: Any, expected: Any, dtype: torch.dtype) -> None:
    """Values within the rounding of sums in another order, strides and random state to the bit."""
    tolerance = {"rtol": 2e-2, "atol": 2e-2} if dtype is not torch.float32 else {"rtol": 1e-4, "atol": 1e-4}
    torch.testing.assert_close(actual[0], expected[0], equal_nan=True, **tolerance)
    assert actual[0].stride() == expected[0].stride()
    torch.testing.assert_close(actual[1], expected[1], equal_nan=True, **tolerance)
    assert torch.equal(actual[2], expected[2])


def run(name: str, case: Case, dtype: torch.dtype, *, constant_mask: bool) -> None:
    tensors = case.tensors("cuda", dtype)
    program = attention(case)
    if constant_mask and len(tensors) == 4:
        mask = tensors.pop()
        inner = program
        program = lambda query, key, value: inner(query, key, value, mask)  # noqa: E731
    with sdpa_kernel(KERNELS[name]):
        compiled = thunder.jit(program, executors=[{"sdpa": {"backends": [name]}}])
        try:
            expected = outcome(program, tensors)
        except RuntimeError as error:
            pytest.skip(f"PyTorch: {str(error).splitlines()[0]}")
        actual = outcome(compiled, tensors)
    same(actual, expected, dtype)
    assert "sdpa" in thunder.explain(compiled).entries[0].executors or not case.batch
    with torch.no_grad(), sdpa_kernel(KERNELS[name]):
        torch.manual_seed(1)
        found = compiled(*tensors)
        torch.manual_seed(1)
        wanted = program(*tensors)
    torch.testing.assert_close(found, wanted, rtol=2e-2, atol=2e-2, equal_nan=True)
    assert found.stride() == wanted.stride()


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", KERNELS)
def test_as_pytorch_with_this_kernel(name: str, case: str) -> None:
    run(name, CASES[case], torch.bfloat16, constant_mask=True)


@pytest.mark.parametrize("case", ["plain", "truth", "added", "unaligned mask", "padded size"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_efficient_with_other_dtypes(case: str, dtype: torch.dtype) -> None:
    run("efficient", CASES[case], dtype, constant_mask=True)


@pytest.mark.parametrize("case", ["added", "added rows", "unaligned mask"])
def test_gradient_of_the_mask(case: str) -> None:
    run("efficient", CASES[case], torch.float32, constant_mask=False)


@pytest.mark.parametrize("learned", [False, True])
def test_a_mask_whose_rows_are_scattered_is_copied(learned: bool) -> None:
    """PyTorch computes attention with it by the formula."""

    def program(query: Any, key: Any, value: Any, bias: Any) -> Any:
        return F.scaled_dot_product_attention(query, key, value, bias.permute(2, 0, 1)[None])

    tensors = Case(queries=64, size=64).tensors("cuda", torch.bfloat16)
    bias = torch.randn(64, 64, 4, device="cuda", dtype=torch.bfloat16)
    function = program if learned else lambda query, key, value: program(query, key, value, bias)
    if learned:
        tensors.append(bias)
    compiled = thunder.jit(function, executors=["sdpa"])
    actual, expected = outcome(compiled, tensors), outcome(function, tensors)
    torch.testing.assert_close(actual[:2], expected[:2], rtol=3e-2, atol=3e-2)
    assert actual[0].stride() == expected[0].stride()
    variants = {line.variant for line in thunder.explain(compiled).decisions}
    assert variants & {"efficient", "cudnn"}


def test_efficient_repeats_heads_where_pytorch_does_not() -> None:
    case = CASES["grouped"]
    tensors = case.tensors("cuda", torch.bfloat16)
    compiled = thunder.jit(attention(case), executors=[{"sdpa": {"backends": ["efficient"]}}])
    with sdpa_kernel(SDPBackend.MATH):
        expected = outcome(attention(case), tensors)
    actual = outcome(compiled, tensors)
    torch.testing.assert_close(actual[:2], expected[:2], rtol=3e-2, atol=3e-2)


@pytest.mark.parametrize("name", ["flash", "efficient"])
def test_results_lie_in_memory_as_in_eager_whichever_kernel_runs(name: str) -> None:
    case = CASES["large"]
    tensors = case.tensors("cuda", torch.bfloat16)
    compiled = thunder.jit(attention(case), executors=[{"sdpa": {"backends": [name]}}])
    actual, expected = outcome(compiled, tensors), outcome(attention(case), tensors)
    same((*actual[:2], expected[2]), expected, torch.bfloat16)
    variants = {line.variant for line in thunder.explain(compiled).decisions}
    assert name in variants


@pytest.mark.parametrize("name", ["cudnn", "flash"])
def test_repeated_heads_are_not_made(name: str) -> None:
    def program(query: Any, key: Any, value: Any) -> Any:
        key, value = key.repeat_interleave(4, 1), value.repeat_interleave(4, 1)
        return F.scaled_dot_product_attention(query, key, value, is_causal=True)

    case = Case(heads=8, key_heads=2, queries=256, size=64)
    tensors = case.tensors("cuda", torch.bfloat16)
    with sdpa_kernel(KERNELS[name]):
        compiled = thunder.jit(program, executors=[{"sdpa": {"backends": [name]}}])
        expected, actual = outcome(program, tensors), outcome(compiled, tensors)
    same((*actual[:2], expected[2]), expected, torch.bfloat16)
    assert not [line for line in thunder.last_traces(compiled)[-1].symbols if "repeat" in line.symbol.name]


def test_the_words_agree_with_pytorch() -> None:
    """What PyTorch declines has a reason of ours. A newer PyTorch may decline more than an older one."""
    wrong = []
    for label, case in CASES.items():
        for dtype in (torch.bfloat16, torch.float32):
            tensors = case.tensors("cuda", dtype)
            seen: list[Call] = []
            for backend in (backend for backend in BACKENDS if backend.device == "cuda"):
                call = _call(tensors, case, seen)
                asked = call.repeated() if call.grouped and not backend.groups else call
                reason = backend._reason(asked)
                refusal = backend.refusal(call)
                if reason is None and refusal is not None:
                    wrong.append((label, dtype, backend.name, reason, refusal))
    assert not wrong


def _call(tensors: list[torch.Tensor], case: Case, seen: list[Call]) -> Call:
    from thunder_core.ir.proxy import TensorProxy

    proxies = [
        TensorProxy("x", tuple(t.shape), t.stride(), t.dtype, t.device, False, 0, int(t.storage_offset()))
        for t in tensors
    ]
    return Call.of(*proxies, **case.arguments)
