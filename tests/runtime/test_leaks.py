"""Many calls and many compilations leave no more behind than a few."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import psutil
import pytest
import torch
from torch import nn

from tests.runtime.young_heap import young_heap

CALLS = 1_000


def _objects() -> int:
    gc.collect()
    return len(gc.get_objects())


def _resident() -> float:
    return psutil.Process().memory_info().rss / 2**20


@young_heap()
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.slow
def test_thousands_of_calls_with_alternating_shapes(grad: bool, jit: Callable[..., Any]) -> None:
    compiled = jit(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)))
    inputs = [torch.randn(rows, 64) for rows in (3, 5, 64)]

    def calls(count: int) -> None:
        with torch.set_grad_enabled(grad):
            for index in range(count):
                result = compiled(inputs[index % len(inputs)])
                if grad and index % 10 == 0:
                    result.sum().backward()

    def growth() -> tuple[int, float]:
        objects, resident = _objects(), _resident()
        calls(CALLS)
        return _objects() - objects, _resident() - resident

    calls(CALLS // 10)
    # What leaks grows in each round. What the process's other threads and the allocator do (once 11 MiB in one round,
    # among the other tests) comes in some.
    rounds = [growth() for _ in range(5)]
    assert min(objects for objects, _ in rounds) < 10
    assert min(resident for _, resident in rounds) < 0.8, "MiB more after each 1,000 calls"


@young_heap()
@pytest.mark.slow
def test_calls_that_mutate_leave_nothing(jit: Callable[..., Any]) -> None:
    model = nn.Sequential(nn.BatchNorm1d(8), nn.Dropout(0.5))
    compiled = jit(model)
    state = torch.zeros(8)

    def program(x: torch.Tensor) -> Any:
        state.add_(x.sum(0))
        return x.mul_(0.5), {"a": x[0]}

    mutating = jit(program)
    for warm in (True, False):
        objects = _objects()
        for _ in range(20 if warm else 200):
            compiled(torch.randn(4, 8))
            mutating(torch.randn(4, 8))
    assert _objects() - objects < 20


@young_heap()
@pytest.mark.slow
def test_compilations_leave_nothing(jit: Callable[..., Any]) -> None:
    """Compiling and dropping programs frees their traces, their generated source and their guards."""

    def compile_one() -> None:
        model = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
        jit(model)(torch.randn(2, 8))

    for _ in range(3):
        compile_one()
    objects = _objects()
    for _ in range(10):
        compile_one()
    assert _objects() - objects < 100


@young_heap()
@pytest.mark.parametrize("grad", [False, True])
def test_a_dropped_module_is_freed_at_once(grad: bool, jit: Callable[..., Any]) -> None:
    """Its parameters, with their gradients, go as in eager PyTorch: without the collector of reference cycles."""

    def parameter() -> weakref.ref[torch.Tensor]:
        model = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
        compiled = jit(model)
        for _ in range(2):
            with torch.set_grad_enabled(grad):
                result = compiled(torch.randn(2, 8))
            if grad:
                result.sum().backward()
        return weakref.ref(model[0].weight)

    parameter()  # what is imported and cached meanwhile
    gc.collect()
    gc.disable()
    try:
        assert parameter()() is None
    finally:
        gc.enable()


@young_heap()
@pytest.mark.slow
def test_failed_compilations_leave_nothing(jit: Callable[..., Any]) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        raise ValueError(str(y.shape))

    compiled = jit(program)

    def fail() -> None:
        with pytest.raises(ValueError, match="Size"):
            compiled(torch.randn(3))

    for _ in range(3):
        fail()
    objects = _objects()
    for _ in range(10):
        fail()
    assert _objects() - objects < 40


def test_intermediates_are_freed(jit: Callable[..., Any]) -> None:
    """A chain of large intermediates needs the memory of two, not of all."""

    def program(x: torch.Tensor) -> torch.Tensor:
        for _ in range(20):
            x = x + 1
        return x.sum()

    def peak(function: Callable[..., Any]) -> int:
        # The profiler's allocation counts are the only record of CPU memory that PyTorch keeps.
        with torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True, acc_events=True
        ) as profile:
            function(x)
        current = highest = 0
        for event in profile.profiler.kineto_results.events():  # type: ignore[union-attr]
            if event.name() == "[memory]":
                current += event.nbytes()
                highest = max(highest, current)
        return highest

    x = torch.randn(1 << 16)
    compiled = jit(program)
    with torch.no_grad():
        compiled(x)
        assert peak(compiled) <= 1.02 * peak(program)


def test_threads_that_look_at_frames_are_no_leaks(jit: Callable[..., Any]) -> None:
    """As sampling profilers do: the frame of a program that has ended lives until the next sample."""
    here, done = threading.get_ident(), threading.Event()

    def sample() -> None:
        while not done.is_set():
            frame = sys._current_frames().get(here)  # noqa: F841 - held while waiting
            done.wait(0.003)

    def program(x: torch.Tensor) -> torch.Tensor:
        kept = x.sin()
        threading.Event().wait(0.01)
        return kept * 2

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        for size in range(1, 11):
            x = torch.randn(size)
            assert torch.equal(jit(program)(x), x.sin() * 2)
    finally:
        done.set()
        thread.join()


@young_heap()
@pytest.mark.parametrize("gradients", ["none", "all", "some"])
@pytest.mark.slow
def test_entries_keep_no_arguments(gradients: str, jit: Callable[..., Any]) -> None:
    """Neither tensors nor modules, also where a backward was made for some of the gradients."""
    module, x, y = nn.Linear(3, 3), torch.ones(2, 3, requires_grad=True), torch.ones(2, 3)
    compiled = jit(lambda module, x, y: (module(x) * y, x.sin()))
    first, second = compiled(module, x, y)
    if gradients != "none":
        (first.sum() + second.sum() if gradients == "all" else second.sum()).backward()
    references = [weakref.ref(value) for value in (module, module.weight, x, y)]
    del module, x, y, first, second
    gc.collect()
    assert [reference() for reference in references] == [None] * 4
    assert compiled(nn.Linear(3, 3), torch.ones(2, 3), torch.ones(2, 3))[1].shape == (2, 3)


@young_heap()
@pytest.mark.slow
def test_keys_of_weak_dictionaries_are_released(jit: Callable[..., Any]) -> None:
    class Key:
        """A key that is compared by identity."""

    def program(x: torch.Tensor) -> torch.Tensor:
        held = reference()
        return x if held is None else x * factors.get(held, 1.0)

    key = Key()
    reference, factors = weakref.ref(key), weakref.WeakKeyDictionary({key: 2.0})
    compiled, x = jit(program), torch.ones(2)
    assert torch.equal(compiled(x), x * 2)
    factors[key] = 3.0
    assert torch.equal(compiled(x), x * 3)
    del key
    gc.collect()
    assert reference() is None
    assert torch.equal(compiled(x), x)
