"""The generated prologue as a program."""

from __future__ import annotations

import linecache

import torch
from torch import nn

from thunder_core.checks.guard import CallShape
from thunder_core.checks.prologue import build_prologue
from thunder_core.checks.source import ArgumentSource


def test_is_readable_and_shown_by_tracebacks(observe, x):
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))
    entry = observe(model, x)
    source = entry.prologue.python()
    assert "# module[1]" in source
    assert "type(v := d" in source.replace("(v := ", "v := ") or "eps" in source
    assert source.count("_modules") <= 2, "each module is walked to once"
    filename = entry.prologue.function.__code__.co_filename
    assert "".join(linecache.getlines(filename)) == source
    compile(source, "prologue", "exec")


def test_returns_inputs_in_order(observe, x):
    model = nn.Linear(4, 4)
    entry = observe(model, x)
    inputs = entry.prologue.function((x,), {})
    assert inputs[0] is x
    assert inputs[1] is model.weight
    assert inputs[2] is model.bias
    other = torch.zeros(2, 4)
    assert entry.prologue.function((other,), {})[0] is other


def test_program_without_inputs(observe):
    entry = observe(lambda: 3)
    assert entry.prologue.function((), {}) == ()


def test_non_overlapping_inputs(observe):
    entry = observe(lambda x, y: x.add_(y), torch.zeros(4), torch.zeros(4))
    sources = [("a", ArgumentSource(0, "x"), torch.zeros(4)), ("b", ArgumentSource(1, "y"), torch.zeros(4))]
    prologue = build_prologue(
        entry.guards,
        sources,
        state=entry.observer.global_state,
        shape=CallShape(2),
        non_overlapping=[("a", "b")],
    )
    base = torch.zeros(8)
    assert prologue.function((base[:4], base[4:]), {}) is not None
    assert prologue.function((base[:4], base[2:6]), {}) is None
    assert prologue.function((base[:4], base[:4]), {}) is None
    same = base[:4]
    assert prologue.function((same, same), {}) is None
    assert "shares memory" in prologue.why((base[:4], base[2:6]), {})


def test_many_tensors_are_checked_from_tables(observe, x):
    model = nn.Sequential(*[nn.Linear(4, 4) for _ in range(12)])
    entry = observe(model, x)
    assert entry.hits(x)
    model[11].weight = nn.Parameter(torch.zeros(4, 4, dtype=torch.float64))
    assert not entry.hits(x)
    assert "module[11].weight" in entry.reason(x)
    model[11].weight = nn.Parameter(torch.zeros(4, 4))
    assert entry.hits(x)


def test_wrong_values_never_raise(observe, x):
    class Hostile:
        def __eq__(self, other):
            raise TypeError("no")

        def __getattr__(self, name):
            raise AttributeError(name)

    entry = observe(lambda x, value: x * value["a"][0].scale if value else x, x, None)
    for value in (Hostile(), torch.zeros(3), [], {}, "text", 5):
        assert not entry.hits(x, value)


def test_constants_are_named_once(observe, x):
    entry = observe(lambda x, y: x + y, x, x + 1)
    assert "float32_2" not in entry.prologue.function.__globals__
    assert "cpu_2" not in entry.prologue.function.__globals__


def test_text_is_the_same_each_time(observe, x):
    def program(x, settings):
        return x * settings["b"] * settings["a"] + sum(value for name, value in settings.items() if name in "ab")

    texts = [observe(program, x, {"a": 1, "b": 2}).prologue.python() for _ in range(2)]
    assert texts[0] == texts[1]
