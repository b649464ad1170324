"""Jagged nested tensors, against eager: values, offsets and gradients."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from wrapper_classes import assert_same, numbers

import thunder


@pytest.fixture(autouse=True)
def _prototype() -> Iterator[None]:
    """Nested tensors of the strided layout, which PyTorch takes for attention, warn that they are a prototype."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The PyTorch API of nested tensors is in prototype stage")
        yield


def jagged(*lengths: int, seed: int = 0, width: int = 8) -> Tensor:
    return torch.nested.nested_tensor(
        [numbers(length, width, seed=seed + place) for place, length in enumerate(lengths)], layout=torch.jagged
    )


def heads(x: Tensor, count: int = 2) -> Tensor:
    """``(batch, length, count * width)`` as ``(batch, count, length, width)``."""
    return x.unflatten(-1, (count, -1)).transpose(1, 2)


def attention(x: Tensor, **options: Any) -> Tensor:
    query = heads(x)
    attended: Any = F.scaled_dot_product_attention(query, query.cos(), query * 2, **options)
    return attended.transpose(1, 2).flatten(-2)


_WEIGHT = numbers(8, 8, seed=7)
_PADDED = numbers(3, 5, 8, seed=8)
_OFFSETS = torch.tensor([0, 2, 5, 9])

PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "pointwise": lambda x: x.sin() * 2 + x,
    "two of one structure": lambda x: x * torch.sigmoid(x),
    "where": lambda x: torch.where(x > 0, x, 0.0),
    "linear": lambda x: F.linear(x, _WEIGHT),
    "layer norm": lambda x: F.layer_norm(x, (8,)),
    "rms norm": lambda x: F.rms_norm(x, (8,)),
    "softmax": lambda x: F.softmax(x, -1),
    "softmax of sequences": lambda x: torch.softmax(x, 1),
    "dropout": lambda x: F.dropout(x, 0.5),
    "sum of all": lambda x: x.sum(),
    "mean": lambda x: x.mean(-1),
    "mean of all": lambda x: x.mean(),
    "cat": lambda x: torch.cat([x, x], -1),
    "padded": lambda x: x.to_padded_tensor(0.5),
    "padded by a function": lambda x: torch.nested.to_padded_tensor(x, 1.0),
    "values": lambda x: x.values() * 2,
    "unbind": lambda x: x.unbind(),
    "chunk": lambda x: x.sin().chunk(2),
    "chunk of the last dimension": lambda x: torch.chunk(x, 2, dim=-1),
    "unbind by a function": lambda x: torch.unbind(x.sin()),
    "iteration": lambda x: [each.sum() for each in x],
    "rebuilt": lambda x: torch.nested.nested_tensor_from_jagged(x.values().sin(), x.offsets()),
    "rebuilt of its parts": lambda x: torch.nested.as_nested_tensor([each * 2 for each in x], layout=torch.jagged),
    "matmul with a matrix": lambda x: x @ _WEIGHT,
    "matmul with a batch of matrices": lambda x: torch.bmm(x, _WEIGHT.expand(x.size(0), 8, 8)),
    "matmul of each sequence": lambda x: x.transpose(1, 2) @ (x @ _WEIGHT),
    "component": lambda x: x[0].sin(),
    "row of a component": lambda x: x[-1, 0],
    "select": lambda x: x.select(0, 1) * 2,
    "added to itself without bounds": lambda x: (
        torch.nested.nested_tensor_from_jagged(x.values().sin(), x.offsets()) + x
    ),
    "attention": attention,
    "attention with a scale": lambda x: attention(x, scale=0.3),
    "attention with dropout": lambda x: attention(x, dropout_p=0.5),
    "attention of a linear layer": lambda x: attention(F.linear(x, _WEIGHT)).sin(),
}


def parts(result: Any) -> list[Tensor]:
    """The dense tensors that a result consists of."""
    if isinstance(result, list | tuple):
        return [part for each in result for part in parts(each)]
    return [result.values(), result.offsets()] if result.is_nested else [result]


