"""Attention on a CPU: results, gradients, strides and random state as in eager, and who ran what."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from attention_cases import CASES, attention
from torch.nn.attention import SDPBackend, sdpa_kernel

import thunder
from thunder.report.decisions import decision_table
from thunder_core.tracing.trace_call import rewritten_form
from thunder_frontend.record.front_end import front_end
from thunder_plugin_sdpa import choice as choice_module
from thunder_plugin_sdpa.backends import BACKENDS
from thunder_plugin_sdpa.formula import formula, with_mask_for_kernels
from thunder_plugin_sdpa.preparation import aligned_mask

TOLERANCES = {torch.float32: 1e-5, torch.float64: 1e-9, torch.bfloat16: 2e-2, torch.float16: 2e-3}


def compiled(program: Any, **options: Any) -> Any:
    return thunder.jit(program, executors=[{"sdpa": options}])


def outcome(function: Any, tensors: list[torch.Tensor]) -> tuple[torch.Tensor, list[torch.Tensor], torch.Tensor]:
    """Result, gradients, and the generator's state afterwards."""
    leaves = [tensor.detach().requires_grad_(tensor.is_floating_point()) for tensor in tensors]
    torch.manual_seed(1)
    result = function(*leaves)
    state = torch.get_rng_state()
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    gradients = torch.autograd.grad(result, wanted, torch.cos(torch.arange(result.numel())).view_as(result).to(result))
    return result, list(gradients), state


def check(actual: Any, expected: Any, tolerance: float) -> None:
    torch.testing.assert_close(actual[:2], expected[:2], rtol=tolerance, atol=tolerance)
    assert actual[0].stride() == expected[0].stride()
    assert torch.equal(actual[2], expected[2])


def choice(program: Any) -> tuple[str, str]:
    """Who ran attention, and which of its kernels."""
    line = next(one for one in thunder.explain(program).decisions if "scaled_dot_product" in one.symbol)
    return line.executor, line.variant


def reasons(program: Any) -> str:
    return "\n".join(reason for line in thunder.explain(program).decisions for _, reason in line.declined)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.battery
def test_as_eager(case: str, dtype: torch.dtype) -> None:
    tensors = CASES[case].tensors("cpu", dtype)
    program = compiled(attention(CASES[case]))
    check(outcome(program, tensors), outcome(attention(CASES[case]), tensors), TOLERANCES[dtype])
    with torch.no_grad():
        torch.manual_seed(1)
        found = program(*tensors)
        torch.manual_seed(1)
        expected = attention(CASES[case])(*tensors)
    torch.testing.assert_close(found, expected, rtol=TOLERANCES[dtype], atol=TOLERANCES[dtype])
    assert found.stride() == expected.stride()


@pytest.mark.parametrize("case", [name for name, case in CASES.items() if case.mask is None])
def test_the_kernel_of_pytorch_is_chosen(case: str) -> None:
    """Flash runs here exactly where PyTorch chooses it."""
    tensors = CASES[case].tensors("cpu", torch.float32)
    program = compiled(attention(CASES[case]))
    program(*tensors)
    own = torch._fused_sdp_choice(*tensors, None, **{"dropout_p": 0.0, "is_causal": False} | CASES[case].arguments)
    assert (choice(program) == ("sdpa", "flash")) == (own == SDPBackend.FLASH_ATTENTION.value)


def test_constant_masks_are_taken_and_others_are_not() -> None:
    case = CASES["added"]
    query, key, value, mask = case.tensors("cpu", torch.float32)
    program = compiled(attention(case))
    leaves = [tensor.requires_grad_() for tensor in (query, key, value)]
    program(*leaves, mask)
    assert choice(program) == ("sdpa", "flash")
    program(*leaves, mask.clone().requires_grad_())
    assert "flash: it does not compute the gradient of attn_mask" in reasons(program)
    program(*leaves, torch.zeros((), requires_grad=True))  # a number, which eager takes
    assert "flash: it does not compute the gradient of attn_mask" in reasons(program)


