"""Numbers that a program computes from a counter, as a schedule does: few programs, and the results of eager."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder

Schedule = Callable[[Any], Any]


class Scheduled(torch.nn.Module):
    """Scales its argument by a function of a counter."""

    def __init__(self, schedule: Schedule, count: float) -> None:
        super().__init__()
        self.schedule, self.count = schedule, count

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.schedule(self.count)


def _safe_inverse(count: Any) -> Any:
    try:
        return 1 / count
    except ZeroDivisionError:
        return 7.0


SMOOTH: dict[str, Schedule] = {
    "decay": lambda count: 0.9**count,
    "inverse": lambda count: 1 / (1 + 0.1 * count),
    "inverse_root": lambda count: count**-0.5,
    "square": lambda count: count**2,
    "cosine": lambda count: 0.5 * (1 + math.cos(math.pi * count / 100)),
    "exponential": lambda count: math.exp(-count / 10),
    "logarithm": lambda count: math.log(count) + math.sqrt(count),
    "angle": lambda count: math.atan2(count, 2) + math.hypot(count, 1),
    "cycle": lambda count: count % 7 + count // 3,
    "bounded": lambda count: max(0.1, min(1.0, count / 100)),
    "warm_up": lambda count: 0.1 * count if count < 50 else 5.0,
}
UNDEFINED: dict[str, tuple[Schedule, list[float]]] = {
    "inverse": (lambda count: 1 / count, [2.0, 3.0, 0.0, 4.0, -1.0, 0.0]),
    "handled": (_safe_inverse, [2.0, 3.0, 0.0, 4.0, -1.0, 0.0]),
    "root": (lambda count: count**-0.5, [2.0, 3.0, 0.0, 4.0, -1.0]),
    "base": (lambda count: (-8.0) ** count, [2.0, 3.0, 0.5, 1.0]),
    "logarithm": (math.log, [2.0, 3.0, 0.0, -1.0, 4.0]),
    "overflow": (math.exp, [1.0, 2.0, 1000.0, 3.0]),
    "remainder": (lambda count: 5.5 % count, [2.0, 3.0, 0.0, -2.0]),
    "not_a_number": (lambda count: math.cos(count) if count == count else 0.0, [1.0, 2.0, math.nan, math.inf, 3.0]),
    "int_power": (lambda count: 2**count, [1, 2, 3, -1, 5]),
    "int_overflow": (lambda count: 0.5**count, [2, 3, 4, 0, -5000, -5]),
    "int_logarithm": (math.log, [2, 3, 4, 0, -5, 6]),
}


def _outcome(function: Callable[..., torch.Tensor], *args: Any) -> str:
    """The text of the result or of the exception, in which NaN equals itself."""
    try:
        return repr(function(*args).tolist())
    except Exception as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("kind", [int, float])
@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.slow
def test_one_program_for_all_counts(name: str, kind: type[float]) -> None:
    module, x = Scheduled(SMOOTH[name], kind(1)), torch.randn(3)
    compiled = thunder.jit(module)
    for count in range(1, 40):
        module.count = kind(count)
        result, expected = compiled(x), module(x)
        assert torch.equal(result, expected)
        assert result.dtype == expected.dtype
    assert thunder.cache_misses(compiled) == (3 if name == "bounded" else 2)


@pytest.mark.parametrize("dtype", [torch.int64, torch.float64], ids=str)
@pytest.mark.parametrize("name", sorted(SMOOTH.keys() - {"angle"}))
@pytest.mark.slow
def test_one_program_for_all_values_of_a_tensor(name: str, dtype: torch.dtype) -> None:
    def program(x: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
        return x * SMOOTH[name](count.item())

    compiled, x = thunder.jit(program), torch.randn(3)
    for count in range(2, 20):
        value = torch.tensor(count, dtype=dtype)
        assert torch.equal(compiled(x, value), program(x, value))
    assert thunder.cache_misses(compiled) == (2 if name == "bounded" else 1)


@pytest.mark.filterwarnings("ignore::thunder_core.errors.RecompileWarning")
@pytest.mark.parametrize("name", UNDEFINED)
@pytest.mark.slow
def test_where_functions_are_not_defined(name: str) -> None:
    schedule, counts = UNDEFINED[name]
    module, x = Scheduled(schedule, counts[0]), torch.ones(2)
    compiled = thunder.jit(module)
    for count in counts:
        module.count = count
        assert _outcome(compiled, x).startswith(_outcome(module, x))


@pytest.mark.parametrize("name", UNDEFINED)
@pytest.mark.slow
def test_numbers_of_tensors(name: str) -> None:
    schedule, counts = UNDEFINED[name]

    def program(x: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
        return x * schedule(count.item())

    compiled, x = thunder.jit(program), torch.ones(2)
    for count in counts:
        tensor = torch.tensor(count, dtype=torch.float64 if isinstance(count, float) else torch.int64)
        assert _outcome(compiled, x, tensor).startswith(_outcome(program, x, tensor))


def test_conditions_over_powers_of_negative_numbers() -> None:
    module = Scheduled(lambda count: 1.0 if (-2.0) ** count > 3 else -0.5 * count, 1.0)
    compiled, x = thunder.jit(module), torch.ones(2)
    for count in (1.0, 2.0, 3.0, 4.0, 5.0, 6.0):
        module.count = count
        assert torch.equal(compiled(x), module(x))
    assert thunder.cache_misses(compiled) == 3


def test_conditions_hold_in_the_order_of_the_program() -> None:
    def schedule(count: float) -> float:
        try:
            factor = 2.0 if math.exp(count) > 3 else 1.0
            return factor * math.exp(count)
        except OverflowError:
            return 7.0

    module = Scheduled(schedule, 1.0)
    compiled, x = thunder.jit(module), torch.ones(2)
    for count in (1.0, 2.0, 3.0, 0.5, 1000.0, 4.0):
        module.count = count
        assert torch.equal(compiled(x), module(x))


@pytest.mark.parametrize("sign", [-1, -1.0, -2.0])
def test_powers_of_negative_numbers_decide(sign: float) -> None:
    def program(x: torch.Tensor, count: float) -> torch.Tensor:
        return x * 2 if sign**count > 0 else x * sign ** x.shape[0]

    compiled = thunder.jit(program)
    for count, rows in ((5.0, 2), (3.0, 3), (2.0, 4), (4.0, 5), (7.0, 6), (9.0, 7)):
        x = torch.randn(rows)
        assert torch.equal(compiled(x, count), program(x, count))


def test_powers_with_a_modulus_and_large_constants() -> None:
    def program(x: torch.Tensor, number: torch.Tensor, count: float) -> torch.Tensor:
        return x * pow(int(number), 2, 5) if count < 10**400 else x

    compiled, x = thunder.jit(program), torch.ones(2)
    for count in (1.0, 2.0, 3.0, 4.0):
        assert torch.equal(compiled(x, torch.tensor(7), count), x * 4)
    assert thunder.cache_misses(compiled) == 2


def test_parameters_with_names_of_functions_in_conditions() -> None:
    def program(x: torch.Tensor, math: float, is_defined: float, bool: float) -> torch.Tensor:
        return x * 0.5**is_defined / bool if math**0.5 < 2 else x[: x.shape[0] // 3] - bool

    compiled = thunder.jit(program)
    for index in range(1, 9):
        x = torch.randn(index + 3, 2)
        args = (float(index), 1.0 + index, 2.0 - index)
        assert _outcome(compiled, x, *args).startswith(_outcome(program, x, *args))
    assert thunder.cache_misses(compiled) == 3


def test_the_report_has_the_conditions() -> None:
    module = Scheduled(lambda rate: rate if rate < 0.5 else 1 / rate, 0.1)
    compiled, x = thunder.jit(module), torch.ones(2)
    for rate in (0.1, 0.2, 0.3, 0.7, 0.9):
        module.count = rate
        assert torch.equal(compiled(x), module(x))
    assert thunder.cache_misses(compiled) == 3
    conditions = [line for entry in thunder.explain(compiled).entries if entry.sizes for line in entry.sizes.lines()]
    assert any("only where module_count < 0.5, at " in line for line in conditions)
    assert any("only where not (module_count < 0.5), at " in line for line in conditions)


def test_gradients_with_a_schedule() -> None:
    module = Scheduled(lambda count: max(0.0, 1 - count / 20) ** 2, 1.0)
    compiled = thunder.jit(module)
    for count in (1.0, 5.0, 19.0, 25.0, 30.0):
        module.count = count
        x, y = torch.randn(3, requires_grad=True), torch.randn(3)
        gradients = [torch.autograd.grad(each(x), x, y)[0] for each in (compiled, module)]
        assert torch.equal(*gradients)
    assert thunder.cache_misses(compiled) == 3


@pytest.mark.parametrize("returned", ["item", "list", "nothing"])
@pytest.mark.slow
def test_a_step_of_an_optimizer_that_reads_values(returned: str) -> None:
    def steps(wrap: Callable[[Any], Any]) -> tuple[list[Any], Any]:
        torch.manual_seed(0)
        layer = torch.nn.Linear(3, 2)
        optimizer = torch.optim.Adam(layer.parameters(), 0.05)

        def step(x: torch.Tensor) -> Any:
            optimizer.zero_grad()
            loss = layer(x).square().mean()
            loss.backward()
            if loss > 1e6:
                raise RuntimeError("diverged")
            optimizer.step()
            return {"item": loss.item, "list": lambda: [loss.item()], "nothing": lambda: None}[returned]()

        compiled = wrap(step)
        results = [compiled(torch.ones(4, 3) * index) for index in range(5)]
        return [*results, *[parameter.tolist() for parameter in layer.parameters()]], compiled

    results, compiled = steps(thunder.jit)
    assert results == steps(lambda step: step)[0]
    assert thunder.cache_misses(compiled) == 2


_LR = torch.optim.lr_scheduler
SCHEDULERS: dict[str, tuple[Callable[[Any], Any], int]] = {
    "one cycle": (lambda optimizer: _LR.OneCycleLR(optimizer, max_lr=0.1, total_steps=30), 5),
    "cosine": (lambda optimizer: _LR.CosineAnnealingLR(optimizer, 30), 4),
    "linear": (lambda optimizer: _LR.LinearLR(optimizer, total_iters=8), 5),
    "exponential": (lambda optimizer: _LR.ExponentialLR(optimizer, 0.9), 4),
}


@pytest.mark.parametrize("name", SCHEDULERS)
@pytest.mark.slow
def test_a_schedule_in_the_step(name: str) -> None:
    make, most = SCHEDULERS[name]

    def steps(wrap: Callable[[Any], Any]) -> tuple[list[Any], Any]:
        parameter = torch.nn.Parameter(torch.arange(1.0, 5.0))
        optimizer = torch.optim.AdamW([parameter], lr=0.01)
        scheduler = make(optimizer)

        def step() -> None:
            optimizer.zero_grad()
            parameter.square().sum().backward()
            optimizer.step()
            scheduler.step()

        compiled, results = wrap(step), []
        for _ in range(20):
            compiled()
            group = optimizer.param_groups[0]
            results.append((parameter.tolist(), group["lr"], group["betas"], scheduler.last_epoch))
        return results, compiled

    results, compiled = steps(lambda step: thunder.jit(step, executors=[]))
    assert results == steps(lambda step: step)[0]
    assert thunder.cache_misses(compiled) <= most