def outcome(run: Callable[[Any], Any], x: Tensor, *, train: bool) -> list[Any]:
    """Results, and the gradient of their sum."""
    x = x.detach().requires_grad_(train)
    torch.manual_seed(0)
    result = run(x)
    found = parts(result)
    if train:
        torch.stack([each.square().sum() for each in found if each.requires_grad]).sum().backward()
        assert x.grad is not None
        found += parts(x.grad)
    return [each.detach() for each in found]


def check(program: Callable[[Any], Any], *, train: bool) -> None:
    """Compare with eager for other values, lengths and numbers of sequences."""
    compiled = thunder.jit(program)
    for lengths, seed in (((3, 2, 4), 0), ((3, 2, 4), 3), ((1, 4, 4), 0), ((2, 2), 0)):
        x = jagged(*lengths, seed=seed)
        assert_same(outcome(compiled, x, train=train), outcome(program, x, train=train))


@pytest.mark.parametrize("name", ["pointwise", "linear", "padded", "component", "rebuilt of its parts", "attention"])
@pytest.mark.slow
def test_functions_of_each_kind(name: str) -> None:
    """Of values, with a dense tensor, to a dense tensor, of one sequence, from sequences, and between elements."""
    check(PROGRAMS[name], train=True)


@pytest.mark.parametrize("train", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.battery
def test_functions_of_jagged_tensors(name: str, train: bool) -> None:
    check(PROGRAMS[name], train=train)


PRODUCTS: dict[str, Callable[[Any, Any], Any]] = {
    "matrix": lambda x, weight: (x @ weight).sin(),
    "function": lambda x, weight: torch.matmul(x, other=weight),
    "matrix, four dimensions": lambda x, weight: x.unflatten(-1, (2, 4)) @ weight[:4],
    "batch of matrices": lambda x, weight: torch.bmm(x, weight.expand(3, 8, 8)),
    "twice": lambda x, weight: (x @ weight) @ weight,
    "of each sequence": lambda x, weight: x.transpose(1, 2) @ (x @ weight),
    "matrix on the left": lambda x, weight: (weight @ x.transpose(1, 2)).sin(),
    "matrix of another size on the left": lambda x, weight: torch.matmul(weight[:3], x.transpose(1, 2)),
    "batch of matrices on the left": lambda x, weight: weight.expand(3, 8, 8) @ x.transpose(1, 2),
}


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.slow
def test_matmul_with_a_dense_tensor_that_requires_grad(name: str) -> None:
    program = PRODUCTS[name]
    results, strides = [], []
    for run in (thunder.jit(program), program):
        x, weight = jagged(3, 2, 4).requires_grad_(), (_WEIGHT / 8).requires_grad_()
        result = run(x, weight)
        parts(result)[0].square().sum().backward()
        results.append([each.detach() for each in (*parts(result), *parts(x.grad), weight.grad)])
        strides.append(parts(result)[0].stride())
    torch.testing.assert_close(*results)
    assert strides[0] == strides[1]


def test_an_input_without_a_gradient_has_none() -> None:
    def program(x: Any, weight: Tensor) -> Tensor:
        indices: Tensor = (x.abs() * 2).long().clamp(0, 7)[..., 0]
        return F.embedding(indices, weight)

    x, weight = jagged(3, 2, 4).requires_grad_(), _WEIGHT.clone().requires_grad_()
    thunder.jit(program)(x, weight).values().sum().backward()
    assert x.grad is None
    assert weight.grad is not None


@pytest.mark.parametrize("dim", [-1, 1])
def test_sums_of_jagged_tensors(dim: int) -> None:  # eager has no derivative
    x = jagged(3, 2, 4)
    assert_same(parts(thunder.jit(lambda x: x.sum(dim))(x)), parts(x.sum(dim)))


CONSTRUCTIONS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "nested_tensor": lambda x, y: torch.nested.nested_tensor([x[:3], x[3:5]], layout=torch.jagged).sin(),
    "as_nested_tensor": lambda x, y: torch.nested.as_nested_tensor([x[:3], x[3:5]], layout=torch.jagged).sin(),
    "from jagged": lambda x, y: torch.nested.nested_tensor_from_jagged(x, _OFFSETS).sin(),
    "from jagged, with lengths": lambda x, y: torch.nested.nested_tensor_from_jagged(
        x, _OFFSETS, torch.tensor([1, 3, 2])
    ).sin(),
    "narrow": lambda x, y: torch.nested.narrow(
        y, 1, torch.tensor([0, 1, 0]), torch.tensor([2, 3, 4]), layout=torch.jagged
    ).sin(),
    "narrow and attention": lambda x, y: attention(
        torch.nested.narrow(
            y, 1, torch.zeros(3, dtype=torch.int64), torch.full((3,), 5), layout=torch.jagged
        ).contiguous()
    ),
}


