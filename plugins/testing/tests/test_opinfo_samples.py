"""The samples of operators are those that PyTorch's own method gives."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.utils._pytree import tree_leaves

from thunder_testing.opinfo import OPERATORS
from thunder_testing.opinfo_samples import sample_inputs


@pytest.mark.parametrize("name", ["add", "sum", "nn.functional.layer_norm", "linalg.svd", "nn.functional.dropout"])
@pytest.mark.slow
def test_as_pytorch_gives_them(name: str) -> None:
    operator = OPERATORS[name]
    for requires_grad in (False, True):
        found = sample_inputs(operator, "cpu", torch.float32, requires_grad=requires_grad)
        expected = operator.sample_inputs("cpu", torch.float32, requires_grad=requires_grad)
        for one, other in itertools.zip_longest(itertools.islice(found, 8), itertools.islice(expected, 8)):
            leaves, wanted = (tree_leaves((each.input, each.args, each.kwargs)) for each in (one, other))
            for actual, right in zip(leaves, wanted, strict=True):
                assert type(actual) is type(right)
                if isinstance(actual, torch.Tensor):
                    assert (actual.stride(), actual.requires_grad) == (right.stride(), right.requires_grad)
                    torch.testing.assert_close(actual, right, rtol=0, atol=0, equal_nan=True)
                else:
                    assert actual == right
