"""Contexts of torch.autograd around a compiled program: saved tensors, offloading, anomaly detection, the graph."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks

import thunder
from tests.training.steps import assert_same, leaf, raised
from thunder_core.errors import UnsupportedError


def make() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3))


def step(model: Any, x: torch.Tensor) -> torch.Tensor:
    loss = model(x).square().mean()
    loss.backward()
    return loss.detach()


def test_saved_tensors_hooks() -> None:
    """What is packed is unpacked, and gradients are made of what unpacking returns."""

    def scenario(model: Any) -> Any:
        seen = []
        for _ in range(2):
            packed: list[torch.Tensor] = []
            unpacked: list[int] = []

            def pack(tensor: torch.Tensor) -> int:
                packed.append(tensor.detach().clone())  # noqa: B023
                return len(packed) - 1  # noqa: B023

            def unpack(index: int) -> torch.Tensor:
                unpacked.append(index)  # noqa: B023
                return packed[index]  # noqa: B023

            x = leaf(5, 4)
            with saved_tensors_hooks(pack, unpack):
                output = model(x)
            assert packed
            assert not unpacked
            output.square().mean().backward()
            assert set(unpacked) == set(range(len(packed)))
            seen.append(x.grad)
        return seen, step(model, leaf(5, 4))

    assert_same(make, scenario)


def test_saved_tensors_hooks_after_a_call_without_them() -> None:
    def scenario(model: Any) -> Any:
        losses = [step(model, leaf(5, 4)) for _ in range(2)]
        with saved_tensors_hooks(lambda t: t.double(), lambda t: t.float()):
            losses.append(step(model, leaf(5, 4)))
        with saved_tensors_hooks(lambda t: t, lambda t: t * 0 if t.is_floating_point() else t):
            x = leaf(5, 4)
            loss = model(x).square().mean()
        loss.backward()
        return losses, bool((x.grad == 0).all())

    assert_same(make, scenario)


def test_hooks_inside_of_a_program_are_refused() -> None:
    """They would not see what Thunder saves."""

    def program(x: torch.Tensor) -> torch.Tensor:
        with save_on_cpu():
            return x.sin().square().sum()

    compiled = thunder.jit(program)
    with pytest.raises(UnsupportedError, match=r"save_on_cpu inside a compiled program") as refused:
        compiled(leaf(5, 4))
    assert "put it around the call" in str(refused.value)
    with torch.no_grad():
        x = leaf(5, 4)
        torch.testing.assert_close(compiled(x), program(x))
    x = leaf(5, 4)
    program(x).backward()  # as ever, once nothing is recorded
    assert x.grad is not None


def test_save_on_cpu() -> None:
    def scenario(model: Any) -> Any:
        x = leaf(5, 4)
        with save_on_cpu():
            return [step(model, x) for _ in range(2)], x.grad

    assert_same(make, scenario)


def test_saved_tensor_that_is_written_before_backward() -> None:
    """An error as eager's: the backward would see the new values."""

    def scenario(model: Any) -> Any:
        x = torch.randn(5, 4)
        weight = model[3].weight
        output = model(x)
        with torch.no_grad():
            weight.mul_(2)
        first = raised(output.sum().backward)
        output = model(x)
        x.zero_()
        second = raised(output.sum().backward)
        model.zero_grad()  # how far backward came before it failed is its own business
        return first, second

    assert_same(make, scenario)


def test_disabled_hooks() -> None:
    def scenario(model: Any) -> Any:
        with torch.autograd.graph.disable_saved_tensors_hooks("not here"):
            return step(model, leaf(5, 4))

    assert_same(make, scenario)


@pytest.mark.filterwarnings("ignore:Anomaly Detection:UserWarning")
@pytest.mark.filterwarnings("ignore:Error detected in:UserWarning")
def test_anomaly_detection() -> None:
    """A NaN that arises in backward is an error, others are not; the flag is not part of the results."""

    def scenario(function: Any) -> Any:
        x, bad = torch.rand(3) + 1, torch.zeros(3)
        seen = []
        for value in (x, bad):
            for _ in range(2):
                value = value.detach().requires_grad_()
                with torch.autograd.detect_anomaly():
                    loss = function(value).sum()
                    seen.append(raised(loss.backward))
                seen.append(value.grad)
        return seen

    assert_same(lambda: lambda x: (x * 0 / x).sqrt() + x, scenario)


def test_the_graph_can_be_walked() -> None:
    """From the loss, all leaves are reached through ``next_functions``."""

    def scenario(model: Any) -> Any:
        x = leaf(5, 4)
        loss = model(x).sum()  # kept, as its graph lives no longer than it does
        todo, found = [loss.grad_fn], set()
        names = {id(p): name for name, p in model.named_parameters()} | {id(x): "input"}
        while todo:
            node = todo.pop()
            if hasattr(node, "variable"):
                found.add(names[id(node.variable)])
            todo.extend(following for following, _ in node.next_functions if following is not None)
        return sorted(found)

    assert_same(make, scenario)


def test_graph_hooks_and_edges() -> None:
    def scenario(model: Any) -> Any:
        x = leaf(5, 4)
        output = model(x)
        log = []
        output.grad_fn.register_hook(lambda gi, go: log.append(go[0].detach().clone()))
        output.grad_fn.register_prehook(lambda go: (go[0] * 2,))
        handle = torch.autograd.graph.register_multi_grad_hook([x, model[0].weight], lambda g: log.append(len(g)))
        output.square().mean().backward()
        handle.remove()
        (by_edge,) = torch.autograd.grad(model(x).sum(), torch.autograd.graph.get_gradient_edge(x))
        return log, by_edge, x

    assert_same(make, scenario)


def test_backward_with_inputs_named() -> None:
    def scenario(model: Any) -> Any:
        x = leaf(5, 4)
        model(x).sum().backward(inputs=[model[0].weight, x])
        model(x).sum().backward(inputs=[model[3].bias])
        return x

    assert_same(make, scenario)


def test_no_warning_of_ours() -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert_same(make, lambda model: step(model, leaf(5, 4)))
    assert not seen
