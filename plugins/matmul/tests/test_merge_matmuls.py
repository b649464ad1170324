"""Which linear layers become one product, and that no call sees weights of the past."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from projections import WRITES, Projections, move
from torch import Tensor, nn

import thunder
from thunder_core.executors import Claim, OperatorExecutor
from thunder_plugin_matmul.linear_of_each import in_one
from thunder_plugin_matmul.merge_matmuls import MergeMatmuls


def compiled(module: nn.Module) -> Any:
    return thunder.jit(module, executors=[], transforms=[MergeMatmuls()])


def check(program: Any, module: nn.Module, x: Tensor) -> list[str]:
    """What runs, after the result was compared."""
    with torch.no_grad():
        torch.testing.assert_close(program(x), module(x))
    return [line.symbol.name.rpartition(".")[2] for line in thunder.last_traces(program)[-1].symbols]


@pytest.mark.parametrize("bias", [True, False])
def test_one_product_for_a_vector(bias: bool) -> None:
    module = Projections(bias)
    found = check(compiled(module), module, torch.randn(1, 1, 6))
    assert (found.count("linear_of_each"), found.count("linear")) == (1, 1)
    assert in_one([module.query.weight, module.key.weight, module.value.weight]) is not None


def test_each_for_a_matrix_and_for_training() -> None:
    module = Projections()
    program = compiled(module)
    assert "linear_of_each" not in check(program, module, torch.randn(2, 6))
    x = torch.randn(1, 6)
    program(x).sum().backward()
    gradients = [parameter.grad.clone() for parameter in module.parameters() if parameter.grad is not None]
    module.zero_grad()
    module(x).sum().backward()
    torch.testing.assert_close(gradients, [parameter.grad for parameter in module.parameters()])


@pytest.mark.parametrize("write", WRITES, ids=lambda item: item.__name__)
def test_weights_that_change(write: Callable[[Any], None]) -> None:
    module, x = Projections(), torch.randn(1, 6)
    program = compiled(module)
    check(program, module, x)
    before = program(x).detach()
    with torch.no_grad():
        write(module)
    check(program, module, x)
    assert write is move or not torch.equal(program(x).detach(), before)


def test_weights_that_are_not_moved() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other, self.third, self.fourth = (nn.Linear(4, 4, bias=False) for _ in range(4))
            self.other.weight = self.one.weight
            self.third.weight = nn.Parameter(torch.randn(8, 4)[:4])
            self.fourth.weight = nn.Parameter(torch.randn(4, 4).t())

        def forward(self, x: Tensor) -> Tensor:
            return self.one(x) + self.other(x) * 2 + self.third(x) - self.fourth(x)

    module = Tied()
    addresses = [parameter.data_ptr() for parameter in module.parameters()]
    check(compiled(module), module, torch.randn(1, 4))
    assert [parameter.data_ptr() for parameter in module.parameters()] == addresses
    assert module.other.weight is module.one.weight
    assert module.fourth.weight.stride() == (1, 4)


def test_copies_and_results() -> None:
    """A copy of the module has separate memory; results do not share memory."""
    module = Projections()
    compiled(module)
    other = copy.deepcopy(module)
    check(compiled(other), other, torch.randn(1, 6))

    class Both(Projections):
        def forward(self, x: Tensor) -> Any:
            return self.query(x), self.key(x)

    both = Both()
    program = compiled(both)
    with torch.no_grad():
        one, two = program(torch.randn(1, 6))
    assert one.untyped_storage().data_ptr() != two.untyped_storage().data_ptr()


def test_in_one() -> None:
    whole = torch.randn(6, 3)
    joined = in_one([whole[:2], whole[2:]])
    assert joined is not None
    assert torch.equal(joined, whole)
    assert joined.data_ptr() == whole.data_ptr()
    assert in_one([whole[:2], whole[3:]]) is None
    assert in_one([whole[:2].t(), whole[2:]]) is None
    assert in_one([whole[2:], whole[:2]]) is None


def products(module: Projections) -> Any:
    """The program where somebody runs products of matrices, which merged layers consist of."""
    mm = OperatorExecutor("mm", (Claim(torch.ops.aten.addmm.default, torch.addmm),))
    return thunder.jit(module, executors=[mm], transforms=[MergeMatmuls()])


@pytest.mark.parametrize("write", WRITES, ids=lambda item: item.__name__)
def test_products_are_not_taken_apart(write: Callable[[Any], None]) -> None:
    """In parts they would be the product with the memory that the weights had while compiling."""
    module, x = Projections(), torch.randn(1, 6)
    program = products(module)
    found = check(program, module, x)
    assert found.count("linear_of_each") == 1
    with torch.no_grad():
        write(module)
    check(program, module, x)


class Between(Projections):
    """Of three layers, the one in the middle is not merged; the last is called first."""

    returned: bool

    def forward(self, x: Tensor) -> Any:
        value = self.value(x)
        key = self.key(x)
        if self.returned:
            return value + self.query(x)[..., :4], key
        return value * key + self.query(x)[..., :4]


@pytest.mark.parametrize(("returned", "merged"), [(True, 0), (False, 1)])
def test_only_weights_that_follow_each_other(returned: bool, merged: int) -> None:
    """Others would be computed one by one and joined, which is more work than before."""
    module = Between()
    module.returned = returned
    found = check(compiled(module), module, torch.randn(1, 6))
    assert (found.count("linear_of_each"), found.count("cat")) == (merged, 0)
