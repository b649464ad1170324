"""Hand-written derivatives against eager, over PyTorch's samples and over cases of our own."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils import _pytree as pytree

import thunder
from tests.autodiff.rule_cases import CASES, Case, tensor
from thunder_core.autodiff.derivatives import derive
from thunder_core.autodiff.derivatives.by_autograd import derive_by_autograd
from thunder_core.autodiff.derivatives.by_rule import SOURCE, derive_by_rule
from thunder_core.autodiff.derivatives.derivative import Derivative, Query
from thunder_core.autodiff.derivatives.rules import add_rules, all_rules, remove_rules
from thunder_core.errors import LoweringError
from thunder_core.executors.executor import Executor
from thunder_core.ir.symbol import Symbol
from thunder_core.symbols.registry import registry
from thunder_testing.opinfo import OPERATORS, run_backward
from thunder_testing.outcome import Status

RULES_OF_CORE = "thunder_core."
Sources = list[tuple[Symbol, str]]


@pytest.fixture
def sources(monkeypatch: pytest.MonkeyPatch) -> Sources:
    """Who gives each derivative from now on: pairs of a symbol and a source, with the reason if there is one."""
    find, found = derive._derive, []

    def recorded(query: Query, executors: Sequence[Executor], key: Any) -> Derivative:
        derivative = find(query, executors, key)
        found.append((query.bound.symbol, _source(derivative)))
        return derivative

    monkeypatch.setattr(derive, "_derive", recorded)
    derive._cache.clear()
    return found


def _source(derivative: Derivative) -> str:
    return ", since ".join(filter(None, (derivative.source, derivative.reason)))


@pytest.mark.parametrize("name", all_rules())
def test_rule_is_of_a_row(name: str) -> None:
    assert name in {row.name for row in registry.catalogue.rows.values()}


# ---- PyTorch's samples -----------------------------------------------------------------------------------------------

_REFUSED = {"tensor_split"}  # the first sample splits at places that a tensor holds
_OPERATORS = [
    name for name in OPERATORS if not all_rules().keys().isdisjoint((f"torch.{name}", f"torch.Tensor.{name}"))
]


@pytest.mark.parametrize("name", [*_OPERATORS, "__getitem__", "__rmatmul__", "__radd__", "bfloat16", "float", "half"])
@pytest.mark.slow
def test_samples_of_pytorch(name: str) -> None:
    status = run_backward(name, thunder.jit, samples=3).status
    assert status is Status.PASSED or (name in _REFUSED and status is Status.ERROR)


# ---- cases of our own ------------------------------------------------------------------------------------------------


def run(program: Any, arguments: tuple[Any, ...]) -> tuple[list[torch.Tensor], int]:
    """Results and gradients, and the bytes that are kept between forward and backward besides the arguments."""
    kept: dict[int, int] = {}
    own = {
        leaf.untyped_storage().data_ptr() for leaf in pytree.tree_leaves(arguments) if isinstance(leaf, torch.Tensor)
    }

    def keep(saved: torch.Tensor) -> torch.Tensor:
        storage = saved.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return saved

    torch.manual_seed(1)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda saved: saved):
        outputs = pytree.tree_leaves(program(*arguments))
    cotangents = [torch.rand_like(output) for output in outputs]
    wanted = [leaf for leaf in pytree.tree_leaves(arguments) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    return [*outputs, *torch.autograd.grad(outputs, wanted, cotangents)], sum(kept.values())


def program_of(case: Case) -> Callable[..., Any]:
    """The case with copies as results: views that are results are made outside of what is differentiated."""
    return lambda *arguments: pytree.tree_map(torch.clone, case.program(*arguments))


@dataclass(frozen=True)
class Ran:
    """A case, run by eager and compiled.

    Attributes:
        expected: results and gradients in eager.
        actual: those of the compiled program.
        more: the bytes that the compiled program keeps for backward, less those that eager keeps.
        sources: who gave derivatives.
        ops: for each call that a rule takes, the rule's name, and the numbers of ops of derivatives by the rule and by
            autograd.
    """

    expected: list[torch.Tensor]
    actual: list[torch.Tensor]
    more: int
    sources: set[str]
    ops: list[tuple[str, int, int]]


@functools.cache
def ran(name: str) -> Ran:
    case, names = CASES[name], {id(rule): name for name, rule in all_rules().items()}
    find, sources, ops = derive._derive, set(), []

    def counted(query: Query, executors: Sequence[Executor], key: Any) -> Derivative:
        derivative = find(query, executors, key)
        sources.add(_source(derivative))
        by_rule = derive_by_rule(query)
        if by_rule is not None:
            try:
                by_autograd = _ops(derive_by_autograd(query))
            except LoweringError:
                by_autograd = _ops(by_rule) + 1
            ops.append((names[id(query.rule)], _ops(by_rule), by_autograd))
        return derivative

    torch.manual_seed(0)
    arguments = case.arguments()
    expected, kept_by_eager = run(program_of(case), arguments)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(derive, "_derive", counted)
        derive._cache.clear()
        actual, kept = run(thunder.jit(program_of(case)), arguments)
    return Ran(expected, actual, kept - kept_by_eager, sources, ops)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.battery
def test_case(name: str) -> None:
    case, found = CASES[name], ran(name)
    torch.testing.assert_close(found.actual, found.expected, rtol=case.close, atol=case.close, equal_nan=True)
    assert found.sources >= {"PyTorch's autograd" if case.by_autograd else SOURCE}
    assert found.more <= case.more


def _ops(derivative: Derivative) -> int:
    return len(derivative.forward) + len(derivative.backward)


@pytest.mark.parametrize(
    "name", [name for name, own in all_rules().items() if own.__module__.startswith(RULES_OF_CORE)]
)
def test_rule_has_a_case_and_is_better_than_autograd(name: str) -> None:
    """A rule that never has fewer ops than autograd's derivative is not needed."""
    similar = sorted(CASES, key=lambda case: -SequenceMatcher(None, name.rpartition(".")[2], case).ratio())
    counts = (
        (by_rule, by_autograd) for case in similar for rule, by_rule, by_autograd in ran(case).ops if rule == name
    )
    assert any(by_rule < by_autograd for by_rule, by_autograd in counts), "no case has a call that the rule takes so"


