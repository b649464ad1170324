"""The promise that calls do not compile (``allow_recompiles``), its warm-up, and `thunder.covers`."""

from __future__ import annotations

import copy
import pickle
import random
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import thunder
from thunder_core.errors import OptionError, RecompileError, RecompileWarning, UncacheableWarning


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.scale = 2.0

    def forward(self, x: torch.Tensor, *, offset: float = 0.0) -> torch.Tensor:
        return nn.functional.dropout(self.linear(x), 0.5, self.training) * self.scale + offset


def served(**options: Any) -> Any:
    """A model that is warmed up for inference with two rows."""
    model = thunder.jit(Net().eval(), dynamic=False, **options)
    with thunder.warm_up(model), torch.no_grad():
        model(torch.ones(2, 4))
    return model


CHANGES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "shape": (lambda model: model(torch.ones(3, 4)), "x: shape (3, 4) instead of (2, 4)"),
    "dtype": (lambda model: model(torch.ones(2, 4, dtype=torch.double)), "x: dtype torch.float64 instead of"),
    "argument": (
        lambda model: model(torch.ones(2, 4), offset=1.0),
        "expected the keyword arguments (), got ('offset',)",
    ),
    "grad mode": (lambda model: _under(torch.enable_grad(), model), "torch grad_enabled: expected False, got True"),
    "autocast": (lambda model: _under(torch.autocast("cpu"), model), "torch autocast: expected (), got (('cpu'"),
    "inference": (
        lambda model: _under(torch.inference_mode(), model),
        "torch inference_mode: expected False, got True",
    ),
    "training": (lambda model: model.train()(torch.ones(2, 4)), "module.training: expected False, got True"),
    "attribute": (
        lambda model: (setattr(model, "scale", 3.0), model(torch.ones(2, 4))),
        "module.scale: expected 2.0, got",
    ),
    "forward": (lambda model: model.forward(torch.ones(3, 4)), "x: shape (3, 4) instead of (2, 4)"),
}


def _under(mode: Any, model: Any) -> Any:
    with mode:
        return model(torch.ones(2, 4))


@pytest.mark.parametrize("name", CHANGES)
def test_a_call_that_would_compile_raises_and_names_the_guard(name: str) -> None:
    call, text = CHANGES[name]
    model = served(allow_recompiles=False)
    with torch.no_grad():
        with pytest.raises(RecompileError) as caught:
            call(model)
        assert text in caught.value.problem
        assert "allow_recompiles=False" in caught.value.problem
        assert any("thunder.warm_up" in each for each in caught.value.advice)
        model.eval().scale = 2.0
        assert torch.equal(model(torch.ones(2, 4)), thunder.original(model)(torch.ones(2, 4)))
    assert len(thunder.explain(model).entries) == 1


@pytest.mark.parametrize("name", [name for name in CHANGES if name not in ("training", "dtype")])
def test_or_eager_pytorch_runs_it(name: str) -> None:
    call, text = CHANGES[name]
    model, eager = served(allow_recompiles="eager"), None
    with torch.no_grad():
        with pytest.warns(RecompileWarning) as warned:
            result = call(model)
        eager = call(copy.deepcopy(thunder.original(model)))
        for one, other in zip(*[each if isinstance(each, tuple) else (each,) for each in (result, eager)], strict=True):
            assert one is other or torch.equal(one, other)
        call(model)  # one warning is enough
    (message,) = [str(each.message) for each in warned]
    assert text in message
    report = thunder.explain(model)
    assert len(report.entries) == 1
    assert report.fallbacks == {"no compiled program covers the call, and allow_recompiles='eager'": 2}


def test_without_a_warm_up_the_first_call_is_one() -> None:
    compiled = thunder.jit(lambda x: x * 2, allow_recompiles=False)
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))
    compiled(torch.zeros(2))
    with pytest.raises(RecompileError):
        compiled(torch.ones(3))


