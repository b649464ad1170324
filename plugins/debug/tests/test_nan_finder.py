"""The line that makes a NaN."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import thunder
from thunder_core.executors import Claim, OperatorExecutor
from thunder_plugin_debug import DebugWarning, Finding, NanFinder, NonFiniteError


def found(function: Callable[..., Any], *arguments: Any, **options: Any) -> Finding:
    """What the finder raises for a call of ``function``, and for its backward where it has one."""
    compiled = thunder.jit(function, transforms=[NanFinder(**options)])
    with pytest.raises(NonFiniteError) as raised:
        run(compiled, *arguments)
    return raised.value.finding


def run(function: Callable[..., Any], *arguments: Any) -> Any:
    result = function(*arguments)
    if isinstance(result, torch.Tensor) and result.requires_grad:
        result.sum().backward()
    return result


def passes(function: Callable[..., Any], *arguments: Any, **options: Any) -> None:
    """The finder has nothing to say, and the result is that of eager."""
    finder = NanFinder(**options)
    result = run(thunder.jit(function, transforms=[finder]), *arguments)
    torch.testing.assert_close(result, function(*arguments), equal_nan=True)
    assert finder.findings == ()


def logarithm(x: torch.Tensor, shift: float) -> torch.Tensor:
    y = torch.relu(x) - shift
    return torch.log(y) * 3


def test_the_line_that_makes_it() -> None:
    x = torch.tensor([1.0, 2.0, -5.0, 0.25])
    finding = found(logarithm, x, 0.5)
    assert (finding.line.operation, finding.kind, finding.came_in) == ("torch.log", "NaN", False)
    assert (finding.value, finding.count, finding.total) == ("t2", 2, 4)
    assert finding.ranges == ("t1: float32 (4,), from -0.5 to 1.5",)
    assert finding.line.location is not None
    assert finding.line.location.text == "return torch.log(y) * 3"


def test_the_message() -> None:
    compiled = thunder.jit(logarithm, transforms=[NanFinder()])
    with pytest.raises(NonFiniteError) as raised:
        compiled(torch.zeros(2), 1.0)
    lines = str(raised.value).splitlines()
    assert lines[0] == "NaN produced by torch.log, run by reference in inference, in 2 of 2 elements of t2"
    assert lines[1] == "  argument t1: float32 (2,), from -1 to -1"
    assert lines[2].startswith("  at ")
    assert lines[2].endswith("in logarithm: return torch.log(y) * 3")


def test_finite_programs_pass() -> None:
    passes(logarithm, torch.tensor([1.0, 2.0]), 0.5)
    passes(lambda x: (x.long() + 1, x > 0, x.sin()), torch.ones(3))


def test_kernels_of_executors_are_suspects() -> None:
    broken = OperatorExecutor("broken", (Claim(F.gelu, run=lambda x: F.gelu(x) * math.nan),))
    compiled = thunder.jit(F.gelu, executors=[broken], transforms=[NanFinder()])
    with pytest.raises(NonFiniteError, match="run by broken") as raised:
        compiled(torch.ones(3))
    assert "bisect" in raised.value.advice[0]


def shifted_logarithm(x: torch.Tensor) -> torch.Tensor:
    y = torch.sin(x) - 2
    y = torch.log(y)
    return torch.exp(y)


def test_fused_regions(fusion: Any) -> None:
    """PyTorch runs the lines of the region one by one to find the one."""
    compiled = thunder.jit(shifted_logarithm, executors=[fusion()], transforms=[NanFinder()])
    with pytest.raises(NonFiniteError) as raised:
        compiled(torch.ones(3))
    finding = raised.value.finding
    assert finding.line.operation == "torch.sin + torch.sub + torch.log + torch.exp"
    assert finding.inside == "the first operation that produces one is torch.log"
    assert finding.location is not None
    assert finding.location.text == "y = torch.log(y)"
    assert "the first operation that produces one is torch.log" in str(raised.value)


def test_a_fused_region_that_is_wrong(fusion: Any) -> None:
    wrong = fusion("torch.exp", error=math.nan)
    compiled = thunder.jit(lambda x: torch.exp(torch.sin(x)), executors=[wrong], transforms=[NanFinder()])
    with pytest.raises(NonFiniteError, match="PyTorch produces none from the same arguments"):
        compiled(torch.ones(3))


@pytest.mark.parametrize("inf", [False, True])
def test_made_in_backward_alone(inf: bool) -> None:
    """The square root of zero is finite, its derivative is not."""

    def length(x: torch.Tensor) -> torch.Tensor:
        return torch.sqrt((x * 0.0).square().sum())

    finding = found(length, torch.ones(3, requires_grad=True), inf=inf)
    assert finding.line.phase == "backward"
    assert finding.kind == ("infinity" if inf else "NaN")
    assert not finding.came_in
    assert finding.line.location is not None
    assert finding.line.location.text == "return torch.sqrt((x * 0.0).square().sum())"


def test_arguments_that_have_it() -> None:
    x = torch.ones(4)
    x[1] = math.nan
    finding = found(logarithm, x, 0.5)
    assert (finding.came_in, finding.value, finding.count, finding.line.operation) == (True, "x", 1, "torch.relu")


def test_parameters_that_have_it() -> None:
    model = nn.Linear(3, 2)
    model.bias.data.fill_(math.nan)
    finding = found(model, torch.ones(2, 3))
    assert (finding.came_in, finding.value, finding.line.phase) == (True, "module_bias", "forward")


def test_gradients_that_come_in() -> None:
    compiled = thunder.jit(torch.sin, transforms=[NanFinder()])
    result = compiled(torch.ones(2, requires_grad=True))
    with pytest.raises(NonFiniteError) as raised:
        result.backward(torch.tensor([1.0, math.nan]))
    finding = raised.value.finding
    assert (finding.came_in, finding.line.phase, finding.count) == (True, "backward", 1)
    assert "the operations after the compiled program" in str(raised.value)


def hidden(x: torch.Tensor) -> torch.Tensor:
    return torch.where(torch.isnan(x), 0.0, x)


def test_arguments_are_checked_where_nothing_comes_of_them_only_if_asked() -> None:
    x = torch.tensor([1.0, math.nan])
    passes(hidden, x)
    finding = found(hidden, x, inputs=True)
    assert (finding.came_in, finding.value, finding.line.operation) == (True, "x", "torch.isnan")


def masked_softmax(scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return torch.softmax(scores.masked_fill(mask, -math.inf), -1)


@pytest.mark.parametrize("inf", [False, True])
def test_infinities_that_are_meant(inf: bool) -> None:
    """Written into the program as numbers, passed on by lines, or given to it."""
    mask = torch.tensor([[False, True], [False, False]])
    passes(masked_softmax, torch.randn(2, 2), mask, inf=inf)
    passes(lambda x: torch.full_like(x, -math.inf).triu(1) + x, torch.randn(2, 2), inf=inf)
    passes(lambda x: x.exp(), torch.tensor([-math.inf, 0.0]), inf=inf)
    passes(lambda x: x + 1, torch.tensor([math.inf, 0.0]), inf=inf)


def test_a_row_without_anything_to_attend_to() -> None:
    """A NaN from infinities that are meant: the softmax made it."""
    finding = found(masked_softmax, torch.randn(2, 2), torch.tensor([[True, True], [False, False]]))
    assert (finding.line.operation, finding.count) == ("torch.softmax", 2)
    assert finding.ranges[0].endswith("2 infinity")


def test_infinities() -> None:
    x = torch.tensor([1.0, 200.0])
    passes(lambda x: torch.exp(x), x)
    finding = found(lambda x: torch.exp(x), x, inf=True)
    assert (finding.kind, finding.line.operation, finding.count) == ("infinity", "torch.exp", 1)
    finding = found(lambda x: 1 / x, torch.tensor([math.inf]), inf=True, inputs=True)
    assert (finding.kind, finding.came_in) == ("infinity", True)


@pytest.fixture
def _filled_memory() -> Iterator[None]:
    """PyTorch writes NaNs into new memory, as it does to make what reads it too early deterministic."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("_filled_memory")
