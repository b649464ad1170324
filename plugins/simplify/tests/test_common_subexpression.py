"""Equal calls are computed once, where no caller can observe it."""

from __future__ import annotations

import pytest
import torch

import thunder
from thunder_core.ir.program import compile_trace
from thunder_core.ir.verifier import verify
from thunder_core.passes.transform import Phase, TransformContext
from thunder_frontend.record.front_end import front_end
from thunder_plugin_simplify import CommonSubexpression


def merge(function, *args):
    """The merged trace, the number of merged lines, and its results."""
    program = front_end.record(function, args, {})
    merged = CommonSubexpression().run(program.trace, TransformContext(Phase.INFERENCE))
    verify(merged)
    return merged, len(program.trace.symbols) - len(merged.symbols), compile_trace(merged)(*program.inputs)


def test_equal_calls_are_merged():
    _, merged, (result,) = merge(lambda x: x.exp() * 2 + x.exp() * 2, torch.ones(3))
    assert merged == 2
    torch.testing.assert_close(result, torch.ones(3).exp() * 4)


def test_views_of_merged_values_show_the_merged_memory():
    def program(x):
        return (x.exp()[0] + x.exp()[0]).sum()

    assert merge(program, torch.ones(3, 2))[1] == 2


def test_results_that_are_both_returned_stay_distinct():
    _, merged, (one, other) = merge(lambda x: (x.exp(), x.exp()), torch.ones(3))
    assert merged == 0
    assert one is not other
    assert one.data_ptr() != other.data_ptr()


def test_views_that_are_both_returned_stay_distinct_objects():
    _, merged, (one, other) = merge(lambda x: (x[0], x[0]), torch.ones(3, 2))
    assert merged == 0
    assert one is not other


def test_one_of_three_is_not_returned():
    _, merged, (one, other, total) = merge(lambda x: (x.exp(), x.exp(), x.exp().sum()), torch.ones(3))
    assert merged == 1
    assert one.data_ptr() != other.data_ptr()
    assert total == one.sum()


def test_a_returned_result_serves_an_inner_use():
    _, merged, (result, total) = merge(lambda x: ((y := x.exp()), (x.exp() + 0 * y).sum()), torch.ones(3))
    assert merged == 1
    assert total == result.sum()


def test_merging_into_an_inner_value_makes_that_one_escape():
    def program(x):
        inner = x.exp().sum()
        return inner, x.exp(), x.exp()

    _, merged, (_, one, other) = merge(program, torch.ones(3))
    assert merged == 1
    assert one.data_ptr() != other.data_ptr()


def test_random_calls_stay():
    _, merged, _ = merge(lambda x: x + torch.rand(3) + torch.rand(3), torch.ones(3))
    assert merged == 0


def test_written_memory_stays():
    def program(x):
        one, other = x * 2, x * 2
        one.add_(1)
        return one + other

    _, merged, (result,) = merge(program, torch.ones(3))
    assert merged == 0
    assert result.tolist() == [5, 5, 5]


def test_reads_around_a_write_stay():
    def program(x):
        y = x * 1
        before = y.exp()
        y.add_(1)
        return before + y.exp()

    assert merge(program, torch.ones(3))[1] == 0


def test_modes_tell_calls_apart():
    def program(x):
        with torch.no_grad():
            y = x * 2
        return y + x * 2

    assert merge(program, torch.ones(3, requires_grad=True))[1] == 0


def test_kept_names_are_not_merged():
    trace = front_end.record(lambda x: x.exp() + x.exp(), (torch.ones(3),), {}).trace
    name = trace.symbols[0].output.name
    assert len(CommonSubexpression().run(trace, TransformContext(Phase.INFERENCE, frozenset({name}))).symbols) == 3


def accumulating(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return (x.sin() @ weight + x.cos()) + x.cos() @ weight


def with_gradient_inside(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return thunder.grad(lambda value: (value.cos().exp() * value.cos().exp() * weight).sum())(x)


@pytest.mark.parametrize("function", [accumulating, with_gradient_inside])
@pytest.mark.parametrize("others", [(), ("accumulate_products", "fold_transposes", "merge_matmuls")])
@pytest.mark.slow
def test_where_it_is_disabled_nobody_else_merges_calls(function, others):
    def cosines(**options):
        compiled = thunder.jit(function, executors=[], transforms=[options, *others])
        x, weight = torch.randn(4, 4), torch.randn(4, 4)
        torch.testing.assert_close(compiled(x, weight), function(x, weight))
        stages = [stage.name for stage in thunder.explain(compiled).entries[0].stages]
        symbols = thunder.last_traces(compiled)[-1].symbols
        return sum(line.symbol.name == "torch.cos" for line in symbols), "common_subexpression" in stages

    assert cosines(common_subexpression={"enabled": False}) == (2, False)
    assert cosines(common_subexpression={"enabled": True}) == (1, True)