def test_a_warm_up_with_two_sizes_covers_all_and_can_be_repeated() -> None:
    first, second = (thunder.jit(lambda x: x * 2, allow_recompiles=False) for _ in range(2))
    with thunder.warm_up(first, second):
        for size in (2, 3):
            first(torch.ones(size))
            second(torch.ones(size))
    for size in range(2, 9):
        assert first.covers(torch.ones(size))
        assert torch.equal(first(torch.ones(size)), second(torch.ones(size)))
    with pytest.raises(RecompileError, match=r"dtype torch\.int64"):
        first(torch.ones(2, dtype=torch.long))
    with thunder.warm_up(first):
        first(torch.ones(2, dtype=torch.long))
    first(torch.ones(4, dtype=torch.long))


def test_a_warm_up_that_fails_or_compiles_nothing_ends_nevertheless() -> None:
    compiled = thunder.jit(lambda x: x * 2, allow_recompiles=False)
    with pytest.raises(ZeroDivisionError), thunder.warm_up(compiled):
        raise ZeroDivisionError
    with pytest.raises(RecompileError, match="nothing is compiled"):
        compiled(torch.ones(2))
    for bad in ((), (torch.relu,), (nn.Linear(1, 1),)):
        with pytest.raises(OptionError), thunder.warm_up(*bad):
            raise AssertionError("it was entered")


def test_the_error_names_the_nearest_program_first() -> None:
    model = thunder.jit(Net(), dynamic=False, allow_recompiles=False)
    with thunder.warm_up(model):
        model.eval()(torch.ones(2, 4))
        model.train()(torch.ones(2, 4))
    with pytest.raises(RecompileError) as caught:
        model.eval()(torch.ones(5, 4))
    assert "allow_recompiles=False: x: shape (5, 4) instead of (2, 4)" in caught.value.problem
    assert "module.training: expected True, got False" in caught.value.problem
    assert [miss.path for miss in model.covers(torch.ones(5, 4)).misses] == ["x", "module.training"]


