"""Compiled programs as nodes of PyTorch's autograd graph: what callers do with outputs, cotangents and gradients."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.training.steps import assert_same, assert_same_training, check, detached, gradients, leaf, mlp, raised

Pair = namedtuple("Pair", "first second")


@dataclasses.dataclass
class Output:
    loss: torch.Tensor
    logits: torch.Tensor
    hidden: tuple[torch.Tensor, ...] = ()
    name: str = "output"


class Model(nn.Module):
    """Several outputs: a loss, logits, one that is detached, indices, one without grad, a number and a string."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.head = nn.Linear(8, 3)
        self.unused = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        hidden = self.body(x).tanh()
        logits = self.head(hidden)
        with torch.no_grad():
            probabilities = logits.softmax(-1)
        return {
            "loss": logits.logsumexp(-1).mean(), "logits": logits, "hidden": hidden, "detached": hidden.detach(),
            "best": logits.argmax(-1), "probabilities": probabilities, "rows": x.shape[0], "name": "model",
        }  # fmt: skip


USED = [("loss",), ("logits",), ("loss", "logits"), ("hidden",), ("hidden", "loss")]


@pytest.mark.parametrize("used", USED, ids="+".join)
def test_only_some_outputs_reach_the_loss(used: tuple[str, ...]) -> None:
    def scenario(model: Any) -> Any:
        for _ in range(2):
            outputs = model(torch.randn(5, 4))
            sum(outputs[name].square().sum() for name in used).backward()
        return outputs

    assert_same(Model, scenario)


def test_gradients_of_what_was_not_used_are_none() -> None:
    """With the loss from ``hidden`` alone, the head gets None, not zero."""

    def scenario(model: Any) -> Any:
        model(torch.randn(5, 4))["hidden"].sum().backward()
        return [name for name, parameter in model.named_parameters() if parameter.grad is None]

    assert_same(Model, scenario)


def test_grad_of_a_subset() -> None:
    def scenario(model: Any) -> Any:
        x = leaf(5, 4)
        outputs = model(x)
        parameters = list(model.parameters())
        return (
            gradients(outputs["loss"], [x], retain_graph=True),
            gradients(outputs["loss"], [model.head.weight], retain_graph=True),
            gradients(outputs["hidden"].sum(), parameters, retain_graph=True, allow_unused=True),
            gradients(
                outputs["logits"].sum(), parameters, retain_graph=True, allow_unused=True, materialize_grads=True
            ),
            raised(lambda: gradients(outputs["loss"], [model.unused.weight], retain_graph=True)),
            raised(lambda: gradients(outputs["best"].float().sum(), [x])),
            gradients([outputs["logits"], outputs["hidden"]], [x], [torch.ones(5, 3), torch.ones(5, 8)]),
        )

    assert_same(Model, scenario)


def test_repeated_backward() -> None:
    def scenario(model: Any) -> Any:
        x = leaf(5, 4)
        outputs = model(x)
        seen = []
        for retain in (True, True, False):
            outputs["loss"].backward(retain_graph=retain)
            seen.append(detached((x.grad, model.body.weight.grad)))
        return seen, raised(outputs["loss"].backward), raised(lambda: outputs["logits"].sum().backward())

    assert_same(Model, scenario)


def test_second_backward_says_what_eager_says() -> None:
    def scenario(model: Any) -> None:
        loss = model(torch.randn(5, 4)).square().mean()
        loss.backward()
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            loss.backward()

    assert_same(mlp, scenario)


def test_two_losses_of_one_call_and_two_calls_of_one_loss() -> None:
    def scenario(model: Any) -> None:
        outputs = model(torch.randn(5, 4))
        outputs["loss"].backward(retain_graph=True)
        outputs["logits"].square().mean().backward()
        (model(torch.randn(5, 4))["loss"] + model(torch.randn(2, 4))["loss"]).backward()

    assert_same(Model, scenario)


def test_backward_in_another_order_than_forward() -> None:
    def scenario(model: Any) -> Any:
        inputs = [leaf(5, 4) for _ in range(3)]
        losses = [model(x).square().mean() for x in inputs]
        for loss in (losses[1], losses[2], losses[0]):
            loss.backward()
        return [detached(x.grad) for x in inputs]

    assert_same(mlp, scenario)


