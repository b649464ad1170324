"""What holds for every transform: programs do what they do in eager."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from layout_programs import PROGRAMS

from thunder_core.passes.functionalize import functional_form
from thunder_core.passes.transform import Phase, Transform, TransformContext
from thunder_frontend.record.front_end import front_end
from thunder_plugin_layouts import AttentionLayout, ConvolutionLayout, CopyPinnedViews, DirectViews, SeparateBias
from thunder_testing import transform_suite
from thunder_testing.pointwise import Pointwise

TRANSFORMS: tuple[Transform, ...] = (AttentionLayout(), CopyPinnedViews(), SeparateBias(), ConvolutionLayout())
by_name = pytest.mark.parametrize("transform", TRANSFORMS, ids=lambda item: item.name)

# No attention of PyTorch on a CPU lays out its result as the query is, so AttentionLayout would change none of these:
# test_attention_layout.py has one that does.
test_copy_pinned_views = pytest.mark.battery(
    transform_suite(CopyPinnedViews(), executors=[Pointwise()], programs=PROGRAMS)
)
test_direct_views = pytest.mark.battery(transform_suite(DirectViews(), executors=[Pointwise()], programs=PROGRAMS))
test_separate_bias = pytest.mark.battery(transform_suite(SeparateBias(), executors=[Pointwise()], programs=PROGRAMS))
test_convolution_layout = pytest.mark.battery(
    transform_suite(ConvolutionLayout(), executors=[Pointwise()], programs=PROGRAMS)
)


def functional(function: Any, *arguments: Any) -> Any:
    return functional_form(front_end.record(function, arguments, {}).trace).computation


@by_name
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda item: item.name)
def test_idempotent(transform: Transform, program: Any) -> None:
    """A second run finds nothing."""
    context = TransformContext(Phase.INFERENCE)
    trace = transform.run(functional(program.make(), *program.arguments().args), context)
    assert transform.run(trace, context).symbols == trace.symbols


@by_name
def test_nothing_to_do(transform: Transform) -> None:
    trace = functional(lambda x: (x * 2).sum(), torch.ones(3))
    assert transform.run(trace, TransformContext(Phase.INFERENCE)) is trace
