"""One scenario run with the original and with the compiled program; all that a caller can see has to be equal."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from tests.subjects import SUBJECT, eager, hit_counter
from thunder_testing import Comparison, assert_same_behaviour
from thunder_testing.difference import differences
from thunder_testing.seeding import seed_generators
from thunder_testing.snapshot import snapshot

CLOSE = Comparison(rtol=1e-5, atol=1e-6)
"""Float32 with sums in another order."""

LOW_PRECISION = Comparison(rtol=2e-2, atol=2e-2, gradient_rtol=2e-2, gradient_atol=2e-2)
"""bfloat16 and half."""

check = functools.partial(
    assert_same_behaviour, compile=SUBJECT, cache_hits=hit_counter(SUBJECT), comparison=Comparison(gradients=True)
)
"""``check(function, make_arguments)``: same behaviour as eager, with a backward pass from random cotangents."""


def assert_same(
    make: Callable[[], Any], scenario: Callable[[Any], Any], *, comparison: Comparison = CLOSE, seed: int = 0
) -> None:
    """Call ``scenario(program)`` with ``make()`` and with the compiled ``make()``.

    Compared are what the scenario returns, the state of the program (parameters, buffers, their gradients) and the
    states of the random generators. What the scenario itself makes is made anew for each run, under equal seeds.
    """
    observed = []
    for compile in (eager, SUBJECT):
        seed_generators(seed)
        original = make()
        program = compile(original)
        result = scenario(program)
        entries = snapshot(result=result, state=original, random=(torch.get_rng_state(), hash(random.getstate())))
        observed.append(entries)
    found = differences(*observed, comparison)
    assert not found, "original and compiled program differ:\n  " + "\n  ".join(found[:20])


def assert_same_training(
    make: Callable[[], Any],
    make_inputs: Callable[[], Iterable[Any]],
    *,
    steps: int = 2,
    optimizer: Callable[..., torch.optim.Optimizer] | None = None,
    comparison: Comparison = CLOSE,
) -> None:
    """``steps`` forward and backward passes over fresh inputs, with an optimizer step after each if one is given."""

    def scenario(model: Any) -> Any:
        stepper = optimizer(model.parameters()) if optimizer else None
        seen = []
        for _ in range(steps):
            inputs = tuple(make_inputs())
            outputs = model(*inputs)
            loss_of(outputs).backward()
            seen.append((detached(outputs), [gradient(i) for i in inputs]))
            if stepper:
                stepper.step()
                stepper.zero_grad()
        return seen

    assert_same(make, scenario, comparison=comparison)


def step(model: Any, x: torch.Tensor) -> torch.Tensor:
    """Forward and backward; the loss."""
    loss = loss_of(model(x))
    loss.backward()
    return loss.detach()


def loss_of(outputs: Any) -> torch.Tensor:
    """A scalar that depends on each element of each differentiable tensor in ``outputs`` in its own way."""
    total = torch.zeros((), dtype=torch.float64)
    for leaf in pytree.tree_leaves(outputs):
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad:
            real = torch.view_as_real(leaf.resolve_conj()) if leaf.is_complex() else leaf
            weights = torch.linspace(0.5, 1.5, real.numel(), dtype=torch.float64).view(real.shape)
            total = total + (real.double() * weights).sum()
    return total


def detached(tree: Any) -> Any:
    """The values in ``tree`` alone: which tensors share memory, or have holes between elements, does not show."""
    return pytree.tree_map_only(torch.Tensor, _plain, tree)


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    plain = tensor.detach().clone()
    return plain.contiguous() if plain.layout is torch.strided else plain


def gradient(value: Any) -> torch.Tensor | None:
    """The values of ``value.grad``; None for what is not a leaf that requires grad."""
    if not isinstance(value, torch.Tensor) or not (value.is_leaf or value.retains_grad) or value.grad is None:
        return None
    return _plain(value.grad)


def gradients(outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> tuple[torch.Tensor | None, ...]:
    """`torch.autograd.grad`, the values alone."""
    return detached(torch.autograd.grad(outputs, inputs, *args, **kwargs))


def raised(action: Callable[[], Any]) -> str | None:
    """The name of the builtin exception class that ``action`` raises, as a handler sees it; None if it does not."""
    try:
        action()
    except Exception as error:
        return next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins")
    return None


def leaf(*shape: int, dtype: torch.dtype | None = None) -> torch.Tensor:
    return torch.randn(shape, dtype=dtype, requires_grad=True)


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 3))


def mlp_with_dropout() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Dropout(0.3), nn.Linear(8, 4))