def test_memory_without_values() -> None:
    """What `torch.empty` gives is not made by it, nor by what moves it."""

    def filled(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.empty_like(x).t()
        z = x.new_empty(2, 3) * 1
        y.copy_(x.t())
        return y, z

    assert filled(torch.ones(2, 3))[1].isnan().all()
    passes(filled, torch.ones(2, 3))


def test_in_place() -> None:
    """The line that writes it is named, also where the memory is an argument; and what it found there came in."""

    def divided(x: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
        x.div_(by)
        return x + 1

    finding = found(divided, torch.zeros(2), torch.zeros(2))
    assert (finding.line.operation, finding.came_in) == ("div_", False)
    finding = found(divided, torch.tensor([math.nan, 1.0]), torch.ones(2))
    assert (finding.line.operation, finding.came_in, finding.value) == ("div_", True, "x")


def test_what_a_line_wrote_did_not_come_in() -> None:
    finder = NanFinder(action="warn", inputs=True)

    def divided(x: torch.Tensor) -> torch.Tensor:
        row = x[0]
        row.div_(row)
        return x + 1

    compiled = thunder.jit(divided, transforms=[finder])
    with pytest.warns(DebugWarning):
        compiled(torch.zeros(2, 2))
    assert [(finding.line.operation, finding.came_in) for finding in finder.findings] == [("div_", False)]


def test_warnings() -> None:
    """One for each line, with the values of eager; lines that pass it on are not mentioned."""
    finder = NanFinder(action="warn")
    compiled = thunder.jit(logarithm, transforms=[finder])
    x = torch.tensor([0.0, 2.0])
    with pytest.warns(DebugWarning, match="NaN produced by torch.log") as caught:
        result = compiled(x, 0.5)
    assert len(caught) == 1
    torch.testing.assert_close(result, logarithm(x, 0.5), equal_nan=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled(x, 0.5)
    assert [finding.line.operation for finding in finder.findings] == ["torch.log"]


def test_patterns_for_lines_that_may() -> None:
    passes(logarithm, torch.zeros(2), 1.0, exclude=("torch.log",))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16, torch.complex64], ids=str)
def test_dtypes(dtype: torch.dtype) -> None:
    finding = found(lambda x: x / (x - x), torch.zeros(3, dtype=dtype))
    assert (finding.count, finding.line.operation) == (3, "torch.div")


def test_sparse_results() -> None:
    finding = found(lambda x: x.to_sparse() * math.inf * 0.0, torch.tensor([[1.0, 0.0], [0.0, 2.0]]))
    assert finding.line.operation == "torch.mul"


def test_wrong_option() -> None:
    with pytest.raises(thunder.ThunderError, match="use one of 'error', 'warn'"):
        NanFinder(action="log")  # type: ignore[arg-type]
