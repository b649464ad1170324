"""Operators with an autocast class: the explicit conversions are those of PyTorch's dispatcher.

With ``THUNDER_TEST_ALL=1`` every one, else a fourth of them.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch

from tests.batteries import part
from tests.passes.on_cuda import on_cuda
from tests.passes.programs import acquire_program, run_functionalized
from tests.passes.test_explicit_autocast import explicit, lines_under_autocast, tensors, under
from thunder_core.errors import ThunderError
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.context import Context
from thunder_core.ir.tree import map_leaves
from thunder_core.passes.autocast_rewrites import log_call, rewrite_by_class
from thunder_core.passes.explicit_autocast import explicit_form
from thunder_core.symbols.autocast import autocast_classes
from thunder_testing.opinfo import OPERATORS
from thunder_testing.opinfo_samples import sample_inputs

SAMPLES = 2
GIVEN = {
    "float32": (torch.float32,),
    "bfloat16": (torch.bfloat16,),
    "float16": (torch.float16,),
    "mixed": (torch.float32, torch.bfloat16),
}
SPELLED = {"torch.prelu": "nn.functional.prelu"}


def operators_with_a_class(device_type: str) -> list[str]:
    """Full names of the OpInfos of the classed symbols."""
    names = {SPELLED.get(name, name.removeprefix("torch.")) for name in _classed(device_type)}
    found = [
        full
        for full, operator in OPERATORS.items()
        if not names.isdisjoint((operator.name, *[alias.name for alias in operator.aliases]))
    ]
    return part(found, one_in=4)


def _classed(device_type: str) -> set[str]:
    return {name for name, classes in autocast_classes().items() if device_type in classes}


def calls(name: str, given: tuple[torch.dtype, ...]):
    """Samples of an operator with its floating-point tensors in the given dtypes, in turn."""
    operator = OPERATORS[name]
    for sample in itertools.islice(sample_inputs(operator, "cpu", torch.float32), SAMPLES):
        dtypes = itertools.cycle(given)

        def convert(leaf, dtypes=dtypes):
            floating = isinstance(leaf, torch.Tensor) and leaf.dtype.is_floating_point
            return leaf.to(next(dtypes)) if floating else leaf

        args, kwargs = map_leaves(convert, ((sample.input, *sample.args), sample.kwargs))
        yield lambda args=args, kwargs=kwargs: operator.op(*args, **kwargs)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", operators_with_a_class("cpu"))
def test_operators_on_cpu(name):
    checked = 0
    for given, dtype in itertools.product(GIVEN, (torch.bfloat16, torch.float16)):
        for call in calls(name, GIVEN[given]):
            checked += _check(under(call, dtype), f"{given} under {dtype}")
    assert checked


def _check(call, hint: str) -> bool:
    """Whether eager can make the call at all."""
    torch.manual_seed(0)
    try:
        expected = tensors(call())
        program = acquire_program(call)
    except (RuntimeError, NotImplementedError, ThunderError):
        return False
    result = explicit(program)
    hint += f"\n{result.computation}"
    assert not lines_under_autocast(result.computation), hint
    torch.manual_seed(0)
    for actual, wanted in zip(run_functionalized(result, program.inputs), expected, strict=True):
        assert actual.dtype is wanted.dtype, hint
        torch.testing.assert_close(actual, wanted, rtol=0, atol=0, equal_nan=True, msg=lambda text: text + hint)
    return True


REFUSED = {"nn.functional.binary_cross_entropy"}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", operators_with_a_class("cuda"))
def test_operators_on_fakes_of_cuda(name):
    """What the class says is what autocast does on fake CUDA tensors; no GPU is needed."""
    forms = set()
    for given, dtype in itertools.product(GIVEN, (torch.bfloat16, torch.float16)):
        context = Context(True, False, (("cuda", dtype),))
        for call in calls(name, GIVEN[given]):
            lines = [on_cuda(line, context) for line in _classed_lines(call, "cuda")]
            forms.update(_form(line, context) for line in lines if line is not None)
    expected = set() if name in REFUSED else {"class"}
    assert forms == expected


def _classed_lines(call, device_type: str) -> list[BoundSymbol]:
    try:
        trace = acquire_program(call).trace
    except (RuntimeError, NotImplementedError, ThunderError):
        return []
    return [bound for bound in trace.symbols if device_type in bound.symbol.autocast and bound.effects.pure]


def _form(line: BoundSymbol, context: Context) -> str:
    """Whether a line is written as its class says."""
    form = explicit_form(line, context)
    log_call(line, context)  # that was not for want of something to compare with
    by_class = rewrite_by_class(line, context)
    return "class" if by_class in (form, replace(form, cached=True)) else type(form).__name__
