"""Many argument forms: up to twelve samples of an operator of PyTorch's database, resolved, give eager's values."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves, tree_map

pytest.importorskip("numpy")
pytest.importorskip("expecttest")

from torch.testing._internal.common_methods_invocations import op_db

from tests.symbols.resolving import resolved
from thunder_testing.opinfo_samples import sample_inputs
from thunder_testing.seeding import seed_generators

pytestmark = pytest.mark.filterwarnings("ignore")

SAMPLES = 12
DTYPES = (torch.float32, torch.int64, torch.bool, torch.complex64)
OPERATORS = {item.full_name: item for item in op_db if "empty" not in item.name and "resize" not in item.name}


def inputs(operator: Any) -> Iterator[Any]:
    supported = operator.supported_dtypes("cpu")
    for dtype in [dtype for dtype in DTYPES if dtype in supported][:2]:
        yield from itertools.islice(sample_inputs(operator, "cpu", dtype), SAMPLES)


def run(function: Any, sample: Any) -> list[Any]:
    """The leaves of the result and of the arguments after the call, on fresh arguments and a fresh seed."""
    seed_generators(0)
    arguments = tree_map(_copy, (sample.input, sample.args, sample.kwargs))
    result = function(arguments[0], *arguments[1], **arguments[2])
    return [leaf for leaf in tree_leaves((result, arguments)) if isinstance(leaf, torch.Tensor)]


def _copy(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) and value.layout is torch.strided else value


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.battery
def test_resolved_calls_give_eager_values(name: str) -> None:
    operator = OPERATORS[name]
    functions = [operator.op, operator.method_variant, operator.inplace_variant]
    for sample, function in itertools.product(inputs(operator), [item for item in functions if item is not None]):
        try:
            expected = run(function, sample)
        except Exception:  # noqa: S112 - what eager refuses is not a sample
            continue
        for ours, theirs in zip(run(resolved(function), sample), expected, strict=True):
            if theirs.layout is torch.strided:
                assert (ours.dtype, ours.stride()) == (theirs.dtype, theirs.stride())
                torch.testing.assert_close(ours, theirs, equal_nan=True)
