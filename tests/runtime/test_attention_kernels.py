"""Kernels of attention that the program itself chooses, with ``sdpa_kernel``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

import thunder
from thunder_core.ir.context import attention_kernels

FLASH = "aten::_scaled_dot_product_flash_attention_for_cpu"


def tensors(*, grad: bool = True) -> tuple[torch.Tensor, ...]:
    return tuple(torch.randn(1, 2, 4, 8, requires_grad=grad) for _ in range(3))


def layers(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """One layer that may use any kernel, and one that may not."""
    x = F.scaled_dot_product_attention(query, key, value)
    with sdpa_kernel(SDPBackend.MATH):
        x = F.scaled_dot_product_attention(torch.sin(x), key, value)
    return x * 2


def checkpointed(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    return checkpoint(layers, query, key, value, use_reentrant=False)


def autocast(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return layers(query, key, value).float()


def calls_of_flash(function: Callable[..., Any], *args: Any) -> int:
    with torch.profiler.profile(acc_events=True) as profile:
        function(*args)
    return sum(event.name == FLASH for event in profile.events())


@pytest.mark.parametrize("program", [layers, autocast])
@pytest.mark.parametrize("grad", [False, True])
def test_each_layer_runs_by_its_kernels(program: Callable[..., Any], grad: bool) -> None:
    args = tensors(grad=grad)
    compiled = thunder.jit(program, executors=[])
    compiled(*args)
    assert calls_of_flash(compiled, *args) == calls_of_flash(program, *args) == 1


@pytest.mark.parametrize("program", [layers, checkpointed, autocast])
def test_as_eager(program: Callable[..., Any], check_gradients: Callable[..., None]) -> None:
    check_gradients(program, lambda: tensors())


def test_the_caller_forbids_what_the_program_allows() -> None:
    def program(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        x = F.scaled_dot_product_attention(query, key, value)
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return F.scaled_dot_product_attention(x, key, value)

    args = tensors(grad=False)
    compiled = thunder.jit(program, executors=[])
    with sdpa_kernel(SDPBackend.MATH):
        compiled(*args)
        assert calls_of_flash(compiled, *args) == 1
    compiled(*args)
    assert calls_of_flash(compiled, *args) == 2
    assert len(thunder.explain(compiled).entries) == 2


def test_equal_calls_with_other_kernels_are_not_merged() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        with sdpa_kernel(SDPBackend.MATH):
            y = F.scaled_dot_product_attention(x, x, x)
        return y - F.scaled_dot_product_attention(x, x, x)

    (x, *_) = tensors(grad=False)
    compiled = thunder.jit(program, executors=[])
    compiled(x)
    assert calls_of_flash(compiled, x) == 1


def test_other_ops_know_nothing_of_it() -> None:
    """So that they are fused with those around."""
    compiled = thunder.jit(layers, executors=[])
    compiled(*tensors(grad=False))
    for trace in thunder.last_traces(compiled):
        chosen = [line.symbol.name for line in trace.symbols if line.context is not None]
        assert chosen == ["torch.nn.functional.scaled_dot_product_attention"]


def test_left_switched() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        torch.backends.cuda.enable_flash_sdp(False)
        return F.scaled_dot_product_attention(x, x, x)

    before, compiled = attention_kernels(), thunder.jit(program, executors=[])
    for _ in range(2):
        compiled(tensors()[0])
        assert set(before) - set(attention_kernels()) == {"FLASH_ATTENTION"}
        torch.backends.cuda.enable_flash_sdp(True)
    assert attention_kernels() == before
    assert thunder.cache_misses(compiled) == 1
