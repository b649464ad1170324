"""In-place calls come back exactly where nobody looks at the old value."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from tests.passes.programs import acquire_program, functionalize, run_functionalized
from thunder_core.ir.trace import Stage
from thunder_core.ir.verifier import verify
from thunder_core.passes.dead_code import without_dead_code
from thunder_core.passes.functionalize import FromInput, Functionalized
from thunder_core.passes.pass_manager import PassManager
from thunder_core.passes.reinplace import Reinplace
from thunder_core.passes.transform import Phase, TransformContext
from thunder_plugin_simplify import CommonSubexpression


def restore(function: Any, *args: Any) -> tuple[Functionalized, list[Any]]:
    program = acquire_program(function, *args)
    functional = functionalize(program.trace)
    computation = without_dead_code(functional.computation)
    computation = CommonSubexpression().run(computation, TransformContext(Phase.INFERENCE, functional.donated))
    restored = PassManager(verify=True).run(Reinplace(functional), computation)
    verify(restored.computation)
    return restored, program.inputs


def names(result: Functionalized) -> list[str]:
    return [bound.symbol.name.rpartition(".")[2] for bound in result.computation.symbols]


def written(result: Functionalized) -> int:
    return sum(bool(bound.effects.mutates) for bound in result.computation.symbols)


def test_chain_of_in_place_calls():
    result, inputs = restore(lambda x: (x * 2).add_(1).relu_().mul_(3), torch.ones(4))
    assert names(result) == ["mul", "add_", "relu_", "mul_"]
    assert result.computation.stage is Stage.EXECUTABLE
    assert run_functionalized(result, inputs)[0].tolist() == [9, 9, 9, 9]


def test_cache_is_written_where_it_is():
    cache = torch.zeros(2, 8, 4)

    def program(x, position, cache):
        cache.index_copy_(1, position, x)
        scores = cache * 2
        cache[:, position] = x + 1
        return scores + cache, cache

    args = (torch.ones(2, 1, 4), torch.tensor([3]), cache)
    result, inputs = restore(program, *args)
    assert result.epilogue is None
    assert written(result) == 2
    before = cache.data_ptr()
    total, returned = run_functionalized(result, inputs)
    assert returned is cache
    assert cache.data_ptr() == before
    assert cache[:, 3].eq(2).all()
    assert total[:, 3].eq(4).all()


def test_batch_norm_is_one_line_again():
    norm = torch.nn.BatchNorm1d(4)
    result, inputs = restore(lambda x: norm(x), torch.randn(5, 4))
    assert names(result) == ["add_", "batch_norm"]
    assert result.epilogue is None
    run_functionalized(result, inputs)
    assert norm.num_batches_tracked == 1


def test_a_buffer_filled_row_by_row():
    def program(x):
        rows = torch.zeros(3, 4)
        for index in range(3):
            rows[index] = x + index
        return rows

    result, inputs = restore(program, torch.ones(4))
    assert written(result) == 3
    assert "setitem_copy" not in names(result)
    assert run_functionalized(result, inputs)[0][:, 0].tolist() == [1, 2, 3]


def test_views_are_not_made_again():
    def program(x):
        y = x * 2
        row, column = y[0], y[:, 0]
        row.add_(1)
        column.mul_(2)
        return y + row.sum() + column.sum()

    result, _ = restore(program, torch.ones(3, 4))
    assert names(result) == ["mul", "getitem", "add_", "getitem", "mul_", "sum", "add", "sum", "add"]


def test_old_value_that_is_still_read_is_kept():
    functional = functionalize(acquire_program(lambda x: (x * 2).add_(1), torch.ones(3)).trace)
    computation = functional.computation
    both = replace(computation, output=(*computation.output, computation.symbols[0].output))
    result = PassManager(verify=True).run(Reinplace(functional), both)
    assert written(result) == 0


def test_only_calls_after_the_last_reader_come_back():
    functional = functionalize(acquire_program(lambda x: (x * 2).add_(1).mul_(3), torch.ones(3)).trace)
    computation = functional.computation
    both = replace(computation, output=(*computation.output, computation.symbols[0].output))
    result = PassManager(verify=True).run(Reinplace(functional), both)
    assert names(result) == ["mul", "add", "mul_"]


def test_merged_arguments_are_followed():
    def program(x, mask):
        one = (x * 2).masked_fill_(mask == 0, -1.0)
        other = (x * 3).masked_fill_(mask == 0, -1.0)
        return one + other

    result, _ = restore(program, torch.ones(3), torch.ones(3))
    assert names(result).count("eq") == 1
    assert written(result) == 2


def test_write_to_an_input_twice_of_which_one_comes_back():
    functional = functionalize(acquire_program(lambda x: x.add_(1).mul_(3), torch.ones(3)).trace)
    computation = functional.computation
    both = replace(computation, output=(*computation.output, computation.inputs[0]))
    result = PassManager(verify=True).run(Reinplace(functional), both)
    assert names(result) == ["add", "mul_"]
    assert result.epilogue is not None
    x = torch.ones(3)
    assert run_functionalized(result, [x])[0] is x
    assert x.tolist() == [6, 6, 6]


def test_parameters_written_under_no_grad():
    weight = torch.nn.Parameter(torch.ones(3))

    def program(x):
        with torch.no_grad():
            weight.mul_(2)
        return x * weight

    result, inputs = restore(program, torch.ones(3))
    assert result.epilogue is None
    assert names(result) == ["mul_", "mul"]
    run_functionalized(result, inputs)[0].sum().backward()
    assert weight.tolist() == [2, 2, 2]
    assert weight.grad.tolist() == [1, 1, 1]


def test_views_of_written_inputs_are_returned_by_the_epilogue():
    x = torch.ones(3, 4)
    result, inputs = restore(lambda x: (x.add_(1), x[0]), x)
    assert written(result) == 1
    assert result.results[0] == FromInput(0)
    assert result.epilogue is not None
    assert all(not bound.effects.mutates for bound in result.epilogue.symbols)
    _, row = run_functionalized(result, inputs)
    assert row.data_ptr() == x.data_ptr()


def test_peak_memory_is_that_of_eager():
    def program(x):
        y = x * 2
        for _ in range(5):
            y[10:].mul_(2)
            y.view(-1).add_(1)
            y.t()[0] = 0
        return y.sum()

    result, _ = restore(program, torch.ones(64, 64))
    fresh = [
        proxy
        for bound in result.computation.symbols
        for proxy in bound.outputs()
        if proxy.storage not in {other.storage for other in bound.inputs()}
    ]
    assert len(fresh) == 2