def containers(x: torch.Tensor) -> Any:
    y = x * 2
    ordered = OrderedDict(a=y.cos(), b=[x + 1, (y.argmax(), None)])
    return Output(y.sum(), y.sin(), (y, y.exp()), "n"), Pair(y - 1, {"deep": (ordered, 3.0)}), [], [[x.detach() * 3]]


def test_nested_containers() -> None:
    check(containers, lambda: (leaf(3, 4),))


def test_a_dataclass_whose_loss_is_used() -> None:
    def scenario(function: Any) -> Any:
        x = leaf(3, 4)
        first, second, *_ = function(x)
        (first.loss + second.second["deep"][0]["b"][0].sum()).backward()
        return x, type(first), first.name, first.logits.requires_grad

    assert_same(lambda: containers, scenario)


def test_same_tensor_twice() -> None:
    def scenario(function: Any) -> Any:
        x, y = leaf(3, 4), leaf(3, 4)
        function(x, y).sum().backward()
        function(x, x).sum().backward()
        z = y.cos()
        function(z, z).sum().backward(retain_graph=True)
        function(z, z.view(-1).view(3, 4)).sum().backward()
        return x, y

    assert_same(lambda: lambda a, b: a.sin() * b.exp() + a, scenario)


def test_shared_parameters() -> None:
    def make() -> nn.Module:
        model = nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 7, bias=False))
        model[3].weight = model[0].weight
        return model

    inputs = lambda: (torch.randint(7, (2, 5)),)  # noqa: E731
    assert_same_training(make, inputs, steps=3, optimizer=lambda p: torch.optim.SGD(p, lr=0.1))


def test_gradients_of_what_is_read_from_outside() -> None:
    """A tensor that the program finds in its closure gets its gradient as well."""
    made = []

    def make() -> Callable[..., Any]:
        outside = leaf(4)
        made.append(outside)
        return lambda x: (x * outside).tanh()

    def scenario(function: Any) -> Any:
        outside = made[-1]
        for _ in range(2):
            function(leaf(3, 4)).square().sum().backward()
        outside.requires_grad_(False)
        return outside.grad, function(torch.randn(3, 4)).requires_grad

    assert_same(make, scenario)


def no_shared_work(x: torch.Tensor, y: torch.Tensor) -> Any:
    return x.sin(), y.cos(), x.exp() * y


def equal_work(x: torch.Tensor, y: torch.Tensor) -> Any:
    return x.sin(), y.cos(), x.sin() * y


@pytest.mark.parametrize("program", [no_shared_work, equal_work], ids=lambda program: program.__name__)
def test_independent_outputs_have_independent_graphs(program: Callable[..., Any]) -> None:
    """The backward of one output frees nothing that another needs unless they share it."""

    def scenario(function: Any) -> Any:
        x, y = leaf(3, 4), leaf(3, 4)
        first, second, both = function(x, y)
        first.sum().backward()
        second.sum().backward()
        return x, y, raised(both.sum().backward), raised(first.sum().backward)

    assert_same(lambda: program, scenario)


KERNELS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "group_norm": lambda x: F.group_norm(x, 2),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[1:]),
    "instance_norm": F.instance_norm,
    "conv": lambda x: F.conv1d(x, x[:3, :, :2]),
    "softmax": lambda x: x.softmax(-1),
    "sdpa": lambda x: F.scaled_dot_product_attention(x, x, x),
    "cumsum": lambda x: x.cumsum(1),
    "pool": lambda x: F.avg_pool1d(x, 2),
    "max_pool": lambda x: F.max_pool1d(x, 2),
    "interpolate": lambda x: F.interpolate(x, scale_factor=2.0, mode="linear"),
    "embedding_bag": lambda x: F.embedding_bag(torch.tensor([[0, 2], [1, 1]]), x[0]),
    "gelu": F.gelu,
    "glu": F.glu,
}


@pytest.mark.parametrize("name", KERNELS)
def test_cotangents_without_memory_of_their_own(name: str) -> None:
    """``sum`` hands its cotangent on as one expanded element; some kernels read it as if it were dense."""

    def scenario(function: Any) -> Any:
        x = leaf(6, 4, 8)
        first = gradients(function(x).sum(), x)
        output = function(x)
        odd = torch.randn(*output.shape[::-1]).permute(*reversed(range(output.ndim)))
        return first, gradients(output, x, odd), gradients(function(x), x, torch.randn(()).expand(output.shape))

    assert_same(lambda: KERNELS[name], scenario)