def test_values_that_only_a_run_knows() -> None:
    def halves(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.sum() > 0 else x - 1

    positive = torch.ones(3)
    compiled = thunder.jit(halves, allow_recompiles=False)
    compiled(positive)
    coverage = compiled.covers(-positive)
    assert coverage
    assert "is True" in coverage.values[0]
    assert "only where" in str(coverage)
    with pytest.raises(RecompileError, match="is False"):
        compiled(-positive)
    assert torch.equal(compiled(positive), halves(positive))
    with thunder.warm_up(compiled):
        compiled(-positive)
    assert torch.equal(compiled(-positive), halves(-positive))
    fallback = thunder.jit(halves, allow_recompiles="eager")
    fallback(positive)
    with pytest.warns(RecompileWarning, match="is False"):
        assert torch.equal(fallback(-positive), halves(-positive))


def test_under_transformations() -> None:
    compiled = thunder.jit(lambda x: (x**2).sum(), allow_recompiles=False)
    with thunder.warm_up(compiled):
        torch.func.grad(compiled)(torch.ones(3))
    assert torch.equal(torch.func.grad(compiled)(torch.ones(3)), torch.full((3,), 2.0))
    for call in (lambda: torch.func.grad(compiled)(torch.ones(4)), lambda: torch.func.vmap(compiled)(torch.ones(2, 3))):
        with pytest.raises(RecompileError):
            call()
    fallback = thunder.jit(lambda x: (x**2).sum(), allow_recompiles="eager")
    with thunder.warm_up(fallback):
        fallback(torch.ones(3))
    with pytest.warns(RecompileWarning):
        assert torch.equal(torch.func.vmap(fallback)(torch.ones(2, 3)), torch.full((2,), 3.0))


def test_programs_that_cannot_be_cached() -> None:
    compiled = thunder.jit(lambda x: x * random.random(), allow_recompiles=False)
    with pytest.warns(UncacheableWarning):
        compiled(torch.ones(1))
    with pytest.raises(RecompileError, match="takes values from"):
        compiled(torch.ones(1))
    assert "takes values from" in compiled.covers(torch.ones(1)).reason


def test_a_lazy_module_compiles_once_it_is_initialized() -> None:
    model = thunder.jit(nn.LazyLinear(3), allow_recompiles=False)
    for _ in range(3):
        model(torch.ones(2, 4))
    assert model.covers(torch.ones(2, 4))
    assert len(thunder.explain(model).entries) == 1


def test_threads_share_the_first_compilation() -> None:
    compiled = thunder.jit(lambda x: x * 2, allow_recompiles=False)
    barrier, results = threading.Barrier(4), []

    def call() -> None:
        barrier.wait()
        results.append(compiled(torch.ones(2)))

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    assert len(thunder.explain(compiled).entries) == 1


def test_it_contradicts_no_caching() -> None:
    with pytest.raises(OptionError, match="allow_recompiles: contradicts cache: no caching"):
        thunder.jit(torch.relu, cache="no caching", allow_recompiles=False)
    with pytest.raises(OptionError, match='must be true, false or "eager", not the text'):
        thunder.jit(torch.relu, allow_recompiles="never")


# ---------------------------------------------------------------- covers


def test_covers_has_no_effect() -> None:
    model = thunder.jit(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Dropout(0.5)))
    x = torch.ones(2, 4)
    assert not model.covers(x)
    assert model.covers(x).reason == "nothing is compiled"
    model(x)
    state, generator = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    before = thunder.cache_hits(model), thunder.cache_misses(model), str(thunder.explain(model))
    assert model.covers(x)
    assert str(model.covers(x)) == "covered by compilation 0"
    assert not model.covers(torch.ones(3, 4))
    assert not model.covers()
    assert not model.covers(x, 1)
    assert torch.equal(torch.get_rng_state(), generator)
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert (thunder.cache_hits(model), thunder.cache_misses(model), str(thunder.explain(model))) == before


@pytest.mark.slow
def test_covers_agrees_with_the_call() -> None:
    compiled = thunder.jit(lambda x, n: x[:, :n] * n, recompile_warning=99)
    for size in (2, 3, 7, 1, 0, 7):
        for n in (1, 2):
            for dtype in (torch.float32, torch.int32):
                x = torch.ones(size, 3, dtype=dtype)
                covered, misses = bool(compiled.covers(x, n)), thunder.cache_misses(compiled)
                assert bool(compiled.covers(torch.empty_like(x, device="meta"), n)) is covered
                compiled(x, n)
                assert (thunder.cache_misses(compiled) == misses) is covered
                assert compiled.covers(x, n)


def test_specifications_of_tensors() -> None:
    model = served()
    with FakeTensorMode():
        here, there = torch.empty(2, 4), torch.empty(2, 4, device="cuda")
    with torch.no_grad():
        assert model.covers(torch.empty(2, 4, device="meta"))
        assert model.covers(here)
        assert model.covers(there).reason == "x: device cuda:0 instead of cpu"
        assert model.covers(torch.empty(3, 4, device="meta")).reason == "x: shape (3, 4) instead of (2, 4)"
        assert "stride" in model.covers(torch.empty(4, 2, device="meta").t()).reason
        assert "requires_grad" in model.covers(torch.empty(2, 4, device="meta", requires_grad=True)).reason
    nested = thunder.jit(lambda batch, n: batch["x"][0] * n)
    nested({"x": [torch.ones(3)]}, 2)
    assert nested.covers({"x": [torch.empty(3, device="meta")]}, 2)
    assert nested.covers({"x": [torch.empty(3, device="meta")]}, 3).reason == "n: expected 2, got 3"


