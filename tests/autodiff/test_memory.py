"""The option ``memory``: the predicted peak is the measured one, and gradients are those of eager."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest
import torch
from torch import nn

import thunder
from benchmarks.memory import peak_of_call
from thunder._inspection import compiled_program
from thunder.report.memory_report import MemoryReport
from thunder_core.autodiff.partitioning.memory import peak_of_executable
from thunder_core.ir.bound_symbol import BoundSymbol, tensor_outputs_of
from thunder_core.ir.builder import Builder
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.symbol import Symbol, Tag
from thunder_core.ir.trace import Trace
from thunder_core.passes.transform import Place, Transform, TransformContext
from thunder_core.symbols.registry import registry


class Block(nn.Module):
    def __init__(self, width: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.down(torch.sigmoid(torch.nn.functional.gelu(self.up(self.norm(x)))))
        return x + self.dropout(y)


def blocks(count: int = 4, dropout: float = 0.0) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    return nn.Sequential(*[Block(16, dropout) for _ in range(count)]), (torch.randn(256, 16),)


def compiled(program: Any, memory: int | str) -> Any:
    return thunder.jit(program, executors=[], memory=memory)


def step(model: Any, arguments: tuple[torch.Tensor, ...]) -> None:
    model.zero_grad()
    torch.manual_seed(1)
    result = model(*arguments)  # alive during backward
    result.sum().backward()


def gradients(model: nn.Module) -> list[torch.Tensor]:
    found = [parameter.grad for parameter in model.parameters()]
    assert all(gradient is not None for gradient in found)
    return [gradient for gradient in found if gradient is not None]


def least(program: Any, *arguments: torch.Tensor) -> int:
    with pytest.raises(thunder.MemoryBudgetError) as raised:
        compiled(program, 1)(*arguments)
    return raised.value.least


def report_of(program: Any) -> MemoryReport:
    differentiated = compiled_program(program).entries[-1].program.differentiated
    assert differentiated is not None
    report = MemoryReport.of(differentiated)
    assert report is not None
    return report


def measured(call: Callable[[], None], model: nn.Module) -> int:
    """The bytes that a step allocates at its peak, without gradients of earlier ones. It was called before."""
    model.zero_grad()
    return peak_of_call(call)


@pytest.mark.slow
def test_ten_budgets() -> None:
    """`benchmarks.memory_budgets` measures those of a Llama."""
    model, arguments = blocks(6)
    step(model, arguments)
    expected = gradients(model)
    unlimited = compiled(model, "1 TB")
    step(unlimited, arguments)
    lowest, highest = least(model, *arguments), report_of(unlimited).usual
    peaks, times = [], []
    for number in range(10):
        budget = lowest + (highest - lowest) * number // 9
        limited = compiled(model, budget)
        step(limited, arguments)
        assert all(map(torch.equal, gradients(model), expected))
        report = report_of(limited)
        peak = report.inputs + measured(lambda limited=limited: step(limited, arguments), model)  # type: ignore[misc]
        assert abs(peak - report.peak) <= 0.001 * report.peak
        assert report.peak <= budget
        peaks.append(peak)
        times.append(report.added)
    assert peaks == sorted(peaks)
    assert times == sorted(times, reverse=True)
    assert (times[-1], peaks[-1] > 2 * peaks[0]) == (0.0, True)


@pytest.mark.slow
def test_random_numbers_are_drawn_once() -> None:
    model, arguments = blocks(dropout=0.5)
    step(model, arguments)
    expected = gradients(model)
    limited = compiled(model, least(model, *arguments))
    step(limited, arguments)
    assert all(map(torch.equal, gradients(model), expected))
    assert report_of(limited).added > 0


@pytest.mark.parametrize("policy", ["none", "cheap", "aggressive", {"budget": 0.5}])
def test_the_policy_is_where_the_choice_starts(policy: Any) -> None:
    model, arguments = blocks()
    limited = thunder.jit(model, executors=[], recompute=policy, memory="1 GB")
    plain = thunder.jit(model, executors=[], recompute=policy if isinstance(policy, str) else "cheap")
    for each in (limited, plain):
        step(each, arguments)
    assert str(thunder.last_backward_traces(limited)[-1]) == str(thunder.last_backward_traces(plain)[-1])


def test_results_that_the_caller_keeps_count_to_the_end() -> None:
    """A result that backward reads is not free after backward deleted it."""
    x = torch.randn(1000, requires_grad=True)
    program = compiled(lambda x: torch.exp(x), "1 MB")
    program(x).sum().backward()
    report = report_of(program)
    assert report.inputs == 4000
    assert report.peak == 4 * 4000  # x, its exponential, the cotangent and the gradient


def test_values_of_the_last_operation_end_with_forward() -> None:
    x = torch.randn(1000, requires_grad=True)
    program = compiled(lambda x: (x * 2 + 1).sum(), "1 MB")
    program(x).backward()
    assert report_of(program).peak == 3 * 4000 + 4 - 4  # in forward: x, and the results of two operations


def test_what_cannot_fit_is_an_error_that_states_the_least() -> None:
    model, arguments = blocks()
    lowest = least(model, *arguments)
    step(compiled(model, lowest), arguments)
    with pytest.raises(thunder.MemoryBudgetError) as raised:
        compiled(model, lowest - 1)(*arguments)
    inputs = sum(4 * each.numel() for each in (*model.parameters(), *arguments))
    message = str(raised.value)
    assert message.startswith(f"memory={lowest - 1}, but the program needs at least {lowest:,} bytes")
    assert f"{inputs:,} bytes are parameters, buffers and other inputs" in message
    assert f"set memory to at least {lowest}, or" in message
    assert isinstance(raised.value, RuntimeError)


def test_a_program_without_gradients_is_checked() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return ((x + 1) * 2).sum()

    x = torch.ones(1000)
    assert compiled(program, 3 * 4000)(x) == 4000
    with pytest.raises(thunder.MemoryBudgetError, match="at its peak, 4,000 bytes are"):
        compiled(program, 3 * 4000 - 1)(x)


@dataclass(frozen=True)
class Workspace(Transform):
    """Allocates more memory beside each op than the partition knew of."""

    name: ClassVar[str] = "workspace"
    place: ClassVar[Place] = Place.LAST
    bytes: int = 0

    def run(self, trace: Trace, context: TransformContext) -> Trace:
        builder, ops = Builder.of(trace), []
        for op in trace.symbols:
            ops.append(op)
            for proxy in tensor_outputs_of(op)[:1]:
                extra = replace(
                    proxy, name=builder.name("extra"), storage=builder.new_storage(), dtype=torch.uint8, offset=0,
                    shape=(self.bytes,), stride=(1,), requires_grad=False,
                )  # fmt: skip
                zeros = registry.symbol_of(torch.zeros)
                ops.append(BoundSymbol(zeros, ((self.bytes,),), {"dtype": torch.uint8}, extra))
        return trace.with_symbols(ops, self.name)


@pytest.mark.slow
def test_a_program_that_needs_more_than_predicted_gets_a_smaller_budget() -> None:
    model, arguments = blocks()
    unlimited = compiled(model, "1 TB")
    step(unlimited, arguments)
    usual, lowest = report_of(unlimited).usual, least(model, *arguments)
    limited = thunder.jit(model, executors=[], transforms=[Workspace(200_000)], memory=usual)
    step(limited, arguments)
    report = report_of(limited)
    assert report.budget == usual
    assert lowest < report.peak <= usual
    assert report.added > 0
    passes = [stage.name for stage in thunder.explain(limited).entries[-1].stages]
    assert passes.count("Partition") == 1
    with pytest.raises(thunder.MemoryBudgetError) as raised:
        thunder.jit(model, executors=[], transforms=[Workspace(200_000)], memory=lowest)(*arguments)
    assert lowest < raised.value.least <= lowest + 200_000


def test_a_program_that_is_one_operation_needs_what_its_parts_need() -> None:
    """As a captured program is."""
    model, arguments = blocks()
    program = compiled(model, "1 TB")
    step(program, arguments)
    differentiated = compiled_program(program).entries[-1].program.differentiated
    assert differentiated is not None

    def whole(trace: Trace) -> Trace:
        symbol = Symbol("whole", lambda *values: values, tags=frozenset({Tag.LOCAL, Tag.RUNS_PARTS}))
        outputs = [proxy for proxy in trace.output if isinstance(proxy, TensorProxy)]
        return trace.with_symbols([BoundSymbol(symbol, trace.inputs, {}, outputs, parts=trace.symbols)], "whole")

    forward, backward = differentiated.forward_trace, differentiated.backward_trace
    expected, _, _ = peak_of_executable(differentiated.joint, forward, backward)
    found, _, _ = peak_of_executable(differentiated.joint, whole(forward), whole(backward))
    assert found == expected


@pytest.mark.slow
def test_the_report_has_the_budget_and_the_prediction() -> None:
    model, arguments = blocks()
    budget = least(model, *arguments)
    limited = compiled(model, budget)
    step(limited, arguments)
    lines = str(thunder.explain(limited).training).splitlines()
    (line,) = [line for line in lines if line.startswith("memory: ")]
    assert line.startswith(f"memory: {budget / 1024:.1f} KiB of {budget / 1024:.1f} KiB (predicted); estimated time +")
    assert line in str(thunder.explain(limited))
    plain = thunder.jit(model, executors=[])
    step(plain, arguments)
    assert "memory: " not in thunder.explain(plain).details()


@pytest.mark.slow
def test_a_whole_step_is_checked() -> None:
    model, (x,) = blocks()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step_with(memory: int) -> torch.Tensor:
        return thunder.train_step(model, None, optimizer, executors=[], memory=memory)(x)

    class Loss(nn.Module):
        def __init__(self, model: nn.Module) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.model(x).square().mean()

    model = Loss(model)
    with pytest.raises(thunder.MemoryBudgetError, match="at its peak, ") as raised:
        step_with(1)
    assert step_with(raised.value.least).shape == ()
    with pytest.raises(thunder.MemoryBudgetError):
        step_with(raised.value.least - 1)
