"""The first run of a program compares what executors return with what the lines of its trace say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

import thunder
from thunder_core.errors import ExecutorError
from thunder_core.executors import Claim, DerivativePair, OperatorExecutor
from thunder_core.ir.trace import Trace
from thunder_testing.pointwise import Pointwise

LIES: dict[str, Callable[[torch.Tensor], Any]] = {
    "dtype": torch.Tensor.double,
    "shape": lambda value: value[:1],
    "strides": lambda value: value.t().contiguous().t(),
    "layout": torch.Tensor.to_sparse,
    "device": lambda value: value.to("meta"),
    "instead of a tensor": lambda value: None,
}


def lying(lie: Callable[[torch.Tensor], Any], calls: list[int] | None = None) -> OperatorExecutor:
    """Claims exp, and returns something else."""

    def run(input: torch.Tensor) -> Any:
        if calls is not None:
            calls.append(len(calls))
        return lie(torch.exp(input))

    return OperatorExecutor("lying", (Claim(torch.exp, run),))


def program(x: torch.Tensor) -> torch.Tensor:
    y = torch.exp(x.sin())  # the line to name
    return y * 2


@pytest.mark.parametrize("problem", LIES)
def test_what_an_executor_returns_is_what_its_line_says(problem: str) -> None:
    compiled = thunder.jit(program, executors=[lying(LIES[problem])])
    for _ in range(2):
        with pytest.raises(ExecutorError, match=problem) as caught:
            compiled(torch.randn(3, 4))
        message = str(caught.value)
        assert "'lying'" in message
        assert "lying_call(" in message or "run(" in message
        assert "in program: y = torch.exp(x.sin())" in message


@pytest.mark.parametrize("later", [[], [Pointwise()]], ids=["reference", "fusion"])
def test_no_later_executor_is_blamed(later: list[Any]) -> None:
    compiled = thunder.jit(program, executors=[lying(torch.Tensor.double), *later])
    with pytest.raises(ExecutorError, match="executor 'lying' returned dtype"):
        compiled(torch.randn(3, 4))


def test_only_the_first_run_that_comes_to_its_end_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THUNDER_VERIFY", "0")
    calls: list[int] = []

    def lie(value: torch.Tensor) -> torch.Tensor:
        if len(calls) == 1:
            raise MemoryError("the first run fails")
        return value.double() if len(calls) > 2 else value

    compiled = thunder.jit(program, executors=[lying(lie, calls)])
    x = torch.randn(3, 4)
    with pytest.raises(MemoryError):
        compiled(x)
    assert compiled(x).dtype is torch.float32
    assert compiled(x).dtype is torch.float64
    assert thunder.cache_misses(compiled) == 1


def test_verification_checks_each_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THUNDER_VERIFY", "1")
    calls: list[int] = []
    compiled = thunder.jit(program, executors=[lying(lambda v: v.double() if len(calls) > 2 else v, calls)])
    x = torch.randn(3, 4)
    compiled(x), compiled(x)
    with pytest.raises(ExecutorError, match="dtype"):
        compiled(x)


@pytest.mark.parametrize(
    ("shape", "harmless"),
    [
        ((3, 1), lambda value: value.as_strided(value.shape, (1, 7))),
        ((0, 3), lambda value: value.as_strided(value.shape, (5, 1))),
        ((1, 1), lambda value: value.as_strided(value.shape, (9, 9))),
    ],
)
def test_strides_that_decide_nothing_may_differ(shape: tuple[int, ...], harmless: Callable[..., Any]) -> None:
    x = torch.randn(shape)
    compiled = thunder.jit(program, executors=[lying(harmless)])
    torch.testing.assert_close(compiled(x), program(x))


class LyingRegions(Pointwise):
    """Regions whose last result has another dtype."""

    def fuse(self, region: Trace) -> Callable[..., Sequence[Any]] | str:
        function = super().fuse(region)
        if isinstance(function, str):
            return function

        def fused(*inputs: torch.Tensor) -> Sequence[Any]:
            *others, last = function(*inputs)
            return [*others, last.double()]

        return fused


def test_regions_name_the_line_inside() -> None:
    compiled = thunder.jit(program, executors=[LyingRegions()])
    with pytest.raises(ExecutorError, match="returned dtype") as caught:
        compiled(torch.randn(3, 4))
    assert "torch.mul(" in str(caught.value)
    assert "_region_1" in str(caught.value)
    assert "torch.library.opcheck" in str(caught.value)
    assert "in program: return y * 2" in str(caught.value)


class PairLies:
    """An executor's derivative of exp, of which one function lies."""

    def __init__(self, place: str) -> None:
        self.place = place
        claim = Claim(torch.exp, torch.exp, derivative=DerivativePair(self.forward, self.backward, self.fake))
        self.executor = OperatorExecutor("lying", (claim,))

    def _lie(self, place: str, value: torch.Tensor) -> torch.Tensor:
        return value.double() if place == self.place else value

    def fake(self, input: torch.Tensor) -> Any:
        return torch.exp(input), (torch.empty_like(input),)

    def forward(self, input: torch.Tensor) -> Any:
        output = torch.exp(input)
        return self._lie("output", output), (self._lie("residual", output.clone()),)

    def backward(self, residuals: Any, cotangents: Any, wanted: Any) -> Any:
        return (self._lie("gradient", cotangents[0] * residuals[0].to(cotangents[0].dtype)),)


@pytest.mark.parametrize("place", ["output", "residual", "gradient", "nowhere"])
def test_forward_and_backward_of_pairs(place: str) -> None:
    compiled = thunder.jit(program, executors=[PairLies(place).executor])
    x = torch.randn(3, 4, requires_grad=True)

    def step() -> None:
        compiled(x).sum().backward()

    if place == "nowhere":
        step()
        torch.testing.assert_close(x.grad, torch.autograd.grad(program(x).sum(), x)[0])
        return
    with pytest.raises(ExecutorError, match="executor 'lying' returned dtype"):
        step()


def test_each_variant_of_backward_is_checked() -> None:
    def two(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.cos(), torch.exp(x) * 2

    compiled = thunder.jit(two, executors=[PairLies("gradient").executor])
    x = torch.randn(3, 4, requires_grad=True)
    compiled(x)[0].sum().backward()  # without the line
    for output in (1, slice(None)):
        results = compiled(x)
        chosen = results[output]
        with pytest.raises(ExecutorError, match="dtype"):
            sum(item.sum() for item in (chosen if isinstance(chosen, tuple) else (chosen,))).backward()


def test_the_report_has_what_it_cost() -> None:
    def stages(**options: Any) -> dict[str, Any]:
        compiled = thunder.jit(program, **options)
        compiled(torch.randn(3, 4))
        return {stage.name: stage for stage in thunder.explain(compiled).entries[0].stages}

    checks = stages(executors=[lying(lambda value: value)])["checks of results"]
    assert checks.lines == 1
    assert checks.seconds > 0
    assert "checks of results" not in stages(executors=[])


@pytest.mark.slow
def test_a_program_is_freed_with_its_last_reference() -> None:
    import gc
    import weakref

    from thunder_core.ir.program import compile_trace

    compiled = thunder.jit(program, executors=[lying(lambda value: value)])
    compiled(torch.randn(3, 4))
    gc.collect()
    for runs in range(3):
        function = compile_trace(thunder.last_traces(compiled)[-1])
        for _ in range(runs):
            function(torch.randn(3, 4))
        gone = weakref.ref(function)
        gc.disable()
        try:
            del function
            assert gone() is None
        finally:
            gc.enable()