def test_specifications_and_memory() -> None:
    writes = thunder.jit(lambda x, y: x.add_(y))
    writes(torch.ones(2), torch.ones(2))
    one, other = (torch.empty(2, device="meta") for _ in range(2))
    assert writes.covers(one, other)
    shared = "x: shares memory with y, which the program writes"
    assert writes.covers(one, one).reason == writes.covers(*[torch.ones(2)] * 2).reason == shared
    base = torch.empty(4, device="meta")
    with pytest.raises(OptionError, match="specifications share memory"):
        writes.covers(base[:2], base[1:3])
    symbolic = FakeTensorMode(shape_env=ShapeEnv()).from_tensor(torch.empty(5, 5))
    with pytest.raises(OptionError, match="the sizes of a specification are ints"):
        writes.covers(symbolic, one)


def test_what_can_be_asked_about() -> None:
    class Holder:
        @thunder.jit
        def scaled(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    holder = Holder()
    holder.scaled(torch.ones(2))
    assert thunder.covers(holder.scaled, torch.ones(2))
    assert thunder.covers(holder.scaled, torch.ones(3)).reason == "x: shape (3,) instead of (2,)"
    model = thunder.jit(Net())
    model.forward(torch.ones(2, 4))
    assert thunder.covers(model.forward, torch.ones(2, 4))
    gradient = thunder.grad(lambda x: (x**2).sum())
    gradient(torch.ones(3))
    assert thunder.covers(gradient, torch.ones(3))
    with pytest.raises(OptionError, match=r"not returned by thunder\.jit"):
        thunder.covers(Net(), torch.ones(2, 4))
    for each in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert each.covers(torch.ones(2, 4)).reason == "nothing is compiled"


def test_calls_that_run_eagerly() -> None:
    compiled = thunder.jit(lambda x: x * 2)
    compiled(torch.ones(2))
    with FakeTensorMode():
        coverage = compiled.covers(torch.ones(2))
    assert not coverage
    assert "torch dispatch mode" in coverage.eager
    assert str(coverage).startswith("run by eager PyTorch: ")
    asks = thunder.jit(lambda x: x * 2 if compiled.covers(x) else x)
    assert torch.equal(asks(torch.ones(2)), torch.full((2,), 2.0))
    assert dict(thunder.explain(asks).fallbacks) == {"it calls thunder.covers": 1}


class OfClass(Net):
    def covers(self) -> str:
        return "own"


class OfProperty(Net):
    covers = property(lambda self: "own")


class OfLookup(Net):
    def __getattr__(self, name: str) -> Any:
        return "own" if name == "covers" else super().__getattr__(name)


def _with(value: Any) -> Net:
    model = Net()
    model.covers = value
    return model


@pytest.mark.parametrize(
    "model",
    [OfClass(), OfProperty(), OfLookup(), _with(7), _with(nn.Linear(1, 1)), _with(nn.Parameter(torch.ones(1)))],
    ids=["method", "property", "__getattr__", "attribute", "submodule", "parameter"],
)
def test_a_module_keeps_its_own_attribute_of_the_name(model: Any) -> None:
    compiled = thunder.jit(model)
    mine = model.covers() if isinstance(model, OfClass) else model.covers
    assert (compiled.covers() if isinstance(model, OfClass) else compiled.covers) is mine
    assert not thunder.covers(compiled, torch.ones(2, 4))
    compiled(torch.ones(2, 4))
    assert thunder.covers(compiled, torch.ones(2, 4))


@pytest.mark.parametrize("value", [torch.ones(1), nn.Parameter(torch.ones(1)), nn.Linear(1, 1), 7])
def test_and_can_be_given_one_later(value: Any) -> None:
    compiled = thunder.jit(Net())
    assert not hasattr(thunder.original(compiled), "covers")
    assert callable(compiled.covers)
    if type(value) is torch.Tensor:
        compiled.register_buffer("covers", value)
    else:
        compiled.covers = value
    assert compiled.covers is value
    assert thunder.original(compiled).covers is value
    del compiled.covers
    assert not compiled.covers(torch.ones(2, 4))
