"""What a program writes, and taking it back."""

from __future__ import annotations

import collections
import functools
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from thunder_core.checks.source import Constants
from thunder_frontend.observe.observer import Observer
from thunder_frontend.observe.writes import WriteKind

COLLECTED = []
SETTINGS = SimpleNamespace(last=None)


def described(entry):
    return [(write.target.describe(), write.kind) for write in entry.writes]


def perform(entry, *args, **kwargs):
    """Run the statements that are generated for the writes."""
    names, values = Constants(), [write.value for write in entry.writes]
    lines = [line for index, write in enumerate(entry.writes) for line in write.statements(f"values[{index}]", names)]
    exec("\n".join(lines), {**names.namespace, "args": args, "kwargs": kwargs, "values": values})


def test_module_attributes(observe, x):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.count = 0
            self.gone = 1
            self.register_buffer("state", torch.zeros(2, 4))
            self.weight = nn.Parameter(torch.zeros(4))
            self.inner = nn.Linear(4, 4)

        def forward(self, x):
            self.count += 1
            self.fresh = "new"
            del self.gone
            self.state = self.state + x
            self.weight = nn.Parameter(torch.ones(4))
            self.inner.extra = x.shape
            self.other = nn.Identity()
            return x

    model = Model()
    before = {name: id(value) for name, value in model.state_dict(keep_vars=True).items()}
    entry = observe(model, x)
    assert (
        sorted(described(entry))
        == [
            ("module.count", WriteKind.SET),
            ("module.fresh", WriteKind.SET),
            ("module.gone", WriteKind.DELETE),
            ("module.inner.extra", WriteKind.SET),
            ("module.other", WriteKind.SET),
            ("module.state", WriteKind.SET),
            ("module.weight", WriteKind.SET),
        ]
        or len(described(entry)) == 7
    )
    assert (model.count, model.gone, hasattr(model, "fresh"), hasattr(model, "other")) == (0, 1, False, False)
    assert {name: id(value) for name, value in model.state_dict(keep_vars=True).items()} == before
    perform(entry, x)
    assert (model.count, model.fresh, hasattr(model, "gone")) == (1, "new", False)
    assert torch.equal(model.state, x)
    assert "other" in model._modules
    assert "state" in model._buffers


def test_deleted_buffers(observe, x):
    class Model(nn.BatchNorm1d):
        def forward(self, x):
            del self.running_mean
            return x

    model = Model(4)
    entry = observe(model, x)
    assert described(entry) == [("module.running_mean", WriteKind.DELETE)]
    assert "running_mean" in model._buffers
    perform(entry, x)
    assert "running_mean" not in model._buffers


def test_containers_in_place(observe, x):
    def program(x, holder):
        holder["list"].append(x + 1)
        holder["list"].append(x + 2)
        holder["replaced"][0] = "new"
        holder["dict"]["key"] = x
        del holder["dict"]["old"]
        holder["set"].add(5)
        holder["deque"].appendleft(x)
        holder["ordered"].move_to_end("a")
        holder["new"] = 1
        return x

    def make():
        return {
            "list": [0],
            "replaced": ["old", "kept"],
            "dict": {"old": 1, "plain": 2},
            "set": {1},
            "deque": collections.deque([1]),
            "ordered": collections.OrderedDict(a=1, b=2),
        }

    holder = make()
    parts = dict(holder)
    entry = observe(program, x, holder)
    assert holder == make()
    assert all(holder[name] is part for name, part in parts.items())
    kinds = dict(described(entry))
    assert kinds["holder['list']"] is WriteKind.EXTEND
    assert kinds["holder['replaced']"] is WriteKind.REPLACE
    assert kinds["holder['dict']['key']"] is WriteKind.SET
    assert kinds["holder['dict']['old']"] is WriteKind.DELETE
    assert kinds["holder['set']"] is WriteKind.REPLACE
    assert kinds["holder['deque']"] is WriteKind.REPLACE
    assert kinds["holder['ordered']['a']"] is WriteKind.SET
    perform(entry, x, holder)
    assert len(holder["list"]) == 3
    assert holder["replaced"] == ["new", "kept"]
    assert list(holder["dict"]) == ["plain", "key"]
    assert holder["set"] == {1, 5}
    assert list(holder["ordered"]) == ["b", "a"]
    assert holder["new"] == 1


def test_attributes_and_their_contents(observe, x):
    def program(x, holder):
        holder.value = x
        holder.items.append(x)
        holder.table["a"] = x
        del holder.old
        return x

    holder = SimpleNamespace(items=[], table={}, old=1)
    entry = observe(program, x, holder)
    perform(entry, x, holder)
    assert holder.value is x
    assert holder.items[0] is x
    assert holder.table["a"] is x
    assert not hasattr(holder, "old")


