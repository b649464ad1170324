"""Calls whose gradients eager PyTorch refuses, all or some of them: there is nothing to compare those with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from messages import failures_of

from thunder_core.executors import Claim, DerivativePair, OperatorExecutor
from thunder_testing.conformance.case import Case
from thunder_testing.conformance.failure import NotApplicable
from thunder_testing.conformance.suite import executor_cases

REFUSED = "backward of eager PyTorch raises RuntimeError: no such kernel"


class Product:
    """An operation ``x * y`` in PyTorch whose own backward refuses some calls, and an executor that takes all.

    Attributes:
        refuses: asked at each backward with whether the gradients of x and y are wanted; raises nothing itself.
        error: what the executor's gradient of y is wrong by.
    """

    def __init__(self) -> None:
        self.refuses: Callable[[tuple[bool, bool]], bool] = lambda wanted: False
        self.error = 0.0

    def define(self, library: torch.library.Library) -> Any:
        library.define("product(Tensor x, Tensor y) -> Tensor")
        library.impl("product", torch.mul, "CompositeExplicitAutograd")
        name = "without_reference::product"
        torch.library.register_autograd(name, self._backward, setup_context=_keep, lib=library)
        return torch.ops.without_reference.product.default

    def _backward(self, context: Any, cotangent: torch.Tensor) -> Any:
        if self.refuses(tuple(context.needs_input_grad)):
            raise RuntimeError("no such kernel\nand a second line")
        x, y = context.saved_tensors
        return cotangent * y, cotangent * x

    def backward(self, residuals: Any, cotangents: Any, wanted: tuple[bool, ...]) -> Any:
        (x, y), (cotangent,) = residuals, cotangents
        found = cotangent * y, cotangent * x + self.error
        return tuple([gradient if want else None for gradient, want in zip(found, wanted)])


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs)


def _forward(x: torch.Tensor, y: torch.Tensor) -> Any:
    return x * y, (x, y)


def _samples(device: str, dtype: torch.dtype) -> Iterator[Any]:
    yield (torch.randn(2, 3, dtype=dtype), torch.randn(2, 3, dtype=dtype)), {}


@pytest.fixture(scope="module")
def defined() -> Iterator[tuple[Product, list[Case]]]:
    with torch.library._scoped_library("without_reference", "FRAGMENT") as library:
        made = Product()
        operator = made.define(library)
        pair = DerivativePair(_forward, made.backward)
        executor = OperatorExecutor("kernels", (Claim(operator, torch.mul, derivative=pair),))
        name = "torch.ops.without_reference.product.default"
        cases = executor_cases(executor, dtypes=(torch.float32,), samples={name: _samples})
        yield made, [case for case in cases if "-gradient-" in case.id or "-pair-" in case.id]


@pytest.fixture
def product(defined: tuple[Product, list[Case]]) -> tuple[Product, list[Case]]:
    """Right, and refusing nothing."""
    vars(defined[0]).update(vars(Product()))
    return defined


@pytest.mark.parametrize("refused", [(False, True), (True, False)], ids=["y", "x"])
@pytest.mark.slow
def test_what_is_left_is_compared(product: tuple[Product, list[Case]], refused: tuple[bool, bool]) -> None:
    operation, cases = product
    assert len(cases) == 2
    operation.refuses = lambda wanted: wanted == refused
    for case in cases:
        case.check()
    operation.error = 0.1
    messages = list(failures_of(cases, "*"))
    assert len(messages) == 2
    assert all("the rule of values is broken" in message for message in messages)


@pytest.mark.parametrize("first", [0, 1], ids=["always", "after the first time"])
def test_if_nothing_is_left_it_is_skipped(product: tuple[Product, list[Case]], first: int) -> None:
    """The first backward only checks whether there are gradients."""
    operation, cases = product
    for case in cases:
        seen: list[Any] = []
        operation.refuses = lambda wanted, seen=seen: bool(seen.append(wanted)) or len(seen) > first  # type: ignore[misc]
        with pytest.raises(NotApplicable) as caught:
            case.check()
        assert str(caught.value) == (REFUSED if first else "eager PyTorch has no gradients for this call")
        assert len(seen) > first
