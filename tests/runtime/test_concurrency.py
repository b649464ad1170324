"""Compiled programs in threads, inside each other, and inside themselves."""

from __future__ import annotations

import _thread as _thread_module
import asyncio
import builtins
import gc
import multiprocessing
import queue
import sys
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.pool import ThreadPool
from typing import Any

import pytest
import torch
from torch import nn

import thunder
from tests.subjects import SUBJECT, eager
from thunder_core.errors import UncacheableWarning


def _in_threads(count: int, work: Callable[[int], None]) -> list[BaseException]:
    errors: list[BaseException] = []
    start = threading.Barrier(count)

    def run(index: int) -> None:
        try:
            start.wait()
            work(index)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


@pytest.mark.filterwarnings("ignore")
def test_one_program_in_four_threads(jit: Callable[..., Any]) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    compiled = jit(model)

    def work(index: int) -> None:
        for step in range(20):
            x = torch.randn(1 + (index + step) % 4, 4)
            with torch.set_grad_enabled(index % 2 == 0):
                assert torch.equal(compiled(x), model(x))

    assert _in_threads(4, work) == []
    if SUBJECT is not eager:
        # for each of two grad modes: size 1, the first of the others if it came before that, and all others
        assert 2 * 2 <= thunder.cache_misses(compiled) <= 3 * 2
        assert thunder.cache_hits(compiled) + thunder.cache_misses(compiled) == 80


def test_different_programs_in_four_threads(jit: Callable[..., Any]) -> None:
    def work(index: int) -> None:
        def program(x: torch.Tensor) -> torch.Tensor:
            for _ in range(5):
                x = torch.tanh(x * index)
            return x

        for size in range(1, 4):
            x = torch.randn(size)
            assert torch.equal(jit(program)(x), program(x))

    assert _in_threads(4, work) == []


def test_eager_in_another_thread_is_not_recorded(jit: Callable[..., Any]) -> None:
    running: list[bool] = []
    results: list[torch.Tensor] = []

    def other() -> None:
        while not running:
            pass
        results.append(torch.ones(2) + 1)

    def program(x: torch.Tensor) -> torch.Tensor:
        running.append(True)
        while not results:  # Python switches between threads
            pass
        return x * 2

    thread = threading.Thread(target=other)
    thread.start()
    compiled = jit(program)
    compiled(torch.ones(2))
    thread.join()
    assert type(results[0]) is torch.Tensor
    assert results[0].tolist() == [2, 2]
    if SUBJECT is not eager:
        assert "add" not in str(thunder.last_traces(compiled)[0])


def test_compiled_inside_compiled(jit: Callable[..., Any]) -> None:
    inner = jit(lambda x: x.sin() * 2)
    model = jit(nn.Linear(4, 4))

    def program(x: torch.Tensor) -> torch.Tensor:
        return model(inner(x) + 1)

    x = torch.randn(3, 4)
    compiled = jit(program)
    for _ in range(2):
        assert torch.equal(compiled(x), program(x))
    assert torch.equal(inner(x), x.sin() * 2)


def test_compiled_submodule(jit: Callable[..., Any]) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    expected = model(torch.ones(2, 4))
    model[0] = jit(model[0])
    compiled = jit(model)
    assert torch.equal(compiled(torch.ones(2, 4)), expected)
    assert torch.equal(model(torch.ones(2, 4)), expected)


def test_recursive_compiled_function(jit: Callable[..., Any]) -> None:
    def program(x: torch.Tensor, depth: int) -> torch.Tensor:
        return x if depth == 0 else compiled(x * 2, depth - 1)

    compiled = jit(program)
    assert compiled(torch.ones(1), 3).item() == 8
    assert compiled(torch.ones(1), 2).item() == 4


@pytest.mark.filterwarnings("ignore")
def test_inside_torch_transformations(jit: Callable[..., Any]) -> None:
    """Inside vmap and grad a compiled function computes what the function computes, or refuses."""
    compiled = jit(lambda x: x.sin() * 2)
    x = torch.randn(3, 4)
    for transform in (torch.vmap, lambda f: torch.func.grad(lambda y: f(y).sum())):
        try:
            result = transform(compiled)(x)
        except thunder.ThunderError:
            continue
        torch.testing.assert_close(result, transform(lambda y: y.sin() * 2)(x))


def test_same_function_compiled_twice(jit: Callable[..., Any]) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    first, second = jit(program), jit(jit(program))
    assert torch.equal(first(torch.ones(1)), second(torch.ones(1)))


def _thread(x: torch.Tensor) -> torch.Tensor:
    out: list[torch.Tensor] = []
    thread = threading.Thread(target=lambda: out.append(x * 2))
    thread.start()
    thread.join()
    return out[0] + x


def _timer(x: torch.Tensor) -> torch.Tensor:
    out: list[torch.Tensor] = []
    timer = threading.Timer(0.0, lambda: out.append(x * 2))
    timer.start()
    timer.join()
    return out[0] + x


def _low_level_thread(x: torch.Tensor) -> torch.Tensor:
    out, lock = [], threading.Lock()
    lock.acquire()

    def work() -> None:
        out.append(x * 2)
        lock.release()

    _thread_module.start_new_thread(work, ())
    lock.acquire()
    return out[0] + x


def _pool(x: torch.Tensor) -> torch.Tensor:
    with ThreadPoolExecutor(2) as pool:
        return sum(pool.map(lambda index: x * index, range(3)), x * 0)


def _pool_of_multiprocessing(x: torch.Tensor) -> torch.Tensor:
    with ThreadPool(2) as pool:
        return sum(pool.map(lambda index: x * index, range(3)), x * 0)


