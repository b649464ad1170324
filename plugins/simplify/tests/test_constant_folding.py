"""Values that depend on no input are computed during compilation."""

from __future__ import annotations

from typing import NamedTuple

import torch

from thunder_core.ir.program import compile_trace
from thunder_core.ir.trace import Trace
from thunder_core.ir.verifier import verify
from thunder_core.passes.transform import Phase, TransformContext
from thunder_frontend.record.front_end import front_end
from thunder_plugin_simplify import ConstantFolding


class Folded(NamedTuple):
    trace: Trace
    constants: tuple[torch.Tensor, ...]


def fold(function, *args, limit=1 << 20):
    program = front_end.record(function, args, {})
    context = TransformContext(Phase.INFERENCE)
    trace = ConstantFolding(limit).run(program.trace, context)
    verify(trace)
    constants = tuple(context.constants.values())
    results = compile_trace(trace)(*program.inputs, *constants)
    return Folded(trace, constants), results


def mask_program(x):
    mask = torch.ones(3, 3).tril().log()
    return x + mask + torch.arange(3)[None]


def test_constants_become_inputs():
    folded, (result,) = fold(mask_program, torch.zeros(3, 3))
    assert [bound.symbol.name for bound in folded.trace.symbols] == ["torch.add", "torch.add"]
    assert [constant.shape for constant in folded.constants] == [(3, 3), (1, 3)]
    torch.testing.assert_close(result, mask_program(torch.zeros(3, 3)))


def test_nothing_to_fold_returns_the_same_trace():
    trace = front_end.record(lambda x: x + 1, (torch.ones(3),), {}).trace
    assert ConstantFolding().run(trace, TransformContext(Phase.INFERENCE)) is trace


def test_large_tensors_are_left():
    folded, _ = fold(mask_program, torch.zeros(3, 3), limit=30)
    assert [constant.shape for constant in folded.constants] == [(1, 3)]


def test_expanded_tensors_count_by_their_memory():
    folded, _ = fold(lambda x: x + torch.zeros(1).expand(1 << 16), torch.zeros(1), limit=8)
    assert len(folded.constants) == 1


def test_returned_tensors_are_made_anew():
    folded, _ = fold(lambda x: torch.zeros(3), torch.zeros(1))
    assert not folded.constants
    assert len(folded.trace.symbols) == 1


def test_views_of_returned_memory_are_made_anew():
    assert not fold(lambda x: torch.zeros(3)[1:], torch.zeros(1))[0].constants


def test_written_tensors_are_made_anew():
    assert not fold(lambda x: torch.zeros(3).add_(1) + x, torch.zeros(1))[0].constants


def test_random_tensors_are_made_anew():
    assert not fold(lambda x: torch.rand(3) + x, torch.zeros(1))[0].constants


def test_folded_values_are_usable_by_autograd():
    def run():
        with torch.inference_mode(False):
            return fold(lambda x: x * torch.ones(3).sin(), torch.zeros(3, requires_grad=True))

    folded, (result,) = run()
    assert not folded.constants[0].is_inference()
    result.sum().backward()


def test_autocast_is_that_of_the_line():
    def program(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = torch.ones(2, 2) @ torch.ones(2, 2)
        return x + y

    folded, (result,) = fold(program, torch.zeros(2, 2, dtype=torch.bfloat16))
    assert folded.constants[0].dtype is torch.bfloat16
    assert result.dtype is torch.bfloat16


def test_constant_parts_that_share_memory_still_do():
    def program(x):
        whole = torch.arange(4.0)
        return x + whole[:2] + whole[2:]

    folded, _ = fold(program, torch.zeros(2))
    one, other = folded.constants
    assert one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()
