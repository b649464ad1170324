"""Programs whose Python depends on values, called with several sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.export import Dim

import thunder
from tests.values.programs import CALLS, PROGRAMS, Program
from tests.values.test_programs import WithSizes, assert_same, outcome
from thunder_core.private_names import release

LENGTHS = (4, 6, 8, 10, 12, 4, 7, 9, 11)


def calls(length: int) -> list[torch.Tensor]:
    """Arguments of that length, which lead to different outcomes."""
    return [torch.cat([x, x.flip(0) * 0.5, x * 0.25])[:length] for x in CALLS[:4]]


def runs(program: Program, x: torch.Tensor) -> bool:
    """Whether eager takes an argument of that length."""
    try:
        outcome(program, x, training=False)
    except (RuntimeError, IndexError, ValueError):
        return False
    return True


# All pairs of a program, training or inference, and an option, and not all triples.
ALTERNATING = [
    pytest.param(program, training, dynamic, id=f"{program.__name__}-{name}-{'training' if training else 'inference'}")
    for number, program in enumerate(PROGRAMS)
    for training in (False, True)
    for dynamic, name in [(("automatic", "automatic"), (True, "dynamic"))[(number + training) % 2]]
]


@pytest.mark.filterwarnings("ignore::thunder.RecompileWarning")
@pytest.mark.parametrize(("program", "training", "dynamic"), ALTERNATING)
@pytest.mark.battery
def test_programs(program: Program, training: bool, dynamic: Any) -> None:
    compiled = thunder.jit(program, dynamic=dynamic)
    for length in (4, 6, 8, 12, 4, 6):
        for x in calls(length):
            if runs(program, x):
                assert_same(outcome(compiled, x, training=training), outcome(program, x, training=training))
    assert not thunder.explain(compiled).fallbacks


def branch(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    return y + 1 if y.sum() > 0 else y.cumsum(0)


def branch_by_size(x: torch.Tensor) -> torch.Tensor:
    y = x * 2 if x.sum() > 0 else x.flip(0)
    return y.exp() if x.shape[0] > 3 else y


def branch_with_draws(x: torch.Tensor) -> torch.Tensor:
    y = x + torch.rand(x.shape[0])
    return y * torch.rand(x.shape[0]) if x.sum() > 0 else y - torch.randn(())


def branch_with_writes(x: torch.Tensor) -> torch.Tensor:
    y = x * 1
    y.add_(1)
    if x.sum() > 0:
        y.mul_(3)[0] = y.sum()
    return y


def writes_its_argument(x: torch.Tensor) -> torch.Tensor:
    y = x.detach()
    if y.sum() > 0:
        y.mul_(2)
    return y + 1


def average(x: torch.Tensor) -> Any:
    mean = x.sum().item() / x.shape[0]
    return x - mean, mean, x.shape[0] * mean, x.shape[0] - mean


def compared_with_a_size(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.abs().sum().item() < x.shape[0] * 100 else x


def printed(x: torch.Tensor) -> torch.Tensor:
    print("largest", x.detach().max().item(), (x > 0).sum().item())
    return x * 2


def all_of_a_mask(x: torch.Tensor) -> torch.Tensor:
    mask = x > -1000
    return x[mask].reshape(x.shape) * mask.nonzero().sum() + x[: mask.sum()]


def up_to_a_number(x: torch.Tensor) -> Any:
    length = (x > -1000).sum().item()
    return x[:length] * torch.arange(length), length


OUTCOMES: dict[Callable[..., Any], int] = {
    branch: 2,
    branch_by_size: 2,
    branch_with_draws: 2,
    branch_with_writes: 2,
    writes_its_argument: 2,
    average: 1,
    compared_with_a_size: 1,
    printed: 1,
    all_of_a_mask: 1,
    up_to_a_number: 1,
}
"""Programs, each with the number of its outcomes."""


OPTIONS: list[Any] = ["automatic", True, {"x": {0: Dim("length", min=4)}}]


@pytest.mark.parametrize("regions", [False, True], ids=["reference", "regions"])
@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("program", OUTCOMES, ids=lambda program: program.__name__)
@pytest.mark.battery
def test_a_compilation_for_each_outcome(program: Program, training: bool, regions: bool) -> None:
    """With regions each program has one of the options, and all three options are tested."""
    which = (list(OUTCOMES).index(program) + training) % len(OPTIONS)
    for dynamic in OPTIONS[which : which + 1] if regions else OPTIONS:
        executor = WithSizes()
        check(program, training, dynamic, (executor,) if regions else ())
        assert bool(executor.regions) is (regions and program is not average)  # which has one operation at a time


@pytest.mark.slow
def test_a_compilation_for_each_outcome_with_inductor() -> None:
    check(branch_by_size, True, True, ("inductor",))


def check(program: Program, training: bool, dynamic: Any, executors: tuple[Any, ...]) -> None:
    """Compare with eager for several lengths and outcomes, and count the compilations."""
    compiled = thunder.jit(program, dynamic=dynamic, executors=list(executors))
    for length in LENGTHS:
        for sign in (1, -1, -1, 1):
            x = torch.linspace(0.1, 1, length) * sign
            assert_same(outcome(compiled, x, training=training), outcome(program, x, training=training))
    report = thunder.explain(compiled)
    assert not report.fallbacks
    assert len(report.entries) <= OUTCOMES[program] * (2 if dynamic == "automatic" else 1)


def test_numbers_of_both_kinds() -> None:
    def program(x: torch.Tensor, rate: float) -> Any:
        total = x.sum().item()
        step = total * rate + x.shape[0]
        return x * rate / x.shape[0] + step, rate * x.shape[0], rate * total, rate + total > -100

    compiled = thunder.jit(program)
    for length in LENGTHS:
        x = torch.linspace(0.1, 1, length)
        assert_same(compiled(x, 0.1 * length), program(x, 0.1 * length))
    assert thunder.cache_misses(compiled) == 2


def test_a_value_that_is_no_size_any_more() -> None:
    def program(x: torch.Tensor, mask: torch.Tensor) -> Any:
        length = mask.sum(1).max().item()
        return x[:, :length] * 2, mask.nonzero()

    compiled = thunder.jit(program)
    for rows, length, masked in ((2, 5, 5), (3, 7, 7), (4, 9, 9), (3, 9, 6), (2, 8, 6), (5, 6, 6), (3, 9, 9)):
        x, mask = torch.rand(rows, length), (torch.arange(length) < masked).long().repeat(rows, 1)
        assert_same(compiled(x, mask), program(x, mask))
    # PyTorch 2.11 distinguishes a slice of all elements from one of a part
    assert thunder.cache_misses(compiled) == (3 if release(torch.__version__) == (2, 11) else 2)


class Router(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate = torch.nn.Linear(8, 3)
        self.experts = torch.nn.ModuleList([torch.nn.Linear(8, 8) for _ in range(3)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = x.reshape(-1, 8)
        weights, chosen = self.gate(tokens).softmax(-1).topk(2, -1)
        result = torch.zeros_like(tokens)
        for index, expert in enumerate(self.experts):
            rows, places = torch.where(chosen == index)
            if rows.numel():
                result.index_add_(0, rows, expert(tokens[rows]) * weights[rows, places, None])
        return result.view_as(x)


class Mixture(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.router, self.last = torch.nn.Linear(8, 8), Router(), torch.nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.router(self.first(x)).relu() + x)


@pytest.mark.parametrize("dynamic", ["automatic", True], ids=["automatic", "dynamic"])
@pytest.mark.slow
def test_a_mixture_of_experts(dynamic: Any) -> None:
    torch.manual_seed(0)
    model = Mixture()
    compiled = thunder.jit(model, dynamic=dynamic)
    for rows, length in ((2, 5), (3, 6), (2, 7), (4, 3), (3, 9), (2, 12)):
        x = torch.randn(rows, length, 8)
        ours, theirs = compiled(x), model(x)
        torch.testing.assert_close(ours, theirs)
        gradients = [
            torch.autograd.grad(y.square().sum(), model.parameters(), allow_unused=True) for y in (ours, theirs)
        ]
        torch.testing.assert_close(*gradients)
    assert thunder.cache_misses(compiled) == (2 if dynamic == "automatic" else 1)


def test_other_values_for_each_size() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x[x > 0]

    compiled = thunder.jit(program, recompile_warning=100)
    for _ in range(2):
        for length in range(4, 20):
            x = torch.where(torch.arange(length) % 2 == 0, 1.0, -1.0)
            assert_same(compiled(x), program(x))
    report = thunder.explain(compiled)
    assert not report.fallbacks
    assert len(report.entries) == 2


def test_the_outcome_of_the_last_calls_runs_first(monkeypatch: pytest.MonkeyPatch) -> None:
    from thunder_core.symbols import checks

    wrong = []
    original = checks.WrongGuess.__init__
    monkeypatch.setattr(checks.WrongGuess, "__init__", lambda self, *args: (wrong.append(1), original(self, *args))[1])
    compiled = thunder.jit(branch, dynamic=True)
    for sign in (1, -1):
        compiled(torch.ones(5) * sign)
    wrong.clear()
    for _ in range(10):
        for length, sign in ((5, 1), (6, -1), (7, 1)):
            compiled(torch.ones(length) * sign)
    assert len(wrong) <= 4  # twice for each size whose outcome is not the newest one
    wrong.clear()
    for index in range(20):
        compiled(torch.ones(8) * (-1) ** index)
    assert len(wrong) <= 12
