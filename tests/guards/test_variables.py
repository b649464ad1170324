"""Reads of globals, closures, defaults, functions, the environment."""

from __future__ import annotations

import functools
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

SCALE = 2
SETTINGS = SimpleNamespace(scale=2, unread=1)
TABLE = {"a": 1, "nested": SimpleNamespace(scale=1)}
TENSOR = torch.ones(4)
CALLS = 0
COLLECTED = []


class Constants:
    SCALE = 2
    UNREAD = 1


def helper(x, factor=2):
    return x * factor * SCALE


def test_global_value(observe, x, monkeypatch):
    entry = observe(lambda x: x * SCALE, x)
    monkeypatch.setitem(globals(), "SCALE", 3)
    assert not entry.hits(x)
    assert entry.reason(x) == "SCALE: expected 2, got 3"


def test_global_in_a_called_function(observe, x, monkeypatch):
    entry = observe(lambda x: helper(x), x)
    monkeypatch.setitem(globals(), "SCALE", 3)
    assert not entry.hits(x)


def test_global_object_and_dict(observe, x, monkeypatch):
    entry = observe(lambda x: x * SETTINGS.scale * TABLE["nested"].scale, x)
    monkeypatch.setattr(SETTINGS, "unread", 5)
    assert entry.hits(x)
    monkeypatch.setattr(SETTINGS, "scale", 5)
    assert not entry.hits(x)
    monkeypatch.undo()
    monkeypatch.setattr(TABLE["nested"], "scale", 5)
    assert not entry.hits(x)
    monkeypatch.undo()
    monkeypatch.setitem(TABLE, "new", 5)
    assert entry.hits(x)
    monkeypatch.delitem(TABLE, "nested")
    assert not entry.hits(x)


def test_global_tensor(observe, x, monkeypatch):
    entry = observe(lambda x: x * TENSOR, x)
    assert "TENSOR" in entry.paths
    monkeypatch.setitem(globals(), "TENSOR", torch.zeros(4))
    assert entry.hits(x)
    monkeypatch.setitem(globals(), "TENSOR", torch.zeros(1))
    assert not entry.hits(x)


def test_class_constants(observe, x, monkeypatch):
    entry = observe(lambda x: x * Constants.SCALE, x)
    monkeypatch.setattr(Constants, "UNREAD", 5)
    assert entry.hits(x)
    monkeypatch.setattr(Constants, "SCALE", 5)
    assert not entry.hits(x)


def test_replaced_function(observe, x, monkeypatch):
    entry = observe(lambda x: helper(x), x)
    monkeypatch.setitem(globals(), "helper", lambda x: x)
    assert not entry.hits(x)
    assert "helper" in entry.reason(x)
    monkeypatch.undo()
    monkeypatch.setattr(helper, "__code__", (lambda x, factor=2: x).__code__)
    assert not entry.hits(x)


def test_replaced_torch_function(observe, x, monkeypatch):
    entry = observe(lambda x: F.relu(torch.tanh(x)), x)
    monkeypatch.setattr(F, "relu", lambda x: x)
    assert not entry.hits(x)
    monkeypatch.undo()
    monkeypatch.setattr(torch, "tanh", lambda x: x)
    assert not entry.hits(x)


def test_defaults(observe, x, monkeypatch):
    entry = observe(lambda x: helper(x), x)
    monkeypatch.setattr(helper, "__defaults__", (3,))
    assert not entry.hits(x)

    def program(x, *, scale=2):
        return x * scale

    entry = observe(program, x)
    program.__kwdefaults__ = {"scale": 3}
    assert not entry.hits(x)


def test_closure(observe, x):
    scale, settings, unread = 2, SimpleNamespace(scale=1), 3

    def program(x):
        return x * scale * settings.scale

    entry = observe(program, x)
    unread = 4
    assert entry.hits(x)
    settings.scale = 5
    assert not entry.hits(x)
    settings.scale = 1
    scale = 9
    assert not entry.hits(x)
    assert entry.reason(x) == "scale: expected 2, got 9"
    assert unread == 4


def test_closure_of_a_decorated_function(observe, x):
    scale = 2

    def decorate(function):
        @functools.wraps(function)
        def wrapper(*args):
            return function(*args) * scale

        return wrapper

    factor = 3

    @decorate
    def program(x):
        return x * factor

    entry = observe(program, x)
    factor = 4
    assert not entry.hits(x)
    factor = 3
    assert entry.hits(x)
    scale = 5
    assert not entry.hits(x)


def test_partial(observe, x):
    options = {"factor": 2}
    entry = observe(functools.partial(helper, **options), x)
    assert entry.hits(x)
    program = functools.partial(helper, factor=2)
    entry = observe(lambda x: program(x), x)
    program = functools.partial(helper, factor=3)
    assert not entry.hits(x)


