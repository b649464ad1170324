"""Each defect of a derivative rule is found by the check for it, which names the rule; right rules pass."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from messages import failures_of
from torch import Tensor

from thunder_core.autodiff.derivatives.rules import all_rules
from thunder_core.symbols.registry import registry
from thunder_core.symbols.row import row
from thunder_testing import ConformanceError, rule_suite
from thunder_testing.conformance.failure import NotApplicable
from thunder_testing.conformance.rule_suite import rule_cases

SINH, MUL, MAX = "torch.sinh", "torch.mul", "torch.aminmax"
FLOAT = (torch.float32,)


def _given(*arguments: Any, shape: tuple[int, ...] = (2, 3)) -> Any:
    """Samples with a tensor before other arguments."""

    def samples(device: str, dtype: torch.dtype) -> Iterator[Any]:
        yield (torch.linspace(-1, 2, math.prod(shape), device=device, dtype=dtype).reshape(shape), *arguments), {}

    return samples


SAMPLES = {MUL: _given(2.5), MAX: _given()}


def messages(name: str, rule: Any, pattern: str, **options: Any) -> list[str]:
    options = {"limit": 4, "samples": {name: SAMPLES[name]} if name in SAMPLES else {}, **options}
    return list(failures_of(rule_cases({name: rule}, **options), f"{name}-{pattern}"))


def sinh(input: Tensor) -> Any:
    return torch.sinh(input), lambda g: g * torch.cosh(input)


def mul(input: Any, other: Any) -> Any:
    return torch.mul(input, other), lambda g: (g * other, g * input)


def aminmax(input: Tensor, *, dim: int | None = None, keepdim: bool = False) -> Any:
    """A rule for several results that takes None for each cotangent."""
    if dim is not None or not input.numel():
        return NotImplemented
    low, high = torch.aminmax(input, keepdim=keepdim)

    def backward(g: Tensor | None, h: Tensor | None) -> Any:
        parts = [_shared(input, one, given) for one, given in ((low, g), (high, h)) if given is not None]
        return parts[0] + parts[1] if len(parts) == 2 else parts[0]

    return torch.return_types.aminmax((low, high)), backward


def _shared(input: Tensor, extreme: Tensor, cotangent: Tensor) -> Tensor:
    mask = input == extreme
    return mask * (cotangent / mask.sum())


RIGHT = {SINH: sinh, "torch.asinh": lambda input: (torch.asinh(input), lambda g: g * (input.square() + 1).rsqrt())}


@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.slow
def test_right_rules_pass(name: str) -> None:
    cases = rule_cases({name: RIGHT[name]}, second_derivatives=True, limit=3)
    passed = set()
    for case in cases:
        try:
            case.check()
            passed.add(case.id.removeprefix(f"{name}-").partition("-")[0])
        except NotApplicable:
            continue
    assert passed >= {"used", "result", "gradient", "layouts", "shapes", "numerical", "second"}
    assert name not in all_rules()


@pytest.mark.slow
def test_right_rules_of_several_results_and_arguments_pass() -> None:
    for name, rule, limit in ((MAX, aminmax, 4), (MUL, mul, 2)):
        assert messages(name, rule, "*", second_derivatives=True, limit=limit) == []


NAMED = {name: rule for name, rule in all_rules().items() if name.startswith("torch.")}
"""The rules of the core, without that of indexing, which has no function."""
test_rules_of_the_core = pytest.mark.battery(
    rule_suite(
        NAMED,
        second_derivatives=True,
        dtypes=(torch.float32, torch.float64),
        samples={
            "torch.pow": _given(3),
            "torch.tensor_split": _given(2, 1),
            **{
                f"torch.nn.functional.adaptive_avg_pool{dims}d": _given(1, shape=(2, 3, *[4] * dims))
                for dims in (1, 2, 3)
            },
        },
        skip={
            "torch.nn.functional.rms_norm-layouts-*": "for transposed inputs its result has other strides",
            "torch.tensor_split-*": "its results are views, which programs that return them differentiate outside",
        },
        limit=3,
    )
)


def _wrong_dtype(input: Tensor) -> Any:
    return torch.sinh(input), lambda g: g.double() * torch.cosh(input)


def _wrong_shape(input: Tensor) -> Any:
    return torch.sinh(input), lambda g: (g * torch.cosh(input)).reshape(-1)[:1]


def _wrong_result(input: Tensor) -> Any:
    return torch.sinh(input) + 1, lambda g: g * torch.cosh(input)


def _assumes_dense_cotangents(input: Tensor) -> Any:
    return torch.sinh(input), lambda g: g.view(-1).reshape(input.shape) * torch.cosh(input)


def _writes_a_cotangent(input: Tensor) -> Any:
    return torch.sinh(input), lambda g: g.mul_(torch.cosh(input))


def _half_reduced(input: Any, other: Any) -> Any:
    """Sums over the first dimension whenever shapes differ, also those that were not broadcast there."""

    def reduced(gradient: Tensor, like: Any) -> Any:
        return gradient.sum(0) if isinstance(like, Tensor) and like.shape != gradient.shape else gradient

    return torch.mul(input, other), lambda g: (reduced(g * other, input), reduced(g * input, other))


def _integers(input: Any, other: Any) -> Any:
    """Rounds the gradient of one factor to the dtype of the other."""

    def backward(g: Tensor) -> Any:
        dtype = other.dtype if isinstance(other, Tensor) else g.dtype
        return (g.to(dtype) * other, g * input)

    return torch.mul(input, other), backward


def _needs_both_cotangents(input: Tensor, *, dim: int | None = None, keepdim: bool = False) -> Any:
    result = aminmax(input, dim=dim, keepdim=keepdim)
    if result is NotImplemented:
        return result
    return result[0], lambda g, h: _shared(input, result[0][0], g) + _shared(input, result[0][1], h)


def _ignores_a_result(input: Tensor, *, dim: int | None = None, keepdim: bool = False) -> Any:
    result = aminmax(input, dim=dim, keepdim=keepdim)
    return result if result is NotImplemented else (result[0], lambda g, h: None if g is None else result[1](g, None))


def _detached(input: Tensor) -> Any:
    slope = torch.cosh(input.detach())
    return torch.sinh(input), lambda g: g * slope


DEFECTS: dict[str, tuple[str, Any, str, str]] = {
    # name: operation, rule, ids of the tests, words
    "value": (SINH, lambda x: (torch.sinh(x), lambda g: g * torch.sinh(x)), "gradient-*", "rule of values is broken"),
    "value, numerically": (
        SINH,
        lambda x: (torch.sinh(x), lambda g: g * torch.sinh(x)),
        "numerical-*",
        "Jacobian mismatch",
    ),
    "value of the second argument": (
        MUL,
        lambda input, other: (torch.mul(input, other), lambda g: (g * other, g * other)),
        "gradient-*",
        "the gradient of tensor 1 among the arguments",
    ),
    "result": (SINH, _wrong_result, "result-*", "the result: "),
    "dtype": (SINH, _wrong_dtype, "result-*", "the gradient of input has the dtype torch.float64"),
    "shape": (SINH, _wrong_shape, "result-*", "a gradient of shape (1,) for a tensor of shape"),
    "shape in programs": (SINH, _wrong_shape, "gradient-*", "a hand-written rule failed: RuntimeError: a gradient of"),
    "broadcast reduction": (MUL, _half_reduced, "shapes-*", "a hand-written rule failed"),
    "integers": (MUL, _integers, "integers-*", "rule of values is broken"),
    "None as a cotangent": (MAX, _needs_both_cotangents, "outputs-*", "a hand-written rule failed"),
    "an unused result": (MAX, _ignores_a_result, "outputs-*", "result 1 alone"),
    "strides of cotangents": (SINH, _assumes_dense_cotangents, "result-*", "backward raises RuntimeError: view size"),
    "writes a cotangent": (SINH, _writes_a_cotangent, "result-*", "backward writes to a cotangent (dense)"),
    "too many gradients": (
        SINH,
        lambda input: (torch.sinh(input), lambda g: (g * torch.cosh(input), None)),
        "result-*",
        "backward returned 2 for 1 parameters",
    ),
    "a number as a gradient": (
        SINH,
        lambda input: (torch.sinh(input), lambda g: 3.0),
        "result-*",
        "the gradient of input is float, and not a tensor",
    ),
    "no pair": (SINH, lambda input: torch.sinh(input), "result-*", "and not a result and a function"),
    "second derivative": (SINH, _detached, "second-*", "rule of second derivatives is broken"),
    "never used": (SINH, lambda input: NotImplemented, "used", "no sample uses it: the rule is not asked"),
    "other parameters": (SINH, lambda: None, "used", "no sample uses it"),
}


@pytest.mark.parametrize("defect", DEFECTS)
@pytest.mark.slow
def test_defect_is_found(defect: str) -> None:
    name, rule, pattern, words = DEFECTS[defect]
    found = messages(name, rule, pattern, second_derivatives=True)
    assert any(words in text for text in found), found[:2] or "no test fails"
    assert all(f"the derivative rule of {name}" in text for text in found)


@pytest.mark.slow
def test_each_defect_leaves_the_registered_rules_as_they_were() -> None:
    before = dict(all_rules())
    own = before["torch.square"]
    assert messages("torch.square", lambda input: (torch.square(input), lambda g: g), "gradient-float32-*")
    assert all_rules()["torch.square"] is own
    assert dict(all_rules()) == before


@pytest.mark.slow
def test_message_and_its_code() -> None:
    text = messages(SINH, _detached, "second-*", second_derivatives=[SINH])[0]
    lines = text.splitlines()
    title = f"{__name__}._detached, the derivative rule of torch.sinh, second"
    assert lines[0] == f"{title}: the rule of second derivatives is broken"
    assert lines[2].startswith("  call: torch.sinh(float64[")
    assert lines[3].startswith("  from: sample ")
    assert lines[4] == "To see it again:"
    wrong = messages(SINH, lambda x: (torch.sinh(x), lambda g: g), "gradient-*", dtypes=FLOAT)[0]
    code = "\n".join(line[4:] for line in wrong.partition("To see it again:\n")[2].splitlines())
    assert "add_rules({'torch.sinh': rule})  # rule: the one that the suite was given" in code
    assert "thunder.jit(program, executors=[], transforms=[])" in code


OWN = "thunder_test_rule_suite.cube"


@pytest.fixture
def own_operator() -> Iterator[str]:
    """An operator of `torch.library` with a derivative, which OpInfo does not have."""
    library = torch.library.Library("thunder_test_rule_suite", "FRAGMENT")
    library.define("cube(Tensor x) -> Tensor")
    library.impl("cube", lambda x: x**3, "CompositeImplicitAutograd")
    name = "torch.ops.thunder_test_rule_suite.cube"
    registry.extend([row(f"{name}(x)", f"{name}.default")])
    yield name
    library._destroy()


def test_samples_of_the_author(own_operator: str) -> None:
    def rule(x: Tensor) -> Any:
        return torch.ops.thunder_test_rule_suite.cube(x), lambda g: g * x * x

    without = list(failures_of(rule_cases({own_operator: rule}), "*-used"))
    assert "there are none: pass samples=" in without[0]
    found = messages(own_operator, rule, "gradient-*", samples={own_operator: _given()})
    assert "from: sample 0 of those given" in found[0]


def test_errors_of_the_suite() -> None:
    with pytest.raises(ConformanceError, match=r"there is no operation 'torch\.snih'"):
        rule_suite({"torch.snih": sinh})
    with pytest.raises(ConformanceError, match=r"second_derivatives names torch\.cosh"):
        rule_suite({SINH: sinh}, second_derivatives=["torch.cosh"])
    with pytest.raises(ConformanceError, match=r"samples are given for torch\.cosh"):
        rule_suite({SINH: sinh}, samples={torch.cosh: lambda device, dtype: ()})
    with pytest.raises(ConformanceError, match="matches none of the"):
        rule_suite({SINH: sinh}, skip={"*-gradeint-*": "typo"})
    with pytest.raises(ConformanceError, match="offers no derivative rules"):
        rule_suite("simplify")


def test_suite_of_a_plugin_tests_the_rules_that_it_offers() -> None:
    ids = [case.id for case in rule_cases("distributed")]
    assert "thunder_plugin_distributed.sharded_parameters.gather-used" in ids
