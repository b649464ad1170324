"""Keys and values that a program repeats for groups of heads."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from attention_cases import Case

import thunder

CASE = Case(heads=8, key_heads=2)


def interleaved(key: torch.Tensor) -> torch.Tensor:
    """As LitGPT does it."""
    return key.repeat_interleave(4, dim=1)


def expanded(key: torch.Tensor) -> torch.Tensor:
    """As Hugging Face's transformers do it."""
    batch, heads, length, size = key.shape
    return key[:, :, None, :, :].expand(batch, heads, 4, length, size).reshape(batch, heads * 4, length, size)


def unsqueezed(key: torch.Tensor) -> torch.Tensor:
    return torch.unsqueeze(key, 2).expand(-1, -1, 4, -1, -1).contiguous().view(key.shape[0], -1, *key.shape[2:])


def cloned(key: torch.Tensor) -> torch.Tensor:
    return torch.repeat_interleave(key, 4, -3).contiguous()


def flattened(key: torch.Tensor) -> torch.Tensor:
    return key.unsqueeze(2).expand(-1, -1, 4, -1, -1).flatten(1, 2)


def tiled(key: torch.Tensor) -> torch.Tensor:
    """Another order of heads."""
    return key.repeat(1, 4, 1, 1)


def tiled_by_expansion(key: torch.Tensor) -> torch.Tensor:
    """Another order of heads: the new dimension stands before theirs."""
    batch, heads, length, size = key.shape
    return key[:, None].expand(batch, 4, heads, length, size).reshape(batch, heads * 4, length, size)


def scaled(key: torch.Tensor) -> torch.Tensor:
    return interleaved(key) * 2


def detached(key: torch.Tensor) -> torch.Tensor:
    return expanded(key.detach())


def program(repeat: Any) -> Any:
    def attention(query: Any, key: Any, value: Any) -> Any:
        return F.scaled_dot_product_attention(query, repeat(key), repeat(value), is_causal=True)

    return attention


def compare(function: Any, tensors: list[torch.Tensor], **options: Any) -> Any:
    """Compile and compare with eager, with gradients and without; the compiled program."""
    compiled = thunder.jit(function, executors=[{"sdpa": options}])
    results = []
    for run in (compiled, function):
        leaves = [tensor.detach().requires_grad_() for tensor in tensors]
        output = run(*leaves)
        gradients = torch.autograd.grad(output, leaves, torch.sin(output.detach()), allow_unused=True)
        results.append((output, *gradients))
        assert all(one is None or one.shape == leaf.shape for one, leaf in zip(gradients, leaves, strict=True))
    torch.testing.assert_close(*results)
    assert results[0][0].stride() == results[1][0].stride()
    return compiled


def key_heads(compiled: Any) -> int:
    """How many heads of keys the kernel is given."""
    lines = thunder.last_traces(compiled)[-1].symbols
    (line,) = [line for line in lines if line.symbol.executor == "sdpa"]
    return line.args[1].shape[1]


@pytest.mark.parametrize("repeat", [interleaved, expanded, unsqueezed, cloned, flattened], ids=lambda f: f.__name__)
def test_kernels_get_them_as_they_were(repeat: Any) -> None:
    tensors = CASE.tensors("cpu", torch.float32)
    compiled = compare(program(repeat), tensors)
    assert key_heads(compiled) == 2
    backward = thunder.last_backward_traces(compiled)[-1]
    assert [line.symbol.name.rpartition(".")[2] for line in backward.symbols if line.symbol.name != "del"] == [
        "backward"
    ]
    with torch.no_grad():
        torch.testing.assert_close(compiled(*tensors), program(repeat)(*tensors))
    assert key_heads(compiled) == 2
    assert len(thunder.last_traces(compiled)[-1].symbols) == 1


@pytest.mark.parametrize("repeat", [tiled, tiled_by_expansion, scaled], ids=lambda f: f.__name__)
def test_what_is_something_else_stays(repeat: Any) -> None:
    assert key_heads(compare(program(repeat), CASE.tensors("cpu", torch.float32))) == 8


def test_detached_values_have_no_gradient() -> None:
    def attention(query: Any, key: Any, value: Any) -> Any:
        return F.scaled_dot_product_attention(query, detached(key), expanded(value))

    assert key_heads(compare(attention, CASE.tensors("cpu", torch.float32))) in (2, 8)


def test_only_one_of_them() -> None:
    def attention(query: Any, key: Any, value: Any) -> Any:
        return F.scaled_dot_product_attention(query, interleaved(key), tiled(value))

    assert key_heads(compare(attention, CASE.tensors("cpu", torch.float32))) == 8


def test_copies_that_others_read_stay() -> None:
    def attention(query: Any, key: Any, value: Any) -> Any:
        repeated = interleaved(key)
        return F.scaled_dot_product_attention(query, repeated, interleaved(value)) + repeated.sum()

    compiled = compare(attention, CASE.tensors("cpu", torch.float32))
    assert key_heads(compiled) == 2
    names = [line.symbol.name for line in thunder.last_traces(compiled)[-1].symbols]
    assert names.count("torch.repeat_interleave") == 1


def test_the_option() -> None:
    assert key_heads(compare(program(interleaved), CASE.tensors("cpu", torch.float32), grouped=False)) == 8


def test_excluded_operations_are_left_alone() -> None:
    tensors = CASE.tensors("cpu", torch.float32)
    compiled = thunder.jit(program(interleaved), executors=[{"sdpa": {"exclude": ["*attention*"]}}])
    torch.testing.assert_close(compiled(*tensors), program(interleaved)(*tensors))
    assert "torch.repeat_interleave" in [line.symbol.name for line in thunder.last_traces(compiled)[-1].symbols]


def test_calls_that_no_kernel_takes_are_left_alone() -> None:
    def attention(query: Any, key: Any, value: Any) -> Any:
        return F.scaled_dot_product_attention(query, interleaved(key), interleaved(value), dropout_p=0.5)

    tensors = CASE.tensors("cpu", torch.float32)
    compiled = thunder.jit(attention, executors=["sdpa"])
    results = []
    for run in (compiled, attention):
        torch.manual_seed(0)
        results.append(run(*tensors))
    torch.testing.assert_close(*results)
    assert "torch.repeat_interleave" in [line.symbol.name for line in thunder.last_traces(compiled)[-1].symbols]
