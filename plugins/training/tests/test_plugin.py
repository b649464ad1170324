"""The package as a plugin, and `thunder.train_step`."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

import thunder
from thunder_core.plugins.host import reset_host
from thunder_testing import package_suite

test_package = package_suite(__file__)


def trained(compile: bool, loss_fn: Any) -> tuple[list[float], Any]:
    """Losses and parameters after four steps, by `thunder.train_step` and by its definition."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    if loss_fn is None:
        model = WithLoss(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    data = [(torch.randn(6, 4), torch.randint(0, 3, (6,))) for _ in range(4)]
    if compile:
        compiled = thunder.jit(model, executors=[])
        step = thunder.train_step(compiled, loss_fn, optimizer, max_norm=0.5, scheduler=scheduler, executors=[])
        losses = [step(x, y).item() for x, y in data]
        assert is_one_program(step)
        return losses, (model.state_dict(), optimizer.state_dict(), scheduler.state_dict())
    losses = []
    for x, y in data:
        loss = model(x, y).loss if loss_fn is None else loss_fn(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, (model.state_dict(), optimizer.state_dict(), scheduler.state_dict())


class WithLoss(nn.Module):
    """As models of Transformers: the result has the loss."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        return Result(nn.functional.cross_entropy(self.model(x), y))


class Result:
    def __init__(self, loss: torch.Tensor) -> None:
        self.loss = loss


def is_one_program(step: Any) -> bool:
    return all(entry.as_recorded is None for entry in thunder.explain(step).entries)


@pytest.mark.parametrize("loss_fn", [nn.CrossEntropyLoss(), nn.functional.cross_entropy, None])
@pytest.mark.slow
def test_a_step_for_a_model_a_loss_and_an_optimizer(loss_fn: Any) -> None:
    torch.testing.assert_close(trained(True, loss_fn), trained(False, loss_fn))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((len, None, None), "takes an nn.Module as its model, not builtin_function_or_method"),
        ((nn.Linear(1, 1), 3, None), "calls loss_fn"),
        ((nn.Linear(1, 1), None, nn.Linear(1, 1)), "takes an optimizer of torch.optim, not Linear"),
    ],
)
def test_wrong_arguments(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(thunder.OptionError, match=message):
        thunder.train_step(*arguments)


def test_a_step_runs_without_the_transform(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's autograd runs it then."""
    model = nn.Linear(3, 1)
    twin = copy.deepcopy(model)

    def of(one: nn.Module) -> Any:
        optimizer = torch.optim.SGD(one.parameters(), lr=0.1)

        def step(x: torch.Tensor) -> torch.Tensor:
            loss = one(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        return step

    monkeypatch.setenv("THUNDER_PLUGINS", "-training")
    reset_host()
    try:
        compiled, x = thunder.jit(of(model)), torch.randn(2, 3)
        assert torch.equal(compiled(x), of(twin)(x))
        assert not is_one_program(compiled)
    finally:
        monkeypatch.undo()
        reset_host()
    assert torch.equal(model.weight, twin.weight)
