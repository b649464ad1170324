"""Executors as tables of claims: which calls they run, what they say to the others, and what comes out."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import thunder
from thunder_core.executors import Claim, DerivativePair, OperatorExecutor

CALLS: list[str] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    CALLS.clear()


def gelu(input: torch.Tensor, *, approximate: str = "none") -> torch.Tensor:
    CALLS.append("gelu")
    return F.gelu(input, approximate=approximate)


def exact_only(input: Any, *, approximate: str = "none") -> bool | str:
    return approximate == "none" or f"approximate={approximate!r} is not implemented"


def small_only(input: Any, *, approximate: str = "none") -> bool | str:
    return input.numel <= 16 or f"it has {input.numel} elements, more than 16"


def add(input: torch.Tensor, other: Any, *, alpha: float = 1) -> torch.Tensor:
    CALLS.append("add")
    return torch.add(input, other, alpha=alpha)


GELU = OperatorExecutor("mine", (Claim(F.gelu, gelu, exact_only),))


@torch.library.custom_op("claims::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


doubled.register_fake(torch.empty_like)


def decisions(program: Any) -> Any:
    return thunder.explain(program).entries[-1].decisions


def test_what_fits_is_run_and_the_rest_declined_with_its_reason() -> None:
    x = torch.randn(3, 4)
    program = thunder.jit(lambda x: F.gelu(x) + F.gelu(x, approximate="tanh"), executors=[GELU])
    torch.testing.assert_close(program(x), F.gelu(x) + F.gelu(x, approximate="tanh"))
    assert CALLS == ["gelu"]
    first, second, third = decisions(program)
    assert (first.executor, first.declined) == ("mine", ())
    assert (second.executor, second.declined) == ("reference", (("mine", "approximate='tanh' is not implemented"),))
    assert (third.executor, third.declined) == ("reference", ())
    assert "test_operator_executor.py" in second.location
    report = str(thunder.explain(program).decisions)
    assert "not mine: approximate='tanh' is not implemented" in report
    assert "tests.executors.test_operator_executor.gelu(x)" in str(thunder.last_traces(program)[-1])


@pytest.mark.parametrize(
    "symbol", [F.gelu, "torch.nn.functional.gelu", torch._C._nn.gelu], ids=["f", "name", "builtin"]
)
def test_ways_to_say_what_is_claimed(symbol: Any) -> None:
    program = thunder.jit(lambda x: F.gelu(x), executors=[OperatorExecutor("mine", (Claim(symbol, gelu),))])
    program(torch.randn(3))
    assert CALLS == ["gelu"]


@pytest.mark.parametrize(
    "symbol", [doubled, torch.ops.claims.doubled, torch.ops.claims.doubled.default], ids=["f", "packet", "overload"]
)
def test_ways_to_say_that_an_operator_of_a_library_is_claimed(symbol: Any) -> None:
    claim = Claim(symbol, lambda x: CALLS.append("doubled") or x + x)
    program = thunder.jit(lambda x: doubled(x), executors=[OperatorExecutor("mine", (claim,))])
    torch.testing.assert_close(program(torch.ones(3)), torch.full((3,), 2.0))
    assert CALLS == ["doubled"]


def test_a_write_of_a_claimed_operation_returns_a_new_value() -> None:
    """In-place calls are restored, except those whose operation an executor runs."""
    program = thunder.jit(lambda x: x.sin().add_(1), executors=[OperatorExecutor("mine", (Claim(torch.add, add),))])
    x = torch.randn(3)
    torch.testing.assert_close(program(x), x.sin() + 1)
    assert CALLS == ["add"]


@pytest.mark.parametrize("symbol", [torch.add, torch.Tensor.add, "torch.add"], ids=["function", "method", "name"])
def test_all_spellings_are_one_operation(symbol: Any) -> None:
    executor = OperatorExecutor("mine", (Claim(symbol, add),))
    x = torch.randn(3)
    program = thunder.jit(lambda x: (x + 1, x.add(x), torch.add(x, x, alpha=2), 1 + x), executors=[executor])
    torch.testing.assert_close(program(x), (x + 1, x + x, x + 2 * x, x + 1))
    assert CALLS == ["add"] * 4 or CALLS == ["add"] * 3  # `1 + x` and `x + 1` are one line


def test_methods() -> None:
    executor = OperatorExecutor(
        "mine", (Claim(torch.Tensor.view, lambda x, *shape: CALLS.append("view") or x.view(*shape)),)
    )
    program = thunder.jit(lambda x: x.view(2, 3) * 2, executors=[executor])
    torch.testing.assert_close(program(torch.ones(6)), torch.full((2, 3), 2.0))
    assert CALLS == ["view"]


def test_of_several_claims_the_first_that_fits() -> None:
    claims = (
        Claim(F.gelu, gelu, small_only),
        Claim(F.gelu, lambda input: CALLS.append("large") or F.gelu(input), exact_only),
    )
    program = thunder.jit(lambda x, y: (F.gelu(x), F.gelu(y)), executors=[OperatorExecutor("mine", claims)])
    program(torch.randn(4), torch.randn(32))
    assert CALLS == ["gelu", "large"]
    rejected = OperatorExecutor("mine", (Claim(F.gelu, gelu, small_only), Claim(F.gelu, gelu, lambda *a, **k: False)))
    program = thunder.jit(lambda y: F.gelu(y), executors=[rejected])
    program(torch.randn(32))
    assert decisions(program)[0].declined == (("mine", "it has 32 elements, more than 16; its check returned False"),)


def test_a_check_without_result_is_a_mistake() -> None:
    silent = OperatorExecutor("mine", (Claim(F.gelu, gelu, lambda *args, **kwargs: None),))
    program = thunder.jit(lambda y: F.gelu(y), executors=[silent])
    with pytest.warns(thunder.ExecutorWarning, match=r"mine declines .*gelu: its check returned None; return True"):
        program(torch.randn(4))
    assert decisions(program)[0].executor == "reference"


@pytest.mark.parametrize("run", [partial(gelu, approximate="tanh"), partial(gelu)], ids=["option", "nothing bound"])
def test_a_partial_function_runs(run: Any) -> None:
    program = thunder.jit(lambda x: F.gelu(x), executors=[OperatorExecutor("mine", (Claim(F.gelu, run),))])
    x = torch.randn(4)
    torch.testing.assert_close(program(x), F.gelu(x, approximate=run.keywords.get("approximate", "none")))
    assert CALLS == ["gelu"]


def test_an_executor_below_takes_what_one_above_declines() -> None:
    other = OperatorExecutor("other", (Claim(F.gelu, lambda x, **k: CALLS.append("other") or F.gelu(x, **k)),))
    program = thunder.jit(lambda x: F.gelu(x, approximate="tanh"), executors=[GELU, other])
    program(torch.randn(3))
    assert CALLS == ["other"]
    (line,) = decisions(program)
    assert (line.executor, line.declined) == ("other", (("mine", "approximate='tanh' is not implemented"),))


def test_parts_of_a_composite_are_offered_when_nobody_takes_the_composite() -> None:
    def layer_norm(input: Any, shape: Any, weight: Any, bias: Any, eps: float) -> Any:
        CALLS.append("native")
        return torch.ops.aten.native_layer_norm(input, shape, weight, bias, eps)

    parts = OperatorExecutor("parts", (Claim(torch.ops.aten.native_layer_norm, layer_norm),))
    x = torch.randn(3, 4)
    program = thunder.jit(lambda x: F.layer_norm(x, (4,)), executors=[parts])
    torch.testing.assert_close(program(x), F.layer_norm(x, (4,)))
    assert CALLS == ["native"]
    (line,) = decisions(program)
    assert line.symbol == "torch.nn.functional.layer_norm"
    assert [(part.symbol, part.executor) for part in line.parts] == [
        ("torch.ops.aten.native_layer_norm.default", "parts")
    ]
    whole = OperatorExecutor(
        "whole", (Claim(F.layer_norm, lambda *args: CALLS.append("whole") or F.layer_norm(*args)),)
    )
    program = thunder.jit(lambda x: F.layer_norm(x, (4,)), executors=[parts, whole])
    program(x)
    assert CALLS == ["native", "whole"]  # the composite is offered to everybody first


def half(input: torch.Tensor) -> torch.Tensor:
    CALLS.append("half")
    return input * 0.5


def half_forward(input: torch.Tensor) -> Any:
    CALLS.append("forward")
    return input.clone(), ()


def half_backward(residuals: Any, cotangents: Any, wanted: Any) -> Any:
    CALLS.append("backward")
    return (cotangents[0] * 7.0,)


def test_a_pair_differentiates_and_a_missing_run_is_its_forward() -> None:
    executor = OperatorExecutor("mine", (Claim(torch.abs, derivative=DerivativePair(half_forward, half_backward)),))
    program = thunder.jit(lambda x: torch.abs(x).sum(), executors=[executor])
    x = torch.rand(3, requires_grad=True)
    loss = program(x)
    CALLS.clear()  # the functions were tried on fake tensors
    loss.backward()
    torch.testing.assert_close(x.grad, torch.full((3,), 7.0))
    with torch.no_grad():
        torch.testing.assert_close(program(x), x.sum())
    assert CALLS == ["backward", "forward"]


def test_a_pair_chosen_by_the_arguments() -> None:
    def choose(input: Any) -> DerivativePair | None:
        return DerivativePair(half_forward, half_backward) if input.ndim == 1 else None

    executor = OperatorExecutor("mine", (Claim(torch.abs, torch.abs, derivative=choose),))
    program = thunder.jit(lambda x, y: torch.abs(x).sum() + torch.abs(y).sum(), executors=[executor])
    x, y = torch.rand(3, requires_grad=True), torch.rand(3, 2, requires_grad=True)
    program(x, y).backward()
    torch.testing.assert_close((x.grad, y.grad), (torch.full((3,), 7.0), torch.ones(3, 2)))
    joint = [line for line in decisions(program) if line.phase == "joint"]
    assert [(line.executor, line.declined) for line in joint] == [("mine", ())]
    sources = {(item.symbol, item.source) for item in thunder.explain(program).entries[0].training.derivatives}
    assert {("torch.abs", "mine"), ("torch.abs", "PyTorch's autograd")} <= sources


@pytest.mark.parametrize("strict", [False, True])
def test_a_check_that_raises(strict: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def check(input: Any, **options: Any) -> bool:
        raise KeyError("oops")

    monkeypatch.setenv("THUNDER_STRICT", str(int(strict)))
    program = thunder.jit(lambda x: F.gelu(x), executors=[OperatorExecutor("mine", (Claim(F.gelu, gelu, check),))])
    if strict:
        with pytest.raises(
            thunder.ExecutorError, match=r"mine: torch.nn.functional.gelu: its check failed with KeyError"
        ):
            program(torch.randn(3))
    else:
        with pytest.warns(
            thunder.ExecutorWarning, match="its check failed with KeyError: 'oops'; a check gets proxies"
        ):
            program(torch.randn(3))


def test_unknown_operations_are_named() -> None:
    executor = OperatorExecutor("mine", (Claim("torch.nn.functional.no_such_thing", gelu),))
    with pytest.raises(
        thunder.ExecutorError, match=r"claims 'torch.nn.functional.no_such_thing', and there is no such"
    ):
        thunder.jit(lambda x: F.gelu(x), executors=[executor])(torch.randn(3))


@pytest.mark.parametrize("arguments", [{}, {"rewrite": half, "run": half}])
def test_claims_without_sense(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="claim of"):
        Claim(torch.abs, **arguments)


def test_a_python_function_is_no_operation() -> None:
    executor = OperatorExecutor("mine", (Claim(half, half),))
    with pytest.raises(thunder.ExecutorError, match=r"claims half, a Python function(.|\n)*symbols\.recorded"):
        thunder.jit(lambda x: half(x), executors=[executor])(torch.ones(2))


def test_claims_are_a_tuple() -> None:
    with pytest.raises(TypeError, match=r"claims of 'mine' must be a tuple, not one Claim; write \(Claim"):
        OperatorExecutor("mine", Claim(torch.abs, torch.abs))  # type: ignore[arg-type]


def test_in_place_operations_are_claimed_by_their_functional_form() -> None:
    executor = OperatorExecutor("mine", (Claim(torch.add, add),))

    def program(x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x * 2

    x, y = torch.ones(3), torch.ones(3)
    torch.testing.assert_close(thunder.jit(program, executors=[executor])(x), program(y))
    torch.testing.assert_close(x, y)
    assert CALLS == ["add"]
