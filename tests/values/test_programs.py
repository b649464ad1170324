"""Programs whose Python depends on values, compiled: what eager gives, and a compilation for each outcome."""

from __future__ import annotations

import contextlib
import io
import warnings
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_flatten, tree_leaves

import thunder
from tests.values.programs import CALLS, PROGRAMS, Program, branch, mask_that_is_written, range_between_values
from thunder_testing.pointwise import Pointwise
from thunder_testing.seeding import seed_generators

WITHOUT_REGIONS = {
    *("scaled_by_item", "gradient_inside", "list_after_no_parts", "switches_before", "losses_of_sequences")
}
NEEDS_NO_VALUE = {"returns_a_comparison", "element_at_a_value"}


def outcome(program: Program, x: torch.Tensor, *, training: bool) -> dict[str, Any]:
    """All that a call leaves behind."""
    x = x.clone().requires_grad_(training)
    seed_generators(3)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        result = program(x)
    leaves = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    gradients = ()
    if leaves:
        gradients = torch.autograd.grad(sum(leaf.float().sum() for leaf in leaves), x, allow_unused=True)
    return {
        "result": result,
        "gradients": gradients,
        "printed": printed.getvalue(),
        "warnings": [str(warning.message) for warning in told if "negative" in str(warning.message)],
        "argument": x.detach(),
        "next draw": torch.rand(1),
    }


def assert_same(actual: Any, expected: Any) -> None:
    """Equal but for the rounding of tensors and floats."""
    (ours, structure), (theirs, wanted) = tree_flatten(actual), tree_flatten(expected)
    assert structure == wanted
    for one, other in zip(ours, theirs, strict=True):
        assert type(one) is type(other)
        if isinstance(one, torch.Tensor | float):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5, equal_nan=True)
        else:
            assert one == other


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
@pytest.mark.battery
def test_programs(program: Program, training: bool) -> None:
    _check(program, training, ())


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
@pytest.mark.battery
def test_programs_with_regions(program: Program) -> None:
    """Every second program is trained."""
    executor = WithSizes()
    _check(program, PROGRAMS.index(program) % 2 == 0, (executor,))
    assert executor.regions or program.__name__ in WITHOUT_REGIONS


@pytest.mark.parametrize("program", [branch, range_between_values, mask_that_is_written])
@pytest.mark.slow
def test_programs_with_inductor(program: Program) -> None:
    """A test of a value, an int that is read from a tensor, and a result whose length values decide; two outcomes."""
    _check(program, program is not range_between_values, ("inductor",), CALLS[:3])


@dataclass(frozen=True, eq=False)
class WithSizes(Pointwise):
    """Fuses operations on tensors of sizes that vary, as Inductor does."""

    varying_sizes = True


def _check(
    program: Program, training: bool, executors: tuple[Any, ...], calls: tuple[torch.Tensor, ...] = CALLS
) -> None:
    compiled = thunder.jit(program, executors=list(executors))
    for x in calls:
        assert_same(outcome(compiled, x, training=training), outcome(program, x, training=training))
    report = thunder.explain(compiled)
    assert not report.fallbacks
    compilations = len(report.entries)
    assert compilations <= len({tuple(x.tolist()) for x in calls})
    for x in calls:
        outcome(compiled, x, training=training)
    assert len(thunder.explain(compiled).entries) == compilations


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
@pytest.mark.battery
def test_refused_on_demand(program: Program) -> None:
    compiled = thunder.jit(program, sharp_edges="error")
    if program.__name__ in NEEDS_NO_VALUE:
        compiled(CALLS[0].clone())
    else:
        with pytest.raises(thunder.ThunderError, match=r"programs\.py"):
            compiled(CALLS[0].clone())


def test_the_report_names_the_values() -> None:
    compiled = thunder.jit(branch)
    for x in CALLS:
        compiled(x)
    report = thunder.explain(compiled)
    assert [entry.values[0].partition(",")[0] for entry in report.entries] == ["bool(t1) is True", "bool(t1) is False"]
    assert "programs.py" in report.entries[0].values[0]
    assert "bool(t1) is False" in report.miss_reasons[1]
    assert "only where bool(t1) is True" in str(report.programs)


def test_beyond_the_limit_eager_runs() -> None:
    def scaled(x: torch.Tensor) -> torch.Tensor:
        return x * x.max().tolist()

    compiled = thunder.jit(scaled, outcome_limit=2)
    results = []
    with pytest.warns(thunder.RecompileWarning, match="outcome_limit"):
        results += [compiled(torch.full((2,), float(value))) for value in range(1, 6)]
    for value, result in enumerate(results, 1):
        torch.testing.assert_close(result, torch.full((2,), float(value**2)))
    assert len(thunder.explain(compiled).entries) == 2
    assert sum(thunder.explain(compiled).fallbacks.values()) == 3
    before = thunder.explain(compiled).fallbacks.copy()
    torch.testing.assert_close(compiled(torch.full((2,), 2.0)), torch.full((2,), 4.0))
    assert thunder.explain(compiled).fallbacks == before


def test_outcomes_that_raise_are_no_entries() -> None:
    def checked(x: torch.Tensor) -> torch.Tensor:
        if x.sum() < 0:
            raise ValueError("negative")
        return x * 2

    compiled = thunder.jit(checked, recompile_limit=2)
    torch.testing.assert_close(compiled(torch.ones(2)), torch.full((2,), 2.0))
    for _ in range(4):
        with pytest.raises(ValueError, match="negative") as caught:
            compiled(-torch.ones(2))
        assert caught.value.__context__ is None
    torch.testing.assert_close(compiled(torch.ones(2)), torch.full((2,), 2.0))
    assert len(thunder.explain(compiled).entries) == 1
    assert not thunder.explain(compiled).fallbacks
