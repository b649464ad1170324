"""Programs against eager across sizes: results, gradients, and how often they are compiled."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import thunder

SIZES = [(3, 8), (2, 20), (5, 9), (4, 33)]


def matrices(x: torch.Tensor) -> torch.Tensor:
    return x @ x.transpose(-1, -2) + x.sum(-1, keepdim=True)


def views(x: torch.Tensor) -> torch.Tensor:
    b, n, d = x.shape
    y = x.view(b, n, 2, d // 2).permute(0, 2, 1, 3)
    return y.reshape(b * 2, -1).unflatten(1, (n, d // 2)).flatten()


def slices(x: torch.Tensor) -> torch.Tensor:
    n = x.shape[1]
    return torch.cat([x[:, 1:], x[:, : n - 1], x[:, n // 2 :], x[:, -2:]], 1)


def split(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    a, b = x.split([2, x.shape[1] - 2], 1)
    return a * 2, b.mean(1), *x.chunk(2, -1)


def positions(x: torch.Tensor) -> torch.Tensor:
    n = x.size(1)
    return x + torch.arange(n, device=x.device)[None, :, None] / 7 + torch.zeros(x.shape[0], 1, 1)


def masks(x: torch.Tensor) -> torch.Tensor:
    n = x.shape[1]
    mask = torch.ones(n, n, dtype=torch.bool).tril()
    scores = (x @ x.mT).masked_fill(~mask, float("-inf"))
    return scores.softmax(-1) @ x


def attention(x: torch.Tensor) -> torch.Tensor:
    b, n, d = x.shape
    q = x.view(b, n, 2, d // 2).transpose(1, 2)
    return F.scaled_dot_product_attention(q, q, q, is_causal=True).transpose(1, 2).reshape(b, n, d)


def pads(x: torch.Tensor) -> torch.Tensor:
    return F.pad(x, (1, 2, 0, 3)) * x.shape[0]


def resized(x: torch.Tensor) -> torch.Tensor:
    return F.interpolate(x, scale_factor=2.0, mode="linear")


def roll_and_flip(x: torch.Tensor) -> torch.Tensor:
    return x.roll(1, 1).flip(1) + x.cumsum(1)


def expand(x: torch.Tensor) -> torch.Tensor:
    return x[:, :1].expand(-1, x.shape[1], -1) + x.new_ones(x.shape) + torch.full_like(x, 2)


def in_place(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y += x
    y[:, 0] = 0
    return y


def normalized(x: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, (x.shape[-1],)) + F.softmax(x, 1) + F.gelu(x)


def variances(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return x.var(1), x.std(), x.mean((0, 1)), x.amax(1), torch.logsumexp(x, 1)


def by_numel(x: torch.Tensor) -> torch.Tensor:
    return x.sum() / x.numel() + len(x.shape)


def masked_attention(x: torch.Tensor) -> torch.Tensor:
    b, n, d = x.shape
    q = x.view(b, n, 2, d // 2).transpose(1, 2)
    return F.scaled_dot_product_attention(q, q, q, torch.ones(n, n, dtype=torch.bool).tril()).sum(1)


def transposed_linear(x: torch.Tensor) -> torch.Tensor:
    return F.linear(x.transpose(0, 1), torch.arange(24.0).view(3, 8).requires_grad_())


def mapped(x: torch.Tensor) -> torch.Tensor:
    return torch.vmap(lambda row: (row @ row.mT + torch.arange(row.shape[0])).sum(0) / row.numel())(x)


def mapped_and_closed_over(x: torch.Tensor) -> torch.Tensor:
    return torch.vmap(lambda row: x.mean(-1) * row + len(x) * len(row), in_dims=1, out_dims=1)(x.mT)


def per_sample(x: torch.Tensor) -> torch.Tensor:
    weight = torch.ones(8)
    return torch.vmap(torch.func.grad(lambda w, row: (row @ w).square().mean()), in_dims=(None, 0))(weight, x)


def pulled_back(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y, pull = torch.func.vjp(lambda value: value.sin().sum(1) / x.shape[1], x)
    return y, *pull(torch.ones_like(y))


def pushed_forward(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return torch.func.jvp(lambda value: value.square() / value.shape[0], (x,), (torch.ones_like(x),))


def gradient_of_mean(x: torch.Tensor) -> torch.Tensor:
    return thunder.grad(lambda value: value.sin().mean())(x)


PROGRAMS = [
    *(matrices, views, slices, split, positions, masks, attention, roll_and_flip, expand, in_place, normalized),
    *(variances, by_numel, pads, masked_attention, transposed_linear),
    *(mapped, mapped_and_closed_over, per_sample, pulled_back, pushed_forward, gradient_of_mean),
]


def inputs(b: int, n: int, *, grad: bool = False) -> torch.Tensor:
    return torch.randn(b, n, 8, generator=torch.Generator().manual_seed(b * n)).requires_grad_(grad)


def tensors(result: Any) -> tuple[torch.Tensor, ...]:
    return result if isinstance(result, tuple) else (result,)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
@pytest.mark.battery
def test_values(program: Callable[..., Any]) -> None:
    compiled = thunder.jit(program, dynamic=True, executors=[])
    for b, n in SIZES:
        x = inputs(b, n)
        for actual, expected in zip(tensors(compiled(x)), tensors(program(x)), strict=True):
            torch.testing.assert_close(actual, expected, rtol=0, atol=0)
            assert actual.stride() == expected.stride()
    assert thunder.cache_misses(compiled) == 1


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
@pytest.mark.battery
def test_gradients(program: Callable[..., Any]) -> None:
    compiled = thunder.jit(program, dynamic=True, executors=[])
    for b, n in SIZES:
        x, y = inputs(b, n, grad=True), inputs(b, n, grad=True)
        actual, expected = tensors(compiled(x)), tensors(program(y))
        cotangents = [torch.randn_like(one) for one in expected]
        torch.autograd.backward(actual, cotangents)
        torch.autograd.backward(expected, cotangents)
        torch.testing.assert_close(x.grad, y.grad)
    assert thunder.cache_misses(compiled) == 1


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 3, stride=2)
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.max_pool2d(torch.relu(self.norm(self.first(x))), 2)
        return self.second(y).mean((2, 3))


class Language(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.positions = nn.Embedding(11, 8), nn.Embedding(40, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.head = nn.Linear(8, 11)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens) + self.positions(torch.arange(tokens.shape[1]))
        return F.cross_entropy(self.head(self.layer(x)).flatten(0, 1), tokens.flatten())


@pytest.mark.slow
def test_convolutions_train() -> None:
    model = Convolutions()
    eager = copy.deepcopy(model)
    compiled = thunder.jit(model, dynamic=True, executors=[])
    for b, height, width in [(2, 12, 16), (3, 16, 14), (5, 20, 32)]:
        x = torch.randn(b, 3, height, width)
        _same_step(compiled, eager, x)
    assert thunder.cache_misses(compiled) == 1


@pytest.mark.slow
def test_a_language_model_trains() -> None:
    model = Language()
    eager = copy.deepcopy(model)
    compiled = thunder.jit(model, dynamic=True, executors=[])
    for b, n in SIZES:
        _same_step(compiled, eager, torch.randint(0, 11, (b, n)))
    assert thunder.cache_misses(compiled) == 1


def _same_step(compiled: Any, eager: nn.Module, x: torch.Tensor) -> None:
    actual, expected = compiled(x).sum(), eager(x).sum()
    torch.testing.assert_close(actual, expected)
    actual.backward()
    expected.backward()
    for one, other in zip(compiled.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)
        one.grad = other.grad = None
    for one, other in zip(compiled.buffers(), eager.buffers(), strict=True):
        torch.testing.assert_close(one, other)


def test_cotangents_of_some_results() -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x.sin() @ x.mT
        return y, (y * x.shape[1]).exp().sum()

    compiled = thunder.jit(program, dynamic=True, executors=[])
    for b, n in SIZES:
        x, y = (inputs(b, n, grad=True) for _ in range(2))
        with torch.no_grad():
            x *= 0.01
            y *= 0.01
        for index in (0, 1):
            compiled(x)[index].sum().backward()
            program(y)[index].sum().backward()
            torch.testing.assert_close(x.grad, y.grad)
            x.grad = y.grad = None
    assert thunder.cache_misses(compiled) == 1


@pytest.mark.slow
def test_what_pytorch_computes_with_constants_takes_constants() -> None:
    compiled = thunder.jit(resized, dynamic=True, executors=[])
    for b, n in SIZES:
        x = inputs(b, n, grad=True)
        torch.testing.assert_close(compiled(x), resized(x), rtol=0, atol=0)
    assert thunder.cache_misses(compiled) == len(SIZES)
    for b, n in SIZES:
        torch.testing.assert_close(compiled(inputs(b, n)), resized(inputs(b, n)), rtol=0, atol=0)
    assert thunder.cache_misses(compiled) == len(SIZES) + 1


def scaled(x: torch.Tensor) -> torch.Tensor:
    return F.interpolate(x, scale_factor=1.7, mode="nearest", recompute_scale_factor=True)


def shrunk(x: torch.Tensor) -> torch.Tensor:
    return F.interpolate(x, scale_factor=0.6, mode="linear", align_corners=True)


@pytest.mark.parametrize("program", [scaled, shrunk], ids=lambda program: program.__name__)
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.slow
def test_sizes_from_floats(program: Callable[..., Any], grad: bool) -> None:
    compiled = thunder.jit(program, dynamic=True, executors=[])
    for b, n in SIZES:
        x, y = inputs(b, n, grad=grad), inputs(b, n, grad=grad)
        actual, expected = compiled(x), program(y)
        torch.testing.assert_close(actual, expected, rtol=0, atol=0)
        if grad:
            actual.cos().sum().backward()
            expected.cos().sum().backward()
            torch.testing.assert_close(x.grad, y.grad)


def test_second_derivatives() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return (x**3 * x.shape[0]).sum()

    compiled = thunder.jit(program, dynamic=True, executors=[])
    for b, n in SIZES[:2]:
        x = inputs(b, n, grad=True)
        (first,) = torch.autograd.grad(compiled(x), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
        torch.testing.assert_close(second, 6 * x * b)
    assert thunder.cache_misses(compiled) == 1


def test_random_numbers_and_writes() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        y = F.dropout(x, 0.5, training=True)
        x.add_(1)
        return y + torch.randn(x.shape[1], 1)

    compiled = thunder.jit(program, dynamic=True, executors=[])
    for b, n in SIZES:
        x, y = inputs(b, n), inputs(b, n)
        torch.manual_seed(0)
        actual = compiled(x)
        torch.manual_seed(0)
        torch.testing.assert_close(actual, program(y), rtol=0, atol=0)
        torch.testing.assert_close(x, y, rtol=0, atol=0)


def test_autocast() -> None:
    linear = nn.Linear(8, 8)

    def program(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return linear(x).float().sum(1)

    compiled = thunder.jit(program, dynamic=True, executors=[])
    for b, n in SIZES:
        torch.testing.assert_close(compiled(inputs(b, n)), program(inputs(b, n)), rtol=0, atol=0)
    assert thunder.cache_misses(compiled) == 1


@pytest.mark.parametrize("executors", [[], ["inductor"]], ids=str)
@pytest.mark.slow
def test_strides_that_vary_though_sizes_do_not(executors: list[str]) -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> Any:
        both = torch.cat([x, y], 1)
        return both[:, -3:], (both * 2).sum(-1)

    compiled = thunder.jit(program, executors=executors)
    for size in (5, 6, 7, 8):
        x, y = torch.randn(2, size, 4), torch.randn(2, 1, 4)
        for found, expected in zip(compiled(x, y), program(x, y), strict=True):
            torch.testing.assert_close(found, expected)
    assert thunder.cache_misses(compiled) == 2


class Recurrent(nn.Module):
    """A recurrent network, or a cell that runs for a constant number of steps."""

    def __init__(self, kind: type[nn.Module], options: dict[str, Any]) -> None:
        super().__init__()
        self.network = kind(4, 5, **options)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if isinstance(self.network, nn.RNNBase):
            y, state = self.network(x)
            last = state[0] if isinstance(state, tuple) else state
            return y.mul(y.softmax(0)).sum(1) + last.mean() + y.shape[0] * y.shape[1]
        state = None
        for step in range(3):
            state = self.network(x[:, step], state)
        return state[0] if isinstance(state, tuple) else state


RECURRENT: list[tuple[type[nn.Module], dict[str, Any]]] = [
    (nn.GRU, {}),
    (nn.GRU, {"batch_first": True, "num_layers": 2, "bidirectional": True}),
    (nn.GRU, {"num_layers": 2, "dropout": 0.5}),
    (nn.RNN, {"batch_first": True, "bias": False}),
    (nn.RNN, {"nonlinearity": "relu"}),
    (nn.LSTM, {"batch_first": True}),
    *[(cell, {}) for cell in (nn.GRUCell, nn.LSTMCell, nn.RNNCell)],
]


@pytest.mark.battery
@pytest.mark.parametrize("dynamic", ["automatic", True], ids=str)
@pytest.mark.parametrize(("kind", "options"), RECURRENT)
def test_recurrent_networks(kind: type[nn.Module], options: dict[str, Any], dynamic: Any) -> None:
    torch.manual_seed(0)
    module = Recurrent(kind, options)
    eager, compiled = copy.deepcopy(module), thunder.jit(module, dynamic=dynamic, executors=[])
    for b, n in ((3, 4), (5, 6), (2, 9), (7, 5)):
        x = torch.randn(b, n, 4)
        results = []
        for model in (compiled, eager):
            torch.manual_seed(1)
            leaf = x.clone().requires_grad_()
            y = model(leaf)
            y.square().sum().backward()
            results.append((y.detach(), leaf.grad, torch.rand(2)))
        torch.testing.assert_close(*results)
        for one, other in zip(module.parameters(), eager.parameters(), strict=True):
            torch.testing.assert_close(one.grad, other.grad)
        with torch.no_grad():
            torch.manual_seed(2)
            found = compiled(x)
            torch.manual_seed(2)
            torch.testing.assert_close(found, eager(x))
    assert thunder.cache_misses(compiled) <= 4
