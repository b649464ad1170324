"""Random numbers: the same seed gives what eager gives, and leaves the generator where eager leaves it."""

from __future__ import annotations

import copy
import functools
import operator
import random
import sys
import threading
import warnings
from collections.abc import Callable
from random import getstate
from typing import Any

import pytest
import torch
from torch import get_rng_state, manual_seed, nn, set_rng_state
from torch.nn import functional as F
from torch.random import fork_rng
from torch.utils.checkpoint import checkpoint

import thunder
from tests.subjects import SUBJECT, eager
from thunder_core.errors import UncacheableWarning, UnsupportedError
from thunder_testing import Arguments


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


def writes_to_what_dropout_returns(x: torch.Tensor) -> Any:
    results = []
    for p, train in ((0.0, True), (0.5, True), (0.5, False), (0.5, None), (0.0, None)):
        hidden = x * 2
        dropped, mask = torch.native_dropout(hidden, p, train)
        dropped.mul_(3)
        results += [dropped * x + hidden, mask]
    return results


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


def test_writes_to_what_dropout_returns(check_gradients: Callable[..., None]) -> None:
    check_gradients(writes_to_what_dropout_returns, lambda: (torch.randn(3, 4, requires_grad=True),))


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


@pytest.mark.parametrize("outside", [False, True], ids=["made inside", "made outside"])
@pytest.mark.parametrize(
    "draw",
    [
        lambda x, g: torch.func.grad(lambda y: (y * torch.rand(4, generator=g)).sum())(x),
        lambda x, g: torch.vmap(lambda y: y + torch.rand(4, generator=g), randomness="same")(x),
        lambda x, g: [x.clone().exponential_(generator=g), x.clone().log_normal_(generator=g)],
        lambda x, g: [x.clone().cauchy_(generator=g), x.clone().geometric_(0.4, generator=g)],
    ],
    ids=["grad", "vmap", "exponential_ and log_normal_", "cauchy_ and geometric_"],
)
def test_draws_from_generators(draw: Callable[..., Any], outside: bool, check: Callable[..., None]) -> None:
    def inside(x: torch.Tensor) -> Any:
        generator = torch.Generator().manual_seed(2)
        return draw(x, generator), torch.rand(2, generator=generator)

    def given(x: torch.Tensor, generator: torch.Generator) -> Any:
        return draw(x, generator), torch.rand(2, generator=generator)

    if outside:
        check(given, lambda: Arguments(torch.randn(3, 4), torch.Generator().manual_seed(2)), rounds=3, cache_hits=None)
    else:
        check(inside, lambda: (torch.randn(3, 4),), rounds=3)


