"""Operators with an autocast kernel: the explicit conversions are those of PyTorch's dispatcher."""

from __future__ import annotations

import itertools
from functools import cache

import pytest
import torch

from tests.passes.on_cuda import on_cuda
from tests.passes.programs import acquire_program, run_functionalized
from tests.passes.test_explicit_autocast import explicit, lines_under_autocast, tensors, under
from thunder_core.errors import LoweringError, ThunderError
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.context import Context
from thunder_core.ir.tree import map_leaves
from thunder_core.passes.autocast_rewrites import Rewrite, log_call
from thunder_core.passes.explicit_autocast import explicit_form
from thunder_core.symbols.registry import registry
from thunder_testing.opinfo import OPERATORS
from thunder_testing.opinfo_samples import sample_inputs
from thunder_testing.seeding import seed_generators

SAMPLES = 2
GIVEN = {
    "float32": (torch.float32,),
    "bfloat16": (torch.bfloat16,),
    "float16": (torch.float16,),
    "mixed": (torch.float32, torch.bfloat16),
}
SPELLED = {"torch.prelu": "nn.functional.prelu"}


def operators_with_a_kernel(device_type: str) -> list[str]:
    """Full names of the OpInfos of the symbols with an autocast kernel."""
    names = {SPELLED.get(name, name.removeprefix("torch.")) for name in _with_kernel(device_type)}
    return [
        full
        for full, operator in OPERATORS.items()
        if not names.isdisjoint((operator.name, *[alias.name for alias in operator.aliases]))
    ]


@cache
def _with_kernel(device_type: str) -> frozenset[str]:
    """Printed names of the rows that have the name of an operator with an autocast kernel."""
    key = "Autocast" + device_type.upper()
    printed = [name for name, style in registry.catalogue.rows if style.name == "FUNCTION"]
    return frozenset(name for name in printed if any(has_kernel(item, key) for item in operator_overloads(name)))


def operator_overloads(printed: str) -> list[str]:
    """Qualified names of the ATen overloads that a symbol has the name of."""
    for namespace in ("torch.linalg.", "torch.fft.", "torch.special."):
        printed = printed.replace(namespace, namespace[:-1] + "_")
    base = printed.rpartition(".")[2]
    packet = getattr(torch.ops.aten, base, None) if printed.startswith("torch.") else None
    if packet is None:
        return []
    return [f"aten::{base}" + ("" if name == "default" else f".{name}") for name in packet.overloads()]


def has_kernel(overload: str, key: str) -> bool:
    try:
        return torch._C._dispatch_has_kernel_for_dispatch_key(overload, key)
    except RuntimeError:  # overloads of TorchScript alone are unknown to the dispatcher
        return False


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


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", operators_with_a_kernel("cpu"))
@pytest.mark.battery
def test_operators_on_cpu(name):
    checked = 0
    for given, dtype in itertools.product(GIVEN, (torch.bfloat16, torch.float16)):
        for call in calls(name, GIVEN[given]):
            checked += _check(under(call, dtype), f"{given} under {dtype}")
    assert checked


def _check(call, hint: str) -> bool:
    """Whether eager can make the call at all."""
    seed_generators(0)
    try:
        expected = tensors(call())
        program = acquire_program(call)
    except (RuntimeError, NotImplementedError, ThunderError):
        return False
    result = explicit(program)
    hint += f"\n{result.computation}"
    remaining = set(lines_under_autocast(result.computation))
    for line in program.trace.symbols:  # those that read values, so that they do not run on fakes, stay under autocast
        if str(line.symbol) in remaining:
            with pytest.raises(LoweringError):
                log_call(line, line.context or program.trace.context)
    seed_generators(0)
    for actual, wanted in zip(run_functionalized(result, program.inputs), expected, strict=True):
        assert actual.dtype is wanted.dtype, hint
        torch.testing.assert_close(actual, wanted, rtol=0, atol=0, equal_nan=True, msg=lambda text: text + hint)
    return True


REFUSED = {"nn.functional.binary_cross_entropy"}
NESTED = {"nn.functional.bilinear"}
"""Operators whose kernels call others through the dispatcher, where autocast may act."""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", operators_with_a_kernel("cuda"))
@pytest.mark.battery
def test_operators_on_fakes_of_cuda(name):
    """Casts of arguments have the effect of autocast on fake CUDA tensors; no GPU is needed."""
    forms = set()
    for given, dtype in itertools.product(GIVEN, (torch.bfloat16, torch.float16)):
        context = Context(True, False, (("cuda", dtype),))
        for call in calls(name, GIVEN[given]):
            lines = [on_cuda(line, context) for line in _lines(call, "cuda")]
            forms.update(_form(line, context) for line in lines if line is not None)
    expected = set() if name in REFUSED else {type(None)} if name in NESTED else {Rewrite}
    assert forms == expected


def _lines(call, device_type: str) -> list[BoundSymbol]:
    try:
        trace = acquire_program(call).trace
    except (RuntimeError, NotImplementedError, ThunderError):
        return []
    return [bound for bound in trace.symbols if bound.symbol.name in _with_kernel(device_type) and bound.effects.pure]


def _form(line: BoundSymbol, context: Context) -> type:
    log_call(line, context)  # it can run on fakes
    return type(explicit_form(line, context))