def test_environment(observe, x, monkeypatch):
    import os

    monkeypatch.setenv("THUNDER_TEST_FLAG", "1")

    def program(x):
        return x * 2 if os.environ.get("THUNDER_TEST_FLAG") == "1" else x

    entry = observe(program, x)
    monkeypatch.setenv("THUNDER_TEST_FLAG", "0")
    assert not entry.hits(x)
    assert "THUNDER_TEST_FLAG" in entry.reason(x)
    monkeypatch.delenv("THUNDER_TEST_FLAG")
    assert not entry.hits(x)


def test_generators_and_comprehensions(observe, x):
    stages = [SimpleNamespace(inner=SimpleNamespace(scale=1)) for _ in range(2)]

    def scales():
        for stage in stages:
            yield stage.inner

    def program(x):
        for inner in scales():
            x = x * inner.scale
        return x * sum([stage.inner.scale for stage in stages])

    entry = observe(program, x)
    stages[1].inner.scale = 5
    assert not entry.hits(x)


def test_overwritten_global_is_written_and_guarded(observe, x, monkeypatch):
    monkeypatch.setitem(globals(), "CALLS", 0)

    def program(x):
        global CALLS
        CALLS += 1
        return x * CALLS

    entry = observe(program, x)
    assert [(write.target.describe(), write.value) for write in entry.writes] == [("CALLS", 1)]
    assert CALLS == 0
    monkeypatch.setitem(globals(), "CALLS", 5)
    assert not entry.hits(x)


def test_identity_comparison_of_arguments(observe, x):
    def program(x, one, other):
        return x if one is other else x * 2

    first, second = SimpleNamespace(), SimpleNamespace()
    entry = observe(program, x, first, second)
    assert not entry.hits(x, first, first)
    entry = observe(program, x, first, first)
    assert not entry.hits(x, first, second)


def _with_local_closure(x):
    factor = SCALE  # a cell; since Python 3.13 the instructions that make a closure count it among the locals

    def scaled():
        return x * factor

    def again():
        return scaled() + factor

    return [factor * k for k in range(2)][1] + again()


def test_closures_of_local_variables(observe, x, monkeypatch):
    entry = observe(_with_local_closure, x)
    assert entry.hits(x)
    monkeypatch.setitem(globals(), "SCALE", 3)
    assert not entry.hits(x)


@pytest.mark.parametrize(
    "name_of",
    [
        lambda settings, word, which: getattr(settings, f"{word:s}", 1),
        lambda settings, word, which: getattr(settings, f"{word!s}", 1),
        lambda settings, word, which: getattr(settings, "first" if which > 1 else "second", 1),
        lambda settings, word, which: getattr(settings, (which > 1 and "first") or "second", 1),
        lambda settings, word, which: getattr(settings, "SECOND".lower(), 1),
        lambda settings, word, which: getattr(settings, ("first", "second")[which], 1),
        lambda settings, word, which: getattr(settings, "a second"[which + 1 :], 1),
        lambda settings, word, which: getattr(settings, "sec" + word[3:], 1),
        lambda settings, word, which: getattr(settings, "third", getattr(settings, "second", 1)),
        lambda settings, word, which: getattr(getattr(settings, "third", settings), "second", 1),
        lambda settings, word, which: getattr(settings, "second", word if which > 1 else 1),
        lambda settings, word, which: getattr(settings if which else word, "second", 1),
        lambda settings, word, which: getattr(*(settings, "second", 1)),
        lambda settings, word, which: next(map(getattr, [settings], ["second"], [1])),
        lambda settings, word, which: vars(settings).get("second", 1),
        lambda settings, word, which: 2 if hasattr(settings, "sec" "ond") and settings.second else 1,
    ],
)  # fmt: skip
def test_names_given_to_accessors(observe, x, name_of):
    """However the name of an attribute is computed, its absence and its value are guarded."""
    settings = SimpleNamespace(unrelated=1)

    def program(x):
        word, which = "second", 1
        return x * name_of(settings, word, which)

    entry = observe(program, x)
    assert entry.hits(x), entry.reason(x)
    settings.second = 5
    assert not entry.hits(x)
    entry = observe(program, x)
    assert entry.hits(x), entry.reason(x)
    del settings.second
    assert not entry.hits(x)


def test_constant_names_given_to_accessors(observe, x):
    """A name that is a constant guards that attribute alone, whatever the default is."""
    settings = SimpleNamespace(scale=2, other=3)

    def program(x):
        total = x * getattr(settings, "scale", len([settings.other]) + 1)
        return total * getattr(settings, "absent", [1, 2][0] * 3)

    entry = observe(program, x)
    settings.unrelated = 1
    assert entry.hits(x), entry.reason(x)
    settings.absent = 2
    assert not entry.hits(x)
