"""Random numbers: the same seed gives what eager gives, and leaves the generator where eager leaves it."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import get_rng_state, manual_seed, nn, set_rng_state
from torch.nn import functional as F
from torch.random import fork_rng

from tests.subjects import SUBJECT, eager
from thunder_core.errors import UnsupportedError
from thunder_core.testing import Arguments


def draws(x: torch.Tensor) -> Any:
    return torch.rand(3), torch.randn_like(x), torch.randint(0, 9, (4,)), torch.randperm(5), torch.rand_like(x) + x


def drops(x: torch.Tensor) -> Any:
    return F.dropout(x, 0.5), F.alpha_dropout(x, 0.2, training=True), F.dropout1d(x, 0.5), F.rrelu(x, training=True)


def equal_draws_are_not_one(x: torch.Tensor) -> Any:
    a, b = torch.rand(3), torch.rand(3)
    return a - b, F.dropout(x) - F.dropout(x)


def unused_draw_is_made(x: torch.Tensor) -> torch.Tensor:
    torch.rand(3)
    F.dropout(x)
    return torch.rand(3) + x.sum()


def in_place_draws(x: torch.Tensor) -> Any:
    y = torch.empty(4).uniform_()
    y.normal_().bernoulli_(0.3)
    return y, torch.empty(3).exponential_(), torch.bernoulli(x.sigmoid()), torch.multinomial(x.softmax(-1), 2)


def attention(x: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(x[None], x[None], x[None], dropout_p=0.5)


def initialises(x: torch.Tensor) -> torch.Tensor:
    weight = nn.init.kaiming_uniform_(torch.empty(4, 4))
    return x @ weight


def seeds(x: torch.Tensor) -> Any:
    torch.manual_seed(7)
    return x + torch.rand(4)


@pytest.mark.parametrize(
    "program",
    [draws, drops, equal_draws_are_not_one, unused_draw_is_made, in_place_draws, attention, initialises],
    ids=lambda program: program.__name__,
)
def test_program(program: Callable[..., Any], check: Callable[..., None]) -> None:
    check(program, lambda: (torch.randn(3, 4),), rounds=3)


def test_seeding_inside(check: Callable[..., None]) -> None:
    check(seeds, lambda: (torch.randn(3, 4),), cache_hits=None)


def seeds_by_name(x: torch.Tensor) -> Any:
    manual_seed(7)
    return x + torch.rand(4)


def seeds_from_a_map(x: torch.Tensor) -> Any:
    list(map(manual_seed, [7]))
    return x + torch.rand(4)


def restores_by_name(x: torch.Tensor) -> Any:
    state = get_rng_state()
    first = torch.rand(4)
    set_rng_state(state)
    return x + torch.rand(4), first


def forks_by_name(x: torch.Tensor) -> Any:
    with fork_rng(devices=[]):
        y = F.dropout(x)
    return y + torch.rand(4)


_seed_by_partial = functools.partial(torch.manual_seed, 7)


def seeds_by_partial(x: torch.Tensor) -> Any:
    _seed_by_partial()
    return x + torch.rand(4)


@pytest.mark.parametrize(
    "program",
    [seeds_by_name, seeds_from_a_map, restores_by_name, forks_by_name, seeds_by_partial],
    ids=lambda program: program.__name__,
)
def test_functions_by_another_name(program: Callable[..., Any], check: Callable[..., None]) -> None:
    check(program, lambda: (torch.randn(3, 4),), rounds=3)


def test_generator_argument(check: Callable[..., None]) -> None:
    def program(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        return x + torch.rand(4, generator=generator) + torch.rand(4, generator=generator)

    check(program, lambda: Arguments(torch.randn(3, 4), torch.Generator().manual_seed(5)), cache_hits=None)


def test_same_seed_same_result(jit: Callable[..., Any]) -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    compiled = jit(copy.deepcopy(module))
    x = torch.randn(3, 4)
    results = []
    for function in (module, compiled, compiled):
        torch.manual_seed(3)
        results.append(function(x))
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])
    assert not torch.equal(compiled(x), compiled(x))


def test_fork_rng(check: Callable[..., None]) -> None:
    def program(x: torch.Tensor) -> Any:
        with torch.random.fork_rng(devices=[]):
            y = torch.rand(3)
        return y + x.sum(), torch.rand(3)

    check(program, lambda: (torch.randn(3, 4),), cache_hits=None)


def _restores(generator: torch.Generator) -> Any:
    state = generator.get_state()
    first = torch.rand(2, generator=generator)
    generator.set_state(state)
    return first, torch.rand(2, generator=generator)


def _seeds(generator: torch.Generator) -> Any:
    generator.manual_seed(3)
    return torch.rand(2, generator=generator)


@pytest.mark.skipif(SUBJECT is eager, reason="about compiled programs")
@pytest.mark.parametrize("program", [_restores, _seeds])
@pytest.mark.parametrize("make", [lambda: torch.default_generator, torch.Generator], ids=["default", "new"])
def test_states_of_generators_are_refused(
    program: Callable[..., Any], make: Callable[[], torch.Generator], jit: Callable[..., Any]
) -> None:
    outside = make()
    for compiled in (jit(lambda: program(outside)), jit(lambda: program(make()))):
        with pytest.raises(UnsupportedError, match=r"torch\.Generator\.(get_state|manual_seed)"):
            compiled()
    draw = jit(lambda: torch.rand(2, generator=outside))
    outside.manual_seed(1)
    expected = [torch.rand(2, generator=outside) for _ in range(2)]
    outside.manual_seed(1)
    for value in expected:
        torch.testing.assert_close(draw(), value)