@pytest.mark.slow
def test_draws_from_given_generators_decide() -> None:
    """An abandoned run restores the state of the generator."""

    def program(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        first = torch.rand(4, generator=generator)
        if first[0] > 0.5:
            return x[torch.randperm(int(first[1] * 4), generator=generator)]
        order = torch.randperm(4, generator=generator)
        return x[order] * torch.rand(4, generator=generator) if order[0] > order[1] else x + first

    compiled, x = thunder.jit(program), torch.randn(4)
    generators = [torch.Generator().manual_seed(5) for _ in range(2)]
    for _ in range(12):
        results = [run(x, generator) for run, generator in zip((compiled, program), generators, strict=True)]
        torch.testing.assert_close(*results, rtol=0, atol=0)
        assert torch.equal(*[generator.get_state() for generator in generators])
    assert not thunder.explain(compiled).fallbacks
    assert thunder.cache_misses(compiled) < 8


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


def seeds_and_asks(x: torch.Tensor) -> Any:
    manual_seed(5)
    return x + torch.rand(4), torch.initial_seed()


def seeds_under_vmap(x: torch.Tensor) -> Any:
    def row(y: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(3)
        return y + torch.rand(4)

    return torch.vmap(row, randomness="same")(x), torch.rand(2)


def forks_under_grad(x: torch.Tensor) -> Any:
    def loss(y: torch.Tensor) -> torch.Tensor:
        with torch.random.fork_rng(devices=[]):
            return (y * torch.rand(4)).sum()

    return torch.func.grad(loss)(x), torch.rand(2)


def new_generator(x: torch.Tensor) -> Any:
    generator = torch.Generator()
    return x + torch.rand(4, generator=generator), torch.randperm(5, generator=generator)


def new_seeded_generators(x: torch.Tensor) -> Any:
    drawn = [torch.rand(4, generator=torch.Generator().manual_seed(seed)) for seed in (3, 3, 4)]
    return x, *drawn, torch.rand(2)


def returns_its_generator(x: torch.Tensor) -> Any:
    generator, unused = torch.Generator().manual_seed(3), torch.Generator()
    return x + torch.rand(4, generator=generator), generator, unused


def generator_of_a_region(x: torch.Tensor) -> Any:
    generator = torch.Generator()

    def region(y: torch.Tensor) -> torch.Tensor:
        return torch.sin(y + torch.rand(4, generator=generator))

    y = checkpoint(region, x.requires_grad_(), use_reentrant=False)
    return y, torch.rand(4, generator=generator)


def asks_its_generator_by_caller(x: torch.Tensor) -> Any:
    generator = torch.Generator().manual_seed(11)
    y = x + torch.rand(4, generator=generator)
    return y + operator.methodcaller("initial_seed")(generator)


def asks_its_generator(x: torch.Tensor) -> Any:
    generator = torch.Generator().manual_seed(-3)
    return x, generator.get_state(), generator.initial_seed(), torch.rand(2, generator=generator)


@pytest.mark.parametrize(
    "program",
    [
        seeds_and_asks,
        seeds_under_vmap,
        forks_under_grad,
        new_generator,
        new_seeded_generators,
        returns_its_generator,
        generator_of_a_region,
        asks_its_generator,
        asks_its_generator_by_caller,
    ],
    ids=lambda program: program.__name__,
)
def test_seeds_and_generators_inside(program: Callable[..., Any], check: Callable[..., None]) -> None:
    check(program, lambda: (torch.randn(3, 4),), rounds=3, cache_hits=None)


def test_generator_that_the_program_makes_at_first(jit: Callable[..., Any]) -> None:
    class Noise:
        generator: torch.Generator | None = None

        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            if self.generator is None:
                self.generator = torch.Generator().manual_seed(2)
            return x + torch.rand(4, generator=self.generator)

    def scenario(noise: Noise, function: Callable[..., torch.Tensor]) -> list[torch.Tensor]:
        results = [function(torch.ones(4)) for _ in range(3)]
        assert noise.generator is not None
        state = noise.generator.get_state()
        noise.generator = None
        return [*results, state, *[function(torch.ones(4)) for _ in range(2)]]

    noise, other = Noise(), Noise()
    torch.testing.assert_close(scenario(other, jit(other.__call__)), scenario(noise, noise))


def _restores(generator: torch.Generator) -> Any:
    state = generator.get_state()
    first = torch.rand(2, generator=generator)
    generator.set_state(state)
    return first, torch.rand(2, generator=generator)


def _seeds(generator: torch.Generator) -> Any:
    generator.manual_seed(3)
    return torch.rand(2, generator=generator)


def _seeds_by_partial(generator: torch.Generator) -> Any:
    functools.partial(generator.manual_seed, 3)()
    return torch.rand(2, generator=generator)


def _seeds_by_map(generator: torch.Generator) -> Any:
    return list(map(generator.manual_seed, [3]))


def _seeds_by_caller(generator: torch.Generator) -> Any:
    operator.methodcaller("manual_seed", 3)(generator)
    return torch.rand(2, generator=generator)


def _restores_by_partial(generator: torch.Generator) -> Any:
    state = functools.partial(generator.get_state)()
    first = torch.rand(2, generator=generator)
    functools.partial(generator.set_state)(state)
    return first


def _returns_state_by_partial(generator: torch.Generator) -> Any:
    return functools.partial(generator.get_state)()


def _asks_for_seed(generator: torch.Generator) -> Any:
    return torch.ones(2) + generator.initial_seed()


def _asks_for_seed_by_caller(generator: torch.Generator) -> Any:
    return torch.ones(2) + operator.methodcaller("initial_seed")(generator)


def _copies(generator: torch.Generator) -> Any:
    return torch.rand(2, generator=copy.deepcopy(generator))


_STATES = [_restores, _seeds, _asks_for_seed, _returns_state_by_partial]
_OF_C = [_seeds_by_partial, _seeds_by_map, _seeds_by_caller, _restores_by_partial, _asks_for_seed_by_caller, _copies]


@pytest.mark.skipif(SUBJECT is eager, reason="about compiled programs")
@pytest.mark.parametrize(
    ("program", "make"),
    [
        *[(program, lambda: torch.Generator().manual_seed(3)) for program in (*_STATES, *_OF_C)],
        *[(program, lambda: torch.default_generator) for program in _STATES],
    ],
)
def test_states_of_generators_are_refused(
    program: Callable[..., Any], make: Callable[[], torch.Generator], jit: Callable[..., Any]
) -> None:
    outside = make()
    before = outside.get_state()
    with pytest.raises(
        UnsupportedError, match=r"torch\.Generator\.\w+ inside|the state of (a random generator|outside)"
    ):
        jit(lambda: program(outside))()
    assert torch.equal(outside.get_state(), before)
    draw = jit(lambda: torch.rand(2, generator=outside))
    outside.manual_seed(1)
    expected = [torch.rand(2, generator=outside) for _ in range(2)]
    outside.manual_seed(1)
    for value in expected:
        torch.testing.assert_close(draw(), value)


_same_seed = torch.default_generator.get_state()
_set_default = functools.partial(torch.default_generator.set_state, _same_seed)


@pytest.mark.skipif(SUBJECT is eager, reason="about compiled programs")
@pytest.mark.parametrize("thread", ["none", "idle", "draws"])
@pytest.mark.parametrize(
    "program",
    [
        lambda: functools.partial(torch.default_generator.manual_seed, 3)(),
        lambda: list(map(torch.default_generator.manual_seed, [3])),
        lambda: list(map(torch.default_generator.set_state, [_same_seed])),
        lambda: _set_default(),
    ],
    ids=["seeds by partial", "seeds by map", "sets by map", "sets by partial"],
)
def test_states_of_the_default_generator_are_refused(
    program: Callable[[], Any], thread: str, jit: Callable[..., Any]
) -> None:
    """Other threads may draw from it meanwhile."""
    torch.default_generator.set_state(_same_seed)
    torch.rand(5000)  # more than the other thread draws: it does not reach the same state again
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(0.0005):
            if thread == "draws":
                torch.rand(1)

    other = threading.Thread(target=run)
    if thread != "none":
        other.start()
    try:
        with pytest.raises(UnsupportedError, match=r"changes the state of torch\.default_generator"):
            jit(lambda: (program(), torch.rand(2)))()
        assert jit(lambda: torch.rand(2))().shape == (2,)
    finally:
        ended.set()
        if thread != "none":
            other.join()


def _draws_then(use: Callable[[torch.Generator], Any]) -> Callable[[], Any]:
    def program() -> Any:
        generator = torch.Generator()
        return torch.rand(2, generator=generator), use(generator)

    return program


@pytest.mark.skipif(SUBJECT is eager, reason="about compiled programs")
@pytest.mark.parametrize("use", [*_STATES, *(use for use in _OF_C if use is not _asks_for_seed_by_caller)])
def test_states_after_draws_are_refused(use: Callable[[torch.Generator], Any], jit: Callable[..., Any]) -> None:
    with pytest.raises(UnsupportedError, match=r"torch\.Generator\.\w+ inside|the state of a (random )?generator"):
        jit(_draws_then(use))()


@pytest.mark.skipif(SUBJECT is eager, reason="about compiled programs")
def test_generator_that_the_system_seeds_is_refused(jit: Callable[..., Any]) -> None:
    with pytest.raises(UnsupportedError, match=r"torch\.Generator\.seed inside"):
        jit(lambda: torch.Generator().seed())()


numpy = pytest.importorskip("numpy")
_python, _numpy, _old_numpy = random.Random(1), numpy.random.default_rng(1), numpy.random.RandomState(1)
_OUTSIDE = {
    "random.getstate": (lambda: random.getstate()[1][3], lambda: random.seed(1)),
    "getstate": (lambda: getstate()[1][3], lambda: random.seed(1)),
    "random.seed": (lambda: random.seed(1), lambda: random.random()),
    "numpy.random.get_state": (lambda: int(numpy.random.get_state()[1][3]), lambda: numpy.random.seed(1)),
    "numpy.random.seed": (lambda: numpy.random.seed(1), lambda: numpy.random.random()),
    "getstate of Random": (lambda: _python.getstate()[1][3], lambda: _python.seed(1)),
    "seed of Random": (lambda: _python.seed(1), lambda: _python.random()),
    "state of Generator": (lambda: _numpy.bit_generator.state["state"]["state"] % 999, lambda: _numpy.random()),
    "state of RandomState": (lambda: int(_old_numpy.get_state()[2]), lambda: _old_numpy.random()),
}


@pytest.mark.skipif(SUBJECT is eager, reason="about compiled programs")
@pytest.mark.parametrize("name", _OUTSIDE)
def test_states_outside_of_pytorch(name: str, jit: Callable[..., Any]) -> None:
    """Nothing draws from the generator while the program is recorded: its state is as before."""
    use, change = _OUTSIDE[name]

    def program(x: torch.Tensor) -> Any:
        return x + (use() or 0)

    def state() -> str:
        states = random.getstate(), numpy.random.get_state(), _python.getstate(), _old_numpy.get_state()
        return repr((states, _numpy.bit_generator.state))

    compiled = jit(program)
    random.seed(1), numpy.random.seed(1), _python.seed(1)
    with pytest.warns(UncacheableWarning):
        compiled(torch.ones(2))
    change()
    with pytest.warns(UncacheableWarning):
        actual, after = compiled(torch.ones(2)), state()
    torch.testing.assert_close(actual, program(torch.ones(2)))
    assert state() == after


def test_generator_of_python_that_the_system_seeds(jit: Callable[..., Any]) -> None:
    compiled = jit(lambda x: x + random.Random().random())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UncacheableWarning)
        assert not torch.equal(compiled(torch.ones(2)), compiled(torch.ones(2)))


def test_programs_compile_where_the_import_of_numpy_is_blocked(monkeypatch):
    monkeypatch.setitem(sys.modules, "numpy", None)
    assert thunder.jit(lambda x: x + 1)(torch.ones(1)).tolist() == [2.0]
