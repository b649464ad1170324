"""Steps that call backward, as one program, against eager: results, parameters, gradients, buffers, random numbers."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint

import thunder
from thunder_plugin_training.operations import GRADIENTS
from thunder_testing.pointwise import Pointwise

Step = Callable[..., Any]


class Net(nn.Module):
    """With statistics, random numbers, in-place operations and a layer that gets no gradient."""

    def __init__(self, dropout: float = 0.3) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Linear(8, 5)
        self.dropout, self.unused = nn.Dropout(dropout), nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.dropout(F.relu(self.norm(self.first(x)), inplace=True).mean((2, 3))))


class Tied(nn.Module):
    """One parameter that is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.norm = nn.Embedding(5, 3), nn.LayerNorm(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(self.norm(self.words(x.flatten(1).sum(1).long() % 5)), self.words.weight)


class ChannelsLast(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 5, 3)
        self.to(memory_format=torch.channels_last)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(x)).mean((2, 3))


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return gradient * x.cos() * 2


def sgd(model: nn.Module, **options: Any) -> optim.Optimizer:
    return optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1, **options)


def reset_last(model: nn.Module) -> Step:
    optimizer = optim.AdamW(model.parameters(), lr=0.01)

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def reset_first(model: nn.Module) -> Step:
    """Gradients stay in ``grad``, and results of forward are returned with their graph."""
    optimizer = sgd(model, momentum=0.9)

    def step(x: torch.Tensor, y: torch.Tensor) -> Any:
        optimizer.zero_grad()
        scores = model(x)
        loss = F.cross_entropy(scores, y)
        loss.backward()
        optimizer.step()
        norm = sum(p.grad.norm() for p in model.parameters() if p.grad is not None)
        return {"loss": loss, "scores": scores, "right": (scores.argmax(1) == y).sum(), "norm": norm}

    return step


def reset_to_zeros(model: nn.Module) -> Step:
    optimizer = sgd(model)

    def step(x: torch.Tensor, y: torch.Tensor) -> None:
        optimizer.zero_grad(set_to_none=False)
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


def accumulated(model: nn.Module) -> Step:
    """Gradients of several calls."""
    return lambda x, y: F.cross_entropy(model(x), y).backward()


def parts_of_a_batch(model: nn.Module) -> Step:
    optimizer = sgd(model)

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        total = torch.zeros(())
        for one, other in zip(x.chunk(2), y.chunk(2), strict=True):
            loss = F.cross_entropy(model(one), other) / 2
            loss.backward()
            total += loss.detach()
        optimizer.step()
        return total

    return step


def clipped_and_edited(model: nn.Module) -> Step:
    optimizer = sgd(model)

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        F.cross_entropy(model(x), y).backward()
        nn.utils.clip_grad_value_(model.parameters(), 0.01)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        next(model.parameters()).grad[0].zero_()
        optimizer.step()
        return norm

    return step


def alternating(model: nn.Module) -> Step:
    """Two optimizers; the second loss uses what the first has written."""
    first, second = optim.Adam(model.first.parameters(), lr=0.01), optim.SGD(model.last.parameters(), lr=0.1)

    def step(x: torch.Tensor, y: torch.Tensor) -> Any:
        losses = []
        for optimizer, sign in ((first, 1), (second, -1)):
            model.zero_grad()
            loss = sign * F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return losses

    return step


def closure(model: nn.Module) -> Step:
    optimizer = optim.LBFGS(model.parameters(), max_iter=2)

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        def evaluate() -> torch.Tensor:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            return loss

        return optimizer.step(evaluate).detach()

    return step


def with_cotangents(model: nn.Module) -> Step:
    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        scores = model(x)
        scores.backward(torch.full_like(scores, 0.5))
        torch.autograd.backward([model(x).sum()])
        return scores.detach()

    return step


def autocast(model: nn.Module) -> Step:
    optimizer = sgd(model)

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def scaled(model: nn.Module) -> Step:
    optimizer, scaler = sgd(model), torch.amp.GradScaler("cpu")

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    return step