def test_a_bool_mask_is_converted_once_for_all_layers() -> None:
    """Also where keys are repeated, which the kernel does not need."""

    def layers(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            few = x[:, :2].repeat_interleave(2, 1)
            x = x + F.scaled_dot_product_attention(x, few, few, mask)
        return x

    x, mask = torch.randn(2, 4, 8, 16, dtype=torch.float64), torch.ones(8, 8, dtype=torch.bool).tril()
    program = compiled(layers)
    mine, eager = outcome(program, [x, mask]), outcome(layers, [x, mask])
    torch.testing.assert_close(mine, eager)
    lines = [line.symbol.name for line in thunder.last_traces(program)[-1].symbols]
    assert lines.count("torch.where") == 1
    assert "torch.repeat_interleave" not in lines
    assert choice(program) == ("sdpa", "flash")


@pytest.fixture(params=[False, True], ids=["read", "copied"])
def copied(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[bool]:
    """Whether masks with scattered rows are copied, as for kernels of a GPU: the CPU's kernel reads them."""
    rows = tuple([replace(row, scattered=row.scattered and not request.param) for row in BACKENDS])
    monkeypatch.setattr(choice_module, "BACKENDS", rows)
    choice_module._choose.cache_clear()
    yield request.param
    choice_module._choose.cache_clear()


@pytest.mark.parametrize("kind", ["permuted", "bool", "expanded", "rows of one value"])
def test_a_mask_whose_rows_are_scattered(kind: str, copied: bool) -> None:
    """It is copied once for all layers, if at all."""
    bias = torch.randn(8, 8, 4, dtype=torch.float64)
    bias[:, 0] = 1

    def layers(x: torch.Tensor) -> torch.Tensor:
        mask = bias.permute(2, 0, 1)[None]  # (1, heads, queries, keys), as the relative positions of T5
        if kind == "bool":
            mask = mask > 0
        elif kind == "expanded":
            mask = mask.expand(2, -1, -1, -1)
        elif kind == "rows of one value":
            mask = mask[..., :1].expand(-1, -1, -1, 8)
        for _ in range(3):
            x = x + F.scaled_dot_product_attention(x, x, x, mask)
        return x

    x = torch.randn(2, 4, 8, 16, dtype=torch.float64)
    program = compiled(layers)
    torch.testing.assert_close(outcome(program, [x]), outcome(layers, [x]))
    assert choice(program) == ("sdpa", "flash")
    lines = thunder.last_traces(program)[-1].symbols
    shapes = [line.output.shape for line in lines if line.symbol.name.endswith("contiguous")]
    assert shapes == [(1, 4, 8, 8)] * copied


for_kernels = partial(with_mask_for_kernels, -math.inf)
REWRITES = {"scattered": for_kernels, "bool": for_kernels, "formula": formula}


@pytest.mark.parametrize("shape", [(2, 8, 4, 16), (1, 8, 4, 16), (2, 1, 4, 16), (2, 8, 1, 16), (1, 1, 1, 1)], ids=str)
def test_the_result_of_a_rewrite_has_the_strides_of_the_trace(shape: tuple[int, ...]) -> None:
    """On a GPU, the trace has those of the formula, which PyTorch chooses for such masks, and a kernel has others."""
    query, bias = torch.randn(shape).transpose(1, 2), torch.randn(shape[1], shape[1], shape[2]).permute(2, 0, 1)[None]
    for name, rewrite in REWRITES.items():
        mask = bias > -9 if name == "bool" else bias
        trace = front_end.record(lambda q, m: F.scaled_dot_product_attention(q, q, q, m), (query, mask), {}).trace
        (call,) = [op for op in trace.symbols if "attention" in op.symbol.name]
        expected = F.scaled_dot_product_attention(query, query, query, mask)
        for wanted in (expected.stride(), torch.empty(expected.shape).stride()):
            other = replace(call, output=replace(call.output, stride=wanted))
            rewritten_form(other, rewrite(stride=wanted), trace.context)  # raises for other strides
            found = rewrite(stride=wanted)(query, query, query, mask)
            torch.testing.assert_close(found, expected)
            assert found.stride() == wanted


def test_a_learned_mask_that_is_expanded_has_the_gradient_of_each_element() -> None:
    query = torch.randn(2, 4, 8, 16)
    mask = torch.randn(8, 8, 4).permute(2, 0, 1)[None].expand(2, -1, -1, -1).detach().requires_grad_()
    found, expected = (
        torch.autograd.grad(function(query, query, query, mask).square().sum(), mask)
        for function in (for_kernels(query.stride()), F.scaled_dot_product_attention)
    )
    torch.testing.assert_close(found, expected)


def test_masks_of_the_memory_efficient_kernel_have_adjacent_and_aligned_rows() -> None:
    query = torch.randn(2, 4, 5, 16)
    for mask in (torch.randn(1, 5, 8, 4).permute(0, 3, 1, 2), torch.randn(1, 4, 5, 1), torch.randn(5, 7)):
        key = torch.randn(2, 4, 7 if mask.shape[-1] == 7 else 8, 16)
        found = aligned_mask(mask, query, key)
        assert found.stride(-1) == 1
        assert not any(stride % 8 for stride in found.stride()[:-1])
        torch.testing.assert_close(found, mask.expand(found.shape))


def test_what_the_user_switches_off_stays_off() -> None:
    tensors = CASES["plain"].tensors("cpu", torch.float32)
    program = compiled(attention(CASES["plain"]))
    program(*tensors)
    assert choice(program) == ("sdpa", "flash")
    with sdpa_kernel(SDPBackend.MATH):
        program(*tensors)
        assert choice(program)[0] != "sdpa"
        assert "flash: flash attention is disabled" in reasons(program)
    program(*tensors)
    assert len(thunder.explain(program).entries) == 2


@pytest.mark.parametrize("backends", [["math"], ["math", "flash"]])
def test_the_formula_can_be_preferred(backends: list[str]) -> None:
    tensors = CASES["causal"].tensors("cpu", torch.float32)
    program = compiled(attention(CASES["causal"]), backends=backends)
    with sdpa_kernel(SDPBackend.MATH):
        expected = outcome(attention(CASES["causal"]), tensors)
    actual = outcome(program, tensors)
    torch.testing.assert_close(actual[:2], expected[:2])
    names = {line.symbol.name for line in thunder.last_traces(program)[-1].symbols}
    assert "torch.bmm" in names
    assert not any("flash" in name for name in names)
    with torch.no_grad():
        torch.testing.assert_close(program(*tensors), expected[0])
    (line,) = thunder.last_traces(program)[-1].symbols
    assert line.symbol.name == "torch._scaled_dot_product_attention_math"


@pytest.mark.parametrize("case", ["truth", "grouped with a mask"])
def test_the_formula_with_a_bool_mask(case: str) -> None:
    query, key, value, mask = CASES[case].tensors("cpu", torch.float64)
    mask[..., 3, :] = False
    program = compiled(attention(CASES[case]), backends=["math"])
    actual, expected = (outcome(one, [query, key, value, mask]) for one in (program, attention(CASES[case])))
    torch.testing.assert_close(actual[:2], expected[:2])
    assert "torch.bmm" in {line.symbol.name for line in thunder.last_traces(program)[-1].symbols}


def test_what_the_program_switches_off_stays_off() -> None:
    """Each layer is claimed under its own switches, forward and backward."""

    def layers(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        few = key.repeat_interleave(2, 1), value.repeat_interleave(2, 1)
        x = F.scaled_dot_product_attention(query, *few)
        with sdpa_kernel(SDPBackend.MATH):
            x = F.scaled_dot_product_attention(x, *few)
        return F.scaled_dot_product_attention(x, *few)

    tensors = [torch.randn(2, heads, 8, 16) for heads in (4, 2, 2)]
    program = compiled(layers)
    check(outcome(program, tensors), outcome(layers, tensors), TOLERANCES[torch.float32])
    lines = [line for line in thunder.explain(program).decisions if line.phase == "joint"]
    calls = [line for line in lines if "scaled_dot_product" in line.symbol]
    assert [(line.executor, line.variant) for line in calls] == [
        ("sdpa", "flash"),
        ("reference", ""),
        ("sdpa", "flash"),
    ]
    assert "disabled by sdpa_kernel" in reasons(program)


def test_the_formula_is_left_to_pytorch_where_it_takes_it_anyway() -> None:
    tensors = CASES["dropout"].tensors("cpu", torch.float32)
    program = compiled(attention(CASES["dropout"]), backends=["flash", "math"])
    program(*tensors)
    assert "math: PyTorch chooses the formula for this call by itself" in reasons(program)


def test_the_decision_tells_the_kernel_and_the_reasons_of_others() -> None:
    tensors = [tensor.requires_grad_() for tensor in CASES["plain"].tensors("cpu", torch.float32)]
    program = compiled(attention(CASES["plain"]))
    program(*tensors)
    table = decision_table(thunder.explain(program).decisions)
    assert table[0].split()[:5] == ["joint", "1", "x", "torch.nn.functional.scaled_dot_product_attention", "sdpa.flash"]
    assert table[1].strip() == "not sdpa.cudnn: it runs on cuda, and the tensors are on cpu"


def test_traces_can_be_read() -> None:
    tensors = [tensor.requires_grad_() for tensor in CASES["causal"].tensors("cpu", torch.float32)]
    program = compiled(attention(CASES["causal"]))
    program(*tensors)
    forward, backward = thunder.last_traces(program)[-1].python(), thunder.last_backward_traces(program)[-1].python()
    assert "thunder_plugin_sdpa.flash_cpu.forward(query, key, value, None, 0.0, True)" in forward
    assert "thunder_plugin_sdpa.flash_cpu.backward(" in backward


def test_only_some_gradients() -> None:
    query, key, value = CASES["grouped"].tensors("cpu", torch.float32)
    results = []
    for program in (attention(CASES["grouped"]), compiled(attention(CASES["grouped"]))):
        leaf = key.clone().requires_grad_()
        program(query, leaf, value).sum().backward()
        results.append(leaf.grad)
    torch.testing.assert_close(*results)


def test_autocast() -> None:
    tensors = CASES["causal"].tensors("cpu", torch.float32)
    program = compiled(attention(CASES["causal"]))
    results = []
    for run in (program, attention(CASES["causal"])):
        with torch.autocast("cpu", torch.bfloat16):
            results.append(outcome(run, tensors))
    assert results[0][0].dtype is torch.bfloat16
    check(*results, 2e-2)
    assert choice(program) == ("sdpa", "flash")
