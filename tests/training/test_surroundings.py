"""Compiled modules in larger eager programs: chained, checkpointed, copied, on threads, data parallel."""

from __future__ import annotations

import copy
import inspect
import threading
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from tests.subjects import SUBJECT
from tests.training.steps import assert_same, detached, leaf, mlp_with_dropout, raised, step


class Around(nn.Module):
    """An eager module that uses one several times."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.before = nn.Linear(4, 4)
        self.inner = inner
        self.after = nn.LayerNorm(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.before(x).relu_()
        return self.after(self.inner(y) + self.inner(y * 2) + y).square_()


def test_inside_a_larger_eager_model() -> None:
    def scenario(model: Any) -> Any:
        outer = Around(model)
        inputs = [leaf(5, 4) for _ in range(3)]
        return [step(outer, x) for x in inputs], inputs, [p.grad for p in outer.parameters()]

    assert_same(mlp_with_dropout, scenario)


def test_two_compiled_modules_chained() -> None:
    def scenario(model: Any) -> Any:
        compile = (lambda m: m) if isinstance(model, nn.Sequential) else SUBJECT
        second = compile(nn.Sequential(nn.Tanh(), nn.Linear(4, 2)))
        chained = nn.Sequential(model, nn.Identity(), second)
        return [step(chained, leaf(5, 4)) for _ in range(2)], [p.grad for p in second.parameters()]

    assert_same(mlp_with_dropout, scenario)


def test_compiled_inside_compiled() -> None:
    """A program that calls a compiled module is recorded through it."""

    def scenario(model: Any) -> Any:
        outer = Around(model)
        program = outer if isinstance(model, nn.Sequential) else SUBJECT(outer)
        return [step(program, leaf(5, 4)) for _ in range(2)], [p.grad for p in outer.parameters()]

    assert_same(mlp_with_dropout, scenario)


@pytest.mark.parametrize("preserve", [True, False])
@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoint_around(reentrant: bool, preserve: bool) -> None:
    """The forward runs twice: once without, once with the graph; dropout repeats when the state is preserved."""

    def scenario(model: Any) -> Any:
        seen = []
        for _ in range(2):
            x = leaf(5, 4)
            y = checkpoint(model, x.sin(), use_reentrant=reentrant, preserve_rng_state=preserve)
            y.square().mean().backward()
            seen.append((x, detached(y)))
        return seen

    assert_same(mlp_with_dropout, scenario)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoint_of_parts_around(reentrant: bool) -> None:
    def scenario(model: Any) -> Any:
        outer = nn.Sequential(model, nn.Tanh(), model, nn.Linear(4, 4))
        x = leaf(5, 4)
        checkpoint_sequential(outer, 2, x, use_reentrant=reentrant).sum().backward()
        return x, [p.grad for p in outer.parameters()]

    assert_same(mlp_with_dropout, scenario)


class Checkpointed(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.first, self.second = mlp_with_dropout(), mlp_with_dropout()
        self.options = options

    def forward(self, x: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
        y = checkpoint(self.first, x, use_reentrant=False, **self.options)

        def part(z: torch.Tensor, *, factor: float) -> Any:
            return self.second(z) * factor, {"sum": z.sum()}

        z, more = checkpoint(part, y, factor=scale, use_reentrant=False, **self.options)
        return z + more["sum"] + torch.rand(4)


_OPTIONS: list[dict[str, Any]] = [{}, {"preserve_rng_state": False}, {"determinism_check": "none"}]
_NEWER = {"early_stop": False, "respect_saved_tensors_hooks": False}
_OPTIONS += [{name: value} for name, value in _NEWER.items() if name in inspect.signature(checkpoint).parameters]


@pytest.mark.parametrize("options", _OPTIONS, ids=str)
def test_checkpoint_inside(options: dict[str, Any]) -> None:
    """Recomputed dropout drops what the forward dropped, as in eager."""

    def scenario(model: Any) -> Any:
        inputs = [leaf(5, 4) for _ in range(3)]
        return [step(model, x) for x in inputs], inputs, model(inputs[0].detach()).requires_grad

    if options.get("preserve_rng_state", True):
        assert_same(lambda: Checkpointed(**options), scenario)
    else:  # the masks of the recomputation are anyone's; without dropout they do not matter
        assert_same(lambda: Checkpointed(**options).eval(), scenario)


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad:UserWarning")
def test_reentrant_checkpoint_inside() -> None:
    class Reentrant(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = mlp_with_dropout()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return checkpoint(self.body, x * 2, use_reentrant=True) + x

    assert_same(Reentrant, lambda model: [(step(model, x), x.grad) for x in (leaf(5, 4), leaf(5, 4))])


def test_copies_in_the_middle_of_training() -> None:
    """A copy has its own parameters and continues from the same state; a state dict can be put back."""

    def scenario(model: Any) -> Any:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        inputs = [torch.randn(5, 4) for _ in range(6)]

        def run(m: Any, batches: list[torch.Tensor]) -> list[torch.Tensor]:
            losses = []
            for x in batches:
                optimizer.zero_grad()
                losses.append(step(m, x))
                optimizer.step()
            return losses

        first = run(model, inputs[:2])
        twin, saved = copy.deepcopy(model), copy.deepcopy(model.state_dict())
        second = run(model, inputs[2:4])
        fresh = [p.grad is None for p in twin.parameters()]
        step(twin, inputs[4])
        moved = fresh, [p.grad for p in twin.parameters()]
        model.load_state_dict(saved)
        return first, second, moved, run(model, inputs[4:]), detached(twin.state_dict())

    assert_same(mlp_with_dropout, scenario)


def test_backward_on_other_threads() -> None:
    def scenario(model: Any) -> Any:
        model.eval()
        inputs = [leaf(5, 4) for _ in range(4)]
        losses = [model(x).square().mean() for x in inputs]
        threads = [threading.Thread(target=loss.backward) for loss in losses]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return inputs

    assert_same(mlp_with_dropout, scenario)


def test_forward_and_backward_on_several_threads() -> None:
    def scenario(model: Any) -> Any:
        model.eval()
        inputs = [leaf(rows, 4) for rows in (2, 3, 2, 5)]
        errors: list[str | None] = []

        def work(x: torch.Tensor) -> None:
            errors.append(raised(lambda: [model(x).square().mean().backward() for _ in range(3)]))

        threads = [threading.Thread(target=work, args=(x,)) for x in inputs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return inputs, errors

    assert_same(mlp_with_dropout, scenario)