def scheduled(model: nn.Module) -> Step:
    optimizer = optim.AdamW(model.parameters(), lr=0.1, fused=True)
    scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)

    def step(x: torch.Tensor, y: torch.Tensor) -> Any:
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        return loss.item(), scheduler.get_last_lr()

    return step


def frozen(model: nn.Module) -> Step:
    model.first.requires_grad_(False)
    return reset_last(model)


def own_function(model: nn.Module) -> Step:
    return lambda x, y: F.cross_entropy(Doubled.apply(model(x)), y).backward()


def random_afterwards(model: nn.Module) -> Step:
    """Random numbers are drawn before and after backward, and used by the program, its results and a next forward."""
    optimizer = sgd(model)

    def step(x: torch.Tensor, y: torch.Tensor) -> Any:
        noise = torch.rand(x.shape[0], 5)
        (F.cross_entropy(model(x) + noise, y)).backward()
        optimizer.step()
        optimizer.zero_grad()
        weight = model.last.weight
        return F.dropout(noise, 0.5), F.dropout(weight.detach(), 0.5), torch.rand(2), torch.empty(3).uniform_()

    return step


INLINED: dict[str, tuple[Callable[[], nn.Module], Callable[[Any], Step]]] = {
    **{
        step.__name__: (Net, step)
        for step in (
            *(reset_last, reset_first, reset_to_zeros, accumulated, parts_of_a_batch, clipped_and_edited, alternating),
            *(with_cotangents, autocast, scaled, scheduled, frozen, own_function, random_afterwards),
        )
    },
    "closure": (lambda: Net(dropout=0), closure),
    "tied": (Tied, reset_first),
    "channels last": (ChannelsLast, accumulated),
}


def data(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(size)
    return torch.randn(size, 3, 6, 6, generator=generator), torch.randint(0, 5, (size,), generator=generator)


def run(model: nn.Module, step: Step, sizes: tuple[int, ...]) -> Any:
    torch.manual_seed(0)
    results = [step(*data(size)) for size in sizes]
    gradients = [parameter.grad for parameter in model.parameters()]
    return results, model.state_dict(), gradients, torch.get_rng_state()


def assert_as_eager(
    make: Callable[[], nn.Module], of: Callable[[Any], Step], sizes: tuple[int, ...] = (4, 4, 4), **options: Any
) -> Any:
    """The compiled step, after calls that did what eager's do."""
    torch.manual_seed(1)
    model = make()
    twin = copy.deepcopy(model)
    compiled = thunder.jit(of(twin), **{"executors": [], **options})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", thunder.RecompileWarning)
        found = pytree.tree_leaves(run(twin, compiled, sizes))
    expected = pytree.tree_leaves(run(model, of(model), sizes))
    tolerance = 2e-2 if of is autocast else 1e-4
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance / 10)
        if isinstance(other, torch.Tensor):
            assert (one.requires_grad, one.is_leaf, type(one)) == (other.requires_grad, other.is_leaf, type(other))
            assert one.stride() == other.stride()
    return compiled


def is_inlined(compiled: Any) -> bool:
    entries = thunder.explain(compiled).entries
    return bool(entries) and all(entry.as_recorded is None for entry in entries)


@pytest.mark.parametrize("name", INLINED)
@pytest.mark.slow
def test_one_program(name: str) -> None:
    compiled = assert_as_eager(*INLINED[name])
    assert is_inlined(compiled)
    assert not any(op.symbol is GRADIENTS for op in thunder.last_traces(compiled)[-1].symbols)


@pytest.mark.slow
def test_sizes_vary() -> None:
    compiled = assert_as_eager(Net, reset_last, (4, 5, 6, 3), dynamic=True)
    assert is_inlined(compiled)
    assert thunder.cache_misses(compiled) <= 3