@pytest.mark.parametrize("name", CONSTRUCTIONS)
@pytest.mark.slow
def test_construction_inside_of_the_program(name: str) -> None:
    construct = CONSTRUCTIONS[name]
    compiled = thunder.jit(construct)
    for seed in range(2):
        found, expected = [], []
        for run, results in ((compiled, found), (construct, expected)):
            x, y = numbers(9, 8, seed=seed).requires_grad_(), numbers(3, 5, 8, seed=seed).requires_grad_()
            result = run(x, y)
            results += [result.values(), result.offsets()]
            if result.requires_grad:
                result.values().square().sum().backward()
            results += [x.grad, y.grad]
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.out = nn.LayerNorm(8), nn.Linear(8, 8)
        self.projections = nn.ModuleList([nn.Linear(8, 8) for _ in range(3)])

    def forward(self, x: Tensor) -> Tensor:
        normal = self.norm(x)
        query, key, value = [heads(projection(normal)) for projection in self.projections]
        attended = F.scaled_dot_product_attention(query, key, value)
        return x + self.out(attended.transpose(1, 2).flatten(-2))


@pytest.mark.slow
def test_a_transformer_of_jagged_tensors_is_trained() -> None:
    def train(model: nn.Module, call: Callable[[Tensor], Tensor]) -> list[Any]:
        optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
        losses = []
        for seed, lengths in enumerate([(3, 2, 4), (3, 2, 4), (5, 1)]):
            loss = call(jagged(*lengths, seed=seed)).values().square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.detach())
        return [*losses, *[each.detach() for each in model.parameters()]]

    torch.manual_seed(0)
    model, expected = nn.Sequential(Block(), Block()), nn.Sequential(Block(), Block())
    expected.load_state_dict(model.state_dict())
    torch.testing.assert_close(train(model, thunder.jit(model)), train(expected, expected))


@pytest.mark.slow
def test_attention_under_autocast() -> None:
    def program(x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return attention(x)

    x = jagged(3, 2, 4)
    compiled = thunder.jit(program)
    assert_same(outcome(compiled, x, train=True), outcome(program, x, train=True))


@pytest.mark.parametrize("options", [{"is_causal": True}, {"attn_mask": torch.ones(2, 2, dtype=torch.bool)}])
def test_attention_that_eager_refuses_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises((RuntimeError, ValueError)) as expected:
        attention(jagged(3, 2), **options)
    with pytest.raises(type(expected.value), match=str(expected.value)):
        thunder.jit(attention)(jagged(3, 2), **options)


def test_a_jagged_tensor_that_the_program_makes_a_leaf() -> None:
    def program(x: Tensor) -> Tensor:
        return torch.nested.nested_tensor([x], layout=torch.jagged, requires_grad=True).sin()

    compiled = thunder.jit(program)
    assert_same(compiled(numbers(3, 8)).values(), program(numbers(3, 8)).values())
    assert "requires_grad_" in str(thunder.explain(compiled).fallbacks)
