"""User-defined operators whose first call ever is in a compiled program."""

from __future__ import annotations

import itertools

import pytest
import torch

_number = itertools.count()


def new_operator(gradient: bool):
    @torch.library.custom_op(f"thunder_tests_first_call::scale{next(_number)}", mutates_args=())
    def scale(x: torch.Tensor, factor: float) -> torch.Tensor:
        return x * factor

    scale.register_fake(lambda x, factor: torch.empty_like(x))
    if gradient:
        scale.register_autograd(
            lambda ctx, cotangent: (cotangent * ctx.factor, None),
            setup_context=lambda ctx, inputs, output: setattr(ctx, "factor", inputs[1]),
        )
    return scale


@pytest.mark.parametrize("gradient", [False, True])
def test_operator_that_was_never_called(jit, gradient):
    operator = new_operator(gradient)
    compiled = jit(lambda x: operator(x, 3.0))
    for value in (1.0, 2.0):
        x = torch.full((2,), value, requires_grad=gradient)
        result = compiled(x)
        assert result.tolist() == [value * 3] * 2
        if gradient:
            result.sum().backward()
            assert x.grad.tolist() == [3.0, 3.0]


def test_operator_as_the_program(jit):
    operator = new_operator(False)
    assert jit(operator)(torch.ones(2), 3.0).tolist() == [3.0, 3.0]
