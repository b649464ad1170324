"""Every operator of PyTorch's own test database: its trace is sound, reads back, and lowers to the same values."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db

from thunder_core.contract import Recording
from thunder_core.errors import LoweringError, ThunderError
from thunder_core.ir.printer import print_trace
from thunder_core.ir.program import compile_trace
from thunder_core.ir.verifier import verify
from thunder_core.tracing.lowering import lower, lower_trace
from thunder_frontend.record.front_end import front_end
from thunder_saving.reader import read_trace
from thunder_testing.hand_built import substitute_parts
from thunder_testing.opinfo_samples import sample_inputs
from thunder_testing.seeding import seed_generators

OPERATORS = {
    f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name: op
    for op in op_db
    if torch.float32 in op.supported_dtypes("cpu")
}
UNINITIALIZED = "empty"  # operators with this in their name return whatever was in memory

# Lines that have no core-ATen form: their results or checks depend on values, or they take Python objects.
NOT_LOWERED = {
    *("combinations", "corrcoef", "cov", "unique", "unique_consecutive", "linalg.lstsq", "linalg.lstsq.grad_oriented"),
    *("nn.functional.ctc_loss", "nn.functional.gaussian_nll_loss", "nn.functional.linear_cross_entropy.chunked"),
    *("allclose", "equal", "sparse.sampled_addmm", "sparse.mm.reduce", "to_sparse"),
    *("nn.functional.linear_cross_entropy.chunked_none", "nn.functional.triplet_margin_with_distance_loss"),
}
if torch.__version__ < "2.12":  # there, whether the quantiles are valid depends on values
    NOT_LOWERED |= {"quantile", "nanquantile"}


def acquired(name: str) -> Recording:
    """The first sample as a trace; skips what cannot be acquired, which the operator battery looks at."""
    op = OPERATORS[name]
    seed_generators(0)
    sample = next(iter(sample_inputs(op, "cpu", torch.float32)), None)
    if sample is None:
        pytest.skip("no samples")
    try:
        result = front_end.record(lambda: op(sample.input, *sample.args, **sample.kwargs), (), {})
        if result.raised is not None:
            raise result.raised
        return result
    except (ThunderError, RuntimeError, AssertionError, NotImplementedError) as error:
        pytest.skip(f"not acquired: {str(error).splitlines()[0]}")


OF_EACH_KIND = (
    "add",
    "chunk",  # several results, which are views
    "index_put",  # a list of tensors
    "nn.functional.dropout",  # random numbers
    "nn.functional.multi_head_attention_forward",  # a composition
    "nn.functional.layer_norm",
    "empty_like",  # a result without values
    "stft",  # complex numbers
    "cov",  # no core-ATen form
    "to_sparse",  # another layout
)


@pytest.mark.parametrize("name", OF_EACH_KIND)
def test_an_operator_of_each_kind(name: str) -> None:
    check(name)


@pytest.mark.parametrize("name", [name for name in OPERATORS if name not in OF_EACH_KIND])
@pytest.mark.battery
def test_operator(name: str) -> None:
    check(name)


def check(name: str) -> None:
    """The trace is sound, reads back, and lowers to the same values."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = acquired(name)
        trace = result.trace
        verify(trace)
        assert read_trace(print_trace(trace)) == trace
        lowered = substitute_parts(lower_trace(trace))
        verify(lowered)
        if name not in NOT_LOWERED:
            for bound in trace.symbols:
                if not bound.effects.external:
                    lower(bound, trace.context)
        check_values(name, trace, lowered, result.inputs)


def check_values(name: str, trace: Any, lowered: Any, inputs: tuple[Any, ...]) -> None:
    results = []
    for candidate in (trace, lowered):
        seed_generators(0)
        copies = [value.detach().clone() if isinstance(value, torch.Tensor) else value for value in inputs]
        results.append(compile_trace(candidate)(*copies))
    check = UNINITIALIZED not in name
    for one, other in zip(*results, strict=True):
        if isinstance(one, torch.Tensor) and one.layout is torch.strided:
            assert one.stride() == other.stride()
        if check:
            torch.testing.assert_close(one, other, equal_nan=True)


def test_what_cannot_be_lowered_says_why() -> None:
    trace = acquired("nn.functional.triplet_margin_with_distance_loss").trace
    with pytest.raises(LoweringError, match="which is not a tensor"):
        lower(trace.symbols[0], trace.context)
