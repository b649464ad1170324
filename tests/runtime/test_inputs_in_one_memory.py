"""Inputs in one memory with gradients, some of which the program writes: values, gradients and refusals are eager's."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import thunder
from tests.batteries import in_every_part, sample

Tensor = torch.Tensor
_NOT_IN_OURS = "variables needed for gradient computation"


def write_second(x: Tensor, y: Tensor, w: Tensor) -> Any:
    y.add_(1)
    return x * 2


def write_both(x: Tensor, y: Tensor, w: Tensor) -> Any:
    x.mul_(2)
    y.mul_(3)
    return x.sum() + y.sin().sum()


def write_unseen_by_autograd(x: Tensor, y: Tensor, w: Tensor) -> Any:
    with torch.no_grad():
        y.mul_(2)
    return (x * x).sum(), y * 3


def write_through_view(x: Tensor, y: Tensor, w: Tensor) -> Any:
    part = x[1:]
    part.mul_(w)
    return part, x.sum() * y


def write_what_requires_grad(x: Tensor, y: Tensor, w: Tensor) -> Any:
    shown = y[1:]
    y[0] = w
    return x.exp(), shown


def write_detached(x: Tensor, y: Tensor, w: Tensor) -> Any:
    before, inside = y.detach(), x.sin()
    before.add_(1)
    y.mul_(w)
    return x.cos() + inside.sum(), y.cos()


PROGRAMS = [
    write_second, write_both, write_unseen_by_autograd, write_through_view, write_what_requires_grad, write_detached,
]  # fmt: skip

BASES: dict[str, Callable[[Tensor], Tensor]] = {
    "plain": lambda source: source.detach().clone(),
    "computed": lambda source: source * 1,
    "leaf": lambda source: source.detach().clone().requires_grad_(),
    "view of leaf": lambda source: source.detach().clone().requires_grad_()[:],
}


def without_grad(base: Tensor) -> Tensor:
    with torch.no_grad():
        return base[1:]


RELATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "itself": lambda base: base,
    "detached": lambda base: base.detach(),
    "part detached": lambda base: base.detach()[2:],
    "part": lambda base: base[2:],
    "transposed": lambda base: base.view(2, 3).t(),
    "no_grad": without_grad,
    "one of two": lambda base: base.split(3)[1],
    "odd": lambda base: base[1::2],
}

PAIRS = list(itertools.product(RELATIONS, repeat=2))
SAVING = (write_detached,)
"""Programs that eager may refuse, since they write what was saved for backward."""

REFUSALS = ("no_grad mode", "multiple views", "a view of a leaf Variable", "a leaf Variable", _NOT_IN_OURS)


def assert_same(actual: Any, expected: Any, what: str = "") -> None:
    if isinstance(expected, str):
        assert actual == expected, what
    else:
        torch.testing.assert_close(actual, expected, msg=lambda text: f"{what}: {text}")


def observed(function: Callable[..., Any], kind: str, first: str, second: str) -> Any:
    """What is seen after a call: flags, values, gradients; or the error."""
    source, w = torch.arange(1.0, 7).requires_grad_(), torch.tensor(1.5, requires_grad=True)
    base = BASES[kind](source)
    x, y = RELATIONS[first](base), RELATIONS[second](base)
    try:
        result = function(x, y, w)
        outputs = list(result) if isinstance(result, tuple) else [result]
        seen = [*outputs, x, y, base]
        flags = [(tensor.requires_grad, tensor.is_leaf) for tensor in seen]
        recorded = [tensor for tensor in seen if tensor.requires_grad]
        leaves = [tensor for tensor in (source, w, base) if tensor.requires_grad and tensor.is_leaf]
        loss = sum((tensor * tensor).sum() for tensor in recorded)
        gradients = torch.autograd.grad(loss, leaves, allow_unused=True) if recorded else ()  # type: ignore[arg-type]
    except (RuntimeError, NotImplementedError) as error:
        return next(text for text in REFUSALS if text in str(error))
    return flags, [tensor.detach() for tensor in seen], gradients


@in_every_part
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
@pytest.mark.parametrize("kind", BASES)
@pytest.mark.battery
def test_values_and_gradients(kind: str, program: Callable[..., Any]) -> None:
    """A sample takes other pairs of relations for each kind of base and each program, so all of them in one run."""
    pairs = {f"{kind}, {program.__name__}: {first}, {second}": (first, second) for first, second in PAIRS}
    for name in sample(pairs):
        expected = observed(program, kind, *pairs[name])
        if isinstance(expected, str) and _NOT_IN_OURS in expected:
            assert program in SAVING  # a compiled program saves a copy from before the write
            continue
        assert_same(observed(thunder.jit(program, executors=[]), kind, *pairs[name]), expected, name)


def test_entries_serve_only_inputs_that_autograd_relates_likewise() -> None:
    compiled = thunder.jit(write_both)
    pairs = [("detached", "part"), ("itself", "part"), ("part", "itself"), ("detached", "part detached")]
    for first, second in pairs * 2:
        actual, expected = (observed(f, "computed", first, second) for f in (compiled, write_both))
        assert_same(actual, expected)


@pytest.mark.parametrize("shape", [(2, 2, 4, 8, 8), (1, 1, 1, 8, 8), (3, 1, 8, 8)])
@pytest.mark.parametrize("recorded", [True, False])
def test_mask_that_attention_refuses(shape: tuple[int, ...], recorded: bool) -> None:
    """Fake tensors take masks that would make the result larger."""
    query, mask = torch.randn(1, 4, 8, 16, requires_grad=recorded), torch.randn(shape)

    def program(query: Tensor, mask: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(query, query, query, attn_mask=mask)

    with pytest.raises(RuntimeError, match="doesn't match the broadcast shape") as expected:
        program(query, mask)
    with pytest.raises(RuntimeError) as raised:
        thunder.jit(program)(query, mask)
    assert str(raised.value) == str(expected.value)