@pytest.mark.slow
def test_executors_fuse_the_step() -> None:
    compiled = assert_as_eager(Net, reset_last, executors=[Pointwise()])
    assert is_inlined(compiled)
    assert any(op.symbol.executor == "pointwise" for op in thunder.last_traces(compiled)[-1].symbols)


def hooked(model: nn.Module) -> Step:
    next(model.parameters()).register_hook(lambda gradient: gradient * 2)
    return reset_last(model)


def hooked_after_accumulation(model: nn.Module) -> Step:
    def double(parameter: torch.Tensor) -> None:
        parameter.grad.mul_(2)

    next(model.parameters()).register_post_accumulate_grad_hook(double)
    return reset_last(model)


def penalized(model: nn.Module) -> Step:
    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = F.cross_entropy(model(x), y)
        slopes = torch.autograd.grad(loss, list(model.last.parameters()), create_graph=True)
        (loss + sum(slope.square().sum() for slope in slopes)).backward()
        return loss.detach()

    return step


def graph_used_twice(model: nn.Module) -> Step:
    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        scores = model(x)
        loss = F.cross_entropy(scores, y)
        loss.backward(retain_graph=True)
        scores.square().mean().backward()
        return loss.detach()

    return step


def computed_again(model: nn.Module) -> Step:
    return lambda x, y: F.cross_entropy(checkpoint(model, x, use_reentrant=False), y).backward()


def another_graph(model: nn.Module) -> Step:
    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        F.cross_entropy(model(x), y).backward()
        return model.last.weight * 2

    return step


LEFT: dict[Callable[[Any], Step], str] = {
    hooked: "has hooks",
    hooked_after_accumulation: "has hooks",
    penalized: "",
    graph_used_twice: "two calls of backward use the same part",
    computed_again: "is computed again in backward",
    another_graph: "which has a graph that backward did not use",
}


@pytest.mark.parametrize("of", LEFT, ids=lambda of: of.__name__)
@pytest.mark.slow
def test_programs_that_are_left_to_autograd(of: Callable[[Any], Step]) -> None:
    compiled = assert_as_eager(Net, of)
    assert not is_inlined(compiled)
    assert LEFT[of] in "\n".join(map(str, thunder.explain(compiled).entries[0].notes))


def test_hooks_that_are_registered_later() -> None:
    """The program of the first calls is not used: gradients of the hook count."""
    torch.manual_seed(0)
    models = [nn.Linear(3, 1)]
    models.append(copy.deepcopy(models[0]))
    seen = []
    for model, compile in zip(models, (lambda step: step, lambda step: thunder.jit(step, executors=[])), strict=True):
        step = compile(accumulated(model))
        for call in range(3):
            if call == 1:
                model.weight.register_hook(lambda gradient: gradient * 3)
            torch.manual_seed(call)
            step(torch.randn(2, 3), torch.zeros(2, dtype=torch.long))
            seen.append(model.bias.grad + model.weight.grad.sum())
    torch.testing.assert_close(seen[:3], seen[3:])


def test_backward_of_a_result_raises_eagers_error() -> None:
    model = nn.Linear(3, 2)
    messages = []
    for step in (reset_first(model), thunder.jit(reset_first(model), executors=[])):
        result = step(torch.randn(2, 3), torch.zeros(2, dtype=torch.long))
        with pytest.raises(RuntimeError) as error:
            result["loss"].backward()
        messages.append(str(error.value))
    assert messages[0] == messages[1]


@pytest.mark.slow
def test_gradients_are_freed_when_they_are_used() -> None:
    model = nn.Sequential(*[nn.Linear(4, 4) for _ in range(3)])
    compiled = thunder.jit(reset_last(model), executors=[])
    for _ in range(2):
        compiled(torch.randn(2, 4), torch.zeros(2, dtype=torch.long))
    trace = thunder.last_traces(compiled)[-1]
    assert "store_gradients" not in str(trace)
    kept = {proxy.name for proxy in trace.output} | {proxy.name for proxy in trace.inputs}
    assert not any(name.endswith("_gradient") for name in kept)