# ---- how traces read -------------------------------------------------------------------------------------------------


def backward_of(program: Any, *arguments: Any) -> list[str]:
    """The lines of the backward program, without comments."""
    jitted = thunder.jit(program)
    jitted(*arguments)
    lines = [line.split("#")[0].strip() for line in str(thunder.last_backward_traces(jitted)[1]).splitlines()]
    return [line for line in lines if " = " in line]


def test_linear_reads_as_its_formula() -> None:
    assert backward_of(lambda x, w, b: F.linear(x, w, b), tensor(2, 3, 4), tensor(5, 4), tensor(5)) == [
        "t0_cotangent_1 = torch.reshape(t0_cotangent, (6, 5))",
        "x_cotangent = torch.matmul(t0_cotangent, w)",
        "t0_cotangent_2 = torch.t(t0_cotangent_1)",
        "t0_1 = torch.reshape(x, (6, 4))",
        "w_cotangent = torch.mm(t0_cotangent_2, t0_1)",
        "b_cotangent = torch.sum(t0_cotangent_1, 0)",
    ]


def test_normalization_reads_as_its_formula() -> None:
    def normalized(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(torch.mean(x * x, -1, True)) * w

    assert backward_of(normalized, tensor(2, 3), tensor(3)) == [
        "t4_cotangent_1 = torch.mul(t4_cotangent, t3)",
        "t3_cotangent = torch.mul(t4_cotangent, w)",
        "w_cotangent = torch.sum(t4_cotangent_1, (0,))",
        "t3_cotangent_1 = torch.mul(t3_cotangent, x)",
        "x_cotangent = torch.mul(t3_cotangent, t2)",
        "t2_cotangent = torch.sum(t3_cotangent_1, (1,), True)",
        "t2_cotangent_1 = torch.mul(t2_cotangent, -0.5)",
        "t2_1 = torch.pow(t2, 3)",
        "t1_cotangent = torch.mul(t2_cotangent_1, t2_1)",
        "t1_cotangent_1 = torch.div(t1_cotangent, 3)",
        "t0_cotangent = t1_cotangent_1.expand((2, 3))",
        "t0_cotangent_1 = torch.mul(t0_cotangent, x)",
        "t0_cotangent_3 = torch.add(t0_cotangent_1, t0_cotangent_1)",
        "x_cotangent_1 = torch.add(x_cotangent, t0_cotangent_3)",
    ]


def test_gradients_that_nobody_wants_are_not_computed() -> None:
    assert backward_of(lambda x, w: F.linear(x, w), tensor(3, 4, grad=False), tensor(5, 4)) == [
        "t0_cotangent_1 = torch.t(t0_cotangent)",
        "w_cotangent = torch.mm(t0_cotangent_1, x)",
    ]


def test_rotary_halves_are_split_and_padded() -> None:
    assert backward_of(lambda x: torch.cat((-x[..., 2:], x[..., :2]), -1), tensor(3, 4)) == [
        "t1_cotangent, t2_cotangent = torch.split(t3_cotangent, (2, 2), -1)",
        "x_cotangent = torch.nn.functional.pad(t2_cotangent, (0, 2))",
        "t0_cotangent = torch.neg(t1_cotangent)",
        "t0_cotangent_1 = torch.nn.functional.pad(t0_cotangent, (2, 0))",
        "x_cotangent_1 = torch.add(x_cotangent, t0_cotangent_1)",
    ]


def test_slices_of_several_dimensions_are_padded_at_once() -> None:
    assert backward_of(lambda x: x[0, 1:, :-1].exp(), tensor(2, 3, 4))[1:] == [
        "t0_cotangent_1 = torch.reshape(t0_cotangent, (1, 2, 3))",
        "x_cotangent = torch.nn.functional.pad(t0_cotangent_1, (0, 1, 1, 0, 0, 1))",
    ]


# ---- calls that no rule is for ---------------------------------------------------------------------------------------

DECLINED: dict[str, Callable[..., Any]] = {
    "addmm, scaled": lambda x: torch.addmm(x, x, x, beta=2),
    "complex": lambda x: torch.view_as_complex(x) * 2j,
    "rounding": lambda x: torch.div(x, 2.0, rounding_mode="trunc"),
    "exponent tensor": lambda x: torch.pow(x, x),
    "filled with a tensor": lambda x: torch.masked_fill(x, x > 1, x.sum()),
    "steps": lambda x: x[::2],
    # PyTorch transposes a result in place
    "spectra": lambda x: torch.stft(x.flatten(), 2, 1, window=torch.ones(2), return_complex=True).abs(),
    "list": lambda x: x[[0, 0]],
    "empty vector": lambda x: torch.cat((x, torch.zeros(0))),
    "matrix by batch": lambda x: torch.matmul(x, x[None]),
    "dropout, transposed": lambda x: F.dropout(x.t(), 0.5),
    "embedding, normalized": lambda x: F.embedding(torch.tensor([0, 1]), x, max_norm=10.0),
}


@pytest.mark.parametrize("name", DECLINED)
def test_other_calls_have_the_derivatives_of_autograd(name: str, sources: Sources) -> None:
    program = program_of(Case(name, DECLINED[name], tuple))
    arguments = (tensor(2, 2),)
    torch.testing.assert_close(run(thunder.jit(program), arguments)[0], run(program, arguments)[0], rtol=0, atol=0)
    assert "PyTorch's autograd" in {source for _, source in sources}


def test_failing_rule_is_recorded(sources: Sources, request: pytest.FixtureRequest) -> None:
    add_rules({"torch.exp": lambda input: (torch.exp(input), lambda g: g.reshape(-1))})
    request.addfinalizer(lambda: remove_rules(["torch.exp"]))
    x = tensor(2, 3)
    (gradient,) = torch.autograd.grad(thunder.jit(lambda x: torch.exp(x))(x).sum(), x)
    torch.testing.assert_close(gradient, x.exp(), rtol=0, atol=0)
    assert "rule failed" in sources[0][1]