def test_slots_and_dictionary_subclasses(observe, x):
    class Slotted:
        __slots__ = ("value",)

    class Named(dict):
        pass

    def program(x, slotted, named):
        slotted.value = 2
        named["a"] = x
        named.attribute = 3
        return x

    slotted, named = Slotted(), Named()
    slotted.value = 1
    entry = observe(program, x, slotted, named)
    assert sorted(target for target, _ in described(entry)) == ["named.attribute", "named['a']", "slotted.value"]
    assert slotted.value == 1
    assert not named
    assert not hasattr(named, "attribute")


def test_writes_outside_of_the_arguments(observe, x):
    collected = []
    model = nn.Linear(4, 4)

    def program(x, mine):
        COLLECTED.append(x + 1)
        collected.append({"inner": x})
        SETTINGS.last = x * 2
        mine.append(x)
        model.last = x
        collected.append("plain")
        return model(x)

    entry = observe(program, x, [])
    targets = sorted(write.target.describe() for write in entry.writes)
    assert targets == ["COLLECTED", "SETTINGS.last", "collected", "mine", "model.last"]
    assert COLLECTED == []
    assert collected == []
    assert SETTINGS.last is None


def test_nonlocal(observe, x):
    calls = 0

    def program(x):
        nonlocal calls
        calls += 1
        return x * calls

    entry = observe(program, x)
    assert described(entry) == [("calls", WriteKind.SET)]
    assert calls == 0
    perform(entry, x)
    assert calls == 1


def test_undo_after_an_exception(x):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.log = []

        def forward(self, x):
            self.log.append(1)
            self.count = 1
            raise KeyError("mine")

    model = Model()
    observer = Observer(model, (x,), {})
    with pytest.raises(KeyError, match="mine"), observer:
        model(x)
    observer.undo()
    assert model.log == []
    assert not hasattr(model, "count")


def test_cached_property_is_written(observe, x):
    class Settings:
        @functools.cached_property
        def scale(self):
            return 2

    def program(x, settings):
        return x * settings.scale

    settings = Settings()
    entry = observe(program, x, settings)
    assert described(entry) == [("settings.scale", WriteKind.SET)]
    assert "scale" not in vars(settings)
    settings.scale = 3
    assert not entry.hits(x, settings)


def test_reading_only_writes_nothing(observe, x):
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.LSTM(4, 4))
    assert observe(lambda x: model[1](model[0](x)), x).writes == ()


def test_aliases_of_written_objects(observe, x):
    def program(x, one, other):
        one.value = 5
        return x * other.value

    def make():
        return SimpleNamespace(value=1)

    entry = observe(program, x, make(), make())
    shared = make()
    assert not entry.hits(x, shared, shared)
    assert "same object" in entry.reason(x, shared, shared)


def test_containers_nested_in_plain_ones(observe, x):
    def program(x, table, defaults=[1]):  # noqa: B006  a mutable default is what is tested
        table["a"].append(3)
        table["b"][0]["c"] = 4
        defaults.append(2)
        return x * table["a"][0]

    table = {"a": [1, 2], "b": ({"c": 1}, 2)}
    entry = observe(program, x, table)
    assert table == {"a": [1, 2], "b": ({"c": 1}, 2)}
    assert program.__defaults__ == ([1],)
    perform(entry, x, table)
    assert table == {"a": [1, 2, 3], "b": ({"c": 4}, 2)}
    assert program.__defaults__ == ([1, 2],)


def test_attributes_of_tensors(observe, x):
    def program(x, weight):
        weight.calls = getattr(weight, "calls", 0) + 1
        return x * weight.scale if hasattr(weight, "scale") else x * weight

    weight = nn.Parameter(torch.ones(4))
    entry = observe(program, x, weight)
    assert described(entry) == [("weight.calls", WriteKind.SET)]
    assert not hasattr(weight, "calls")
    weight.scale = 3
    assert not entry.hits(x, weight)
    entry = observe(program, x, weight)
    weight.scale = 4
    assert not entry.hits(x, weight)
    weight.scale = 3
    weight.calls = 7
    assert not entry.hits(x, weight)


def test_object_moved_to_another_attribute(observe, x):
    def program(x, holder):
        holder.current = holder.other
        return read(x, holder)

    def read(x, holder):
        return x * holder.current.scale

    def make(scale):
        return SimpleNamespace(current=None, other=SimpleNamespace(scale=scale))

    entry = observe(program, x, make(2))
    assert entry.hits(x, make(2))
    assert not entry.hits(x, make(3))