def _event_loop(x: torch.Tensor) -> torch.Tensor:
    async def work() -> torch.Tensor:
        return await asyncio.to_thread(lambda: x * 3)

    return asyncio.run(work())


WITH_THREADS = (_thread, _timer, _low_level_thread, _pool, _pool_of_multiprocessing, _event_loop)


@pytest.mark.parametrize("program", WITH_THREADS, ids=lambda program: program.__name__)
def test_programs_with_threads_of_their_own(program: Callable[..., Any]) -> None:
    """PyTorch runs a program that starts threads eagerly, with one warning."""
    compiled = thunder.jit(program)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", UncacheableWarning)
        for value in (1.0, 5.0, 7.0):
            x = torch.full((2,), value, requires_grad=True)
            result = compiled(x)
            assert result.tolist() == [3 * value] * 2
            (gradient,) = torch.autograd.grad(result.sum(), x)
            assert gradient.tolist() == [3.0, 3.0]
    assert len([one for one in said if issubclass(one.category, UncacheableWarning)]) == 1
    assert all(thread.ident is not None for thread in threading.enumerate())  # no thread is about to start


def test_programs_that_use_threads_of_others() -> None:
    """A worker that waits on a queue, one in a pool, and a lock that only the program uses."""
    requests: queue.Queue[Any] = queue.Queue()
    replies: queue.Queue[Any] = queue.Queue()
    lock, condition = threading.RLock(), threading.Condition()

    def work() -> None:
        while (tensor := requests.get()) is not None:
            replies.put(tensor * 2)

    def asks(x: torch.Tensor) -> torch.Tensor:
        requests.put(x + 1)
        return replies.get() + 1

    def submits(x: torch.Tensor) -> torch.Tensor:
        return pool.submit(lambda: x * 2 + 3).result()

    def locks(x: torch.Tensor) -> torch.Tensor:
        with lock, condition:
            lock.acquire()
            condition.notify_all()
            lock.release()
            return x * 2 + 3

    worker = threading.Thread(target=work)
    worker.start()
    try:
        with ThreadPoolExecutor(1) as pool, warnings.catch_warnings():
            warnings.simplefilter("ignore", UncacheableWarning)
            for program in (asks, submits, locks):
                compiled = thunder.jit(program)
                for value in (1.0, 5.0, 7.0):
                    assert compiled(torch.full((2,), value)).tolist() == [2 * value + 3] * 2
        assert thunder.cache_hits(compiled) == 2  # that of `locks`
    finally:
        requests.put(None)
        worker.join()


class Waits(nn.Module):
    """Reads and writes attributes and a buffer, then waits."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.entered, self.waits = threading.Event(), True
        self.register_buffer("total", torch.zeros(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``x`` times the number of calls, plus the sum of all of them."""
        self.calls += 1
        self.total = self.total + x
        return x * max(self.calls, getattr(self, "calls")) + wait(self, self.total)  # noqa: B009


def wait(module: Waits, x: torch.Tensor) -> torch.Tensor:
    """``x``, once the module does not wait."""
    module.entered.__dict__["_flag"] = True
    while module.waits:
        pass
    return x


def in_forked_child(function: Callable[[], Any]) -> Any:
    """The result of a function in a child of this process, or its exception."""
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()

    def run() -> None:
        try:
            results.put(function())
        except Exception as error:
            results.put(repr(error))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # that the process has threads
        child = context.Process(target=run)
        child.start()
    child.join(60)
    if child.is_alive():
        child.kill()
        return "the child does not end"
    return results.get()


@pytest.mark.skipif(SUBJECT is eager, reason="of compilations")
def test_fork_while_another_thread_compiles(jit: Callable[..., Any]) -> None:
    """The child waited for the thread, which it does not have, and called functions that the thread had replaced."""
    module, x = Waits(), torch.ones(2)
    compiled, other = jit(module), jit(lambda x: x * max(2, 1))
    before, thresholds = {**vars(builtins)}, gc.get_threshold()

    def in_child() -> Any:
        module.waits = False
        replaced = [name for name in before if getattr(builtins, name) is not before[name]]
        state = (replaced, torch.compiler.is_compiling(), gc.get_threshold() == thresholds, sys.getprofile())
        return state, module.calls, other(x).tolist(), compiled(x).tolist(), compiled(x).tolist(), module.calls

    thread = threading.Thread(target=compiled, args=(x,))
    thread.start()
    try:
        while not module.entered.is_set():
            pass
        found = in_forked_child(in_child)
    finally:
        module.waits = False
        thread.join()
    assert found == (([], False, True, None), 0, [2, 2], [2, 2], [4, 4], 2)
    assert compiled(x).tolist() == [4, 4]
    assert module.calls == 2


@pytest.mark.skipif(SUBJECT is eager, reason="of compilations")
@pytest.mark.slow
def test_fork_at_any_time_while_others_compile(jit: Callable[..., Any]) -> None:
    """Locks may be held that are held for a moment only."""
    done: list[bool] = []
    shared = jit(lambda x, n: torch.relu(x) * n)

    def compile_programs() -> None:
        count = 0
        while not done:
            count += 1
            jit(lambda x: torch.sin(x) @ x)(torch.ones(2, 2))
            shared(torch.ones(2), count % 5)

    for number in range(5):
        shared(torch.ones(2), number)
    jit(torch.sin)(torch.ones(2))  # PyTorch's modules are imported: Python does not free locks of imports
    threads = [threading.Thread(target=compile_programs) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(8):
            assert in_forked_child(lambda: shared(torch.ones(2), 7).tolist()) == [7, 7]
            assert in_forked_child(lambda: jit(lambda x: x * max(3, 1))(torch.ones(2)).tolist()) == [3, 3]
    finally:
        done.append(True)
        for thread in threads:
            thread.join()
