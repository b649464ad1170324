"""Finding one of many entries."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import thunder
from tests.calls import calls_of
from thunder_core.checks.dispatch import Dispatcher


def entries_of(observe, function, calls):
    dispatcher = Dispatcher()
    for number, (args, kwargs) in enumerate(calls):
        dispatcher.add(SimpleNamespace(prologue=observe(function, *args, **kwargs).prologue, number=number))
    return dispatcher


def found(dispatcher, *args, **kwargs):
    result = dispatcher.find(args, kwargs)
    return None if result is None else result[0].number


def test_one_entry(observe, x):
    dispatcher = entries_of(observe, lambda x: x + 1, [((x,), {})])
    assert found(dispatcher, x) == 0
    assert dispatcher.keys == ()
    assert found(dispatcher, torch.zeros(7)) is None
    assert "shape" in dispatcher.miss((torch.zeros(7),), {}).text


def test_by_shape_dtype_and_argument(observe):
    dtypes = (torch.float32, torch.float64)
    calls = [((torch.zeros(n, dtype=dtype), number), {}) for n in (1, 2, 3) for dtype in dtypes for number in (0, 1)]
    dispatcher = entries_of(observe, lambda x, number: x + number, calls)
    for number, (args, kwargs) in enumerate(calls):
        assert found(dispatcher, *args, **kwargs) == number
    assert len(dispatcher.keys) == 3
    assert found(dispatcher, torch.zeros(9), 0) is None
    assert found(dispatcher, torch.zeros(1), [0]) is None
    assert found(dispatcher) is None
    assert found(dispatcher, "text", object()) is None


def test_kinds_of_one_argument(observe, x):
    values = [None, 1, True, 1.0, "a", x, [x], (x, 1), {"a": x}, {"b": x}, [1, 2], float("nan"), SimpleNamespace(a=1)]
    calls = [((x, value), {}) for value in values]
    dispatcher = entries_of(observe, lambda x, value: x + (value.a if hasattr(value, "a") else 1), calls)
    for number, value in enumerate(values):
        assert found(dispatcher, x, value) == number


def test_call_forms(observe, x):
    calls = [((x,), {}), ((x, x), {}), ((x,), {"y": x}), ((), {"x": x}), ((), {"x": x, "y": x})]
    dispatcher = entries_of(observe, lambda x, y=None: x + 1, calls)
    for number, (args, kwargs) in enumerate(calls):
        assert found(dispatcher, *args, **kwargs) == number


def test_by_module_attribute_and_modes(observe, x):
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout())
    dispatcher = Dispatcher()
    settings = [(training, p, grad) for training in (True, False) for p in (0.1, 0.2) for grad in (True, False)]
    for number, (training, p, grad) in enumerate(settings):
        model.train(training)
        model[1].p = p
        with torch.set_grad_enabled(grad):
            dispatcher.add(SimpleNamespace(prologue=observe(model, x).prologue, number=number))
    for number, (training, p, grad) in enumerate(settings):
        model.train(training)
        model[1].p = p
        with torch.set_grad_enabled(grad):
            assert found(dispatcher, x) == number


def test_entries_that_leave_a_question_open(observe, x):
    def program(x, mode, value):
        return x * value if mode == "use" else x

    calls = [((x, "ignore", torch.zeros(1)), {}), ((x, "use", 2), {}), ((x, "use", 3), {})]
    dispatcher = entries_of(observe, program, calls)
    assert found(dispatcher, x, "ignore", torch.zeros(5)) == 0
    assert found(dispatcher, x, "use", 3) == 2
    assert found(dispatcher, x, "use", 4) is None


def test_absent_and_present(observe, x):
    class Model(nn.Module):
        def forward(self, x):
            return x * getattr(self, "scale", 1)

    model = Model()
    dispatcher = Dispatcher()
    dispatcher.add(SimpleNamespace(prologue=observe(model, x).prologue, number=0))
    for scale in (2, 3):
        model.scale = scale
        dispatcher.add(SimpleNamespace(prologue=observe(model, x).prologue, number=scale))
    for scale in (2, 3):
        model.scale = scale
        assert found(dispatcher, x) == scale
    del model.scale
    assert found(dispatcher, x) == 0


def test_remove(observe, x):
    dispatcher = entries_of(observe, lambda x, n: x + n, [((x, n), {}) for n in range(3)])
    dispatcher.remove(dispatcher.entries[1])
    assert [found(dispatcher, x, n) for n in range(3)] == [0, None, 2]


@pytest.mark.slow
def test_cost_does_not_grow_with_the_number_of_entries(observe, x):
    model = nn.Linear(4, 4)

    def program(x, number):
        return model(x) * model.scale + number

    dispatcher = Dispatcher()
    calls = []
    for number in range(60):
        kind = number % 3
        argument = torch.zeros(number + 1 if kind == 0 else 2, 4)
        value = number if kind == 1 else 0
        scale = number if kind == 2 else 0
        model.scale = scale
        calls.append((argument, value, scale))
        dispatcher.add(SimpleNamespace(prologue=observe(program, argument, value).prologue, number=number))

    def cost(index):
        argument, value, scale = calls[index]
        model.scale = scale
        args = (argument, value)
        assert found(dispatcher, *args) == index
        return calls_of(lambda: dispatcher.find(args, {}))

    for oldest, newest in ((0, 57), (1, 58), (2, 59)):
        assert cost(oldest) <= 2 * cost(newest)


def test_readers_during_additions(observe, x):
    def program(x, n):
        return x + n

    dispatcher = entries_of(observe, program, [((x, 0), {})])
    more = [SimpleNamespace(prologue=observe(program, x, n).prologue, number=n) for n in range(1, 20)]
    wrong = []
    stop = threading.Event()

    def read():
        while not stop.is_set():
            if found(dispatcher, x, 0) != 0:
                wrong.append(1)

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for entry in more:
        dispatcher.add(entry)
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.filterwarnings("ignore::thunder_core.errors.UncacheableWarning")
@pytest.mark.parametrize("make", [iter, lambda items: (item for item in items)], ids=["iterator", "generator"])
def test_dispatch_does_not_consume_iterators(make):
    def program(items):
        total = 0
        for item in items:
            total = total + item
        return total

    x = torch.ones(2)
    compiled = thunder.jit(program)
    for items in ({1: "a"}, {2: "a", 3: "b"}):
        assert compiled(items) == program(items)
    torch.testing.assert_close(compiled(make([x, x])), x * 2)
