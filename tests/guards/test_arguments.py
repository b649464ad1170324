"""Reads of arguments."""

from __future__ import annotations

import collections
import copy
import dataclasses
import datetime
import decimal
import enum
import gc
import math
import weakref
from datetime import UTC
from types import SimpleNamespace

import numpy
import pytest
import torch

from tests.runtime.young_heap import young_heap

EAST = datetime.timezone(datetime.timedelta(hours=1))


class Color(enum.Enum):
    RED = 1
    BLUE = 2


@dataclasses.dataclass
class Settings:
    scale: float = 2.0
    color: Color = Color.RED
    note: str = "unread"


@dataclasses.dataclass(slots=True)
class Slotted:
    scale: float = 2.0
    note: str = "unread"


@dataclasses.dataclass(frozen=True)
class Frozen:
    scale: int = 2


Pair = collections.namedtuple("Pair", "left right")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (1, 2),
        (1, 1.0),
        (1, True),
        (0, False),
        (True, 1),
        (0.0, -0.0),
        (1.5, 2.5),
        (math.nan, 1.0),
        (1.0, math.nan),
        (math.inf, -math.inf),
        (1j, 2j),
        (complex(0.0, 0.0), complex(0.0, -0.0)),
        ("a", "b"),
        ("a", b"a"),
        (None, 0),
        (0, None),
        (Color.RED, Color.BLUE),
        (Color.RED, 1),
        (torch.float32, torch.float64),
        (torch.device("cpu"), torch.device("meta")),
        (torch.strided, torch.sparse_coo),
        ((1, 2), (1, 3)),
        ((1, 2), (1, 2.0)),
        ((1, 2), (1, 2, 3)),
        ((1, 2), [1, 2]),
        ((1, (2, math.nan)), (1, (2, 3.0))),
        (frozenset({1}), frozenset({2})),
        (frozenset({1}), frozenset({True})),
        (slice(1, 2), slice(1, 3)),
        (range(3), range(4)),
        ([1, 2], [1, 3]),
        ([1, [2]], [1, [2.0]]),
        ({"a": 1}, {"a": 2}),
        ({"a": 1}, {"b": 1}),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({1, 2}, {1, 3}),
        (int, float),
        (Frozen(2), Frozen(3)),
        (..., None),
    ],
)
def test_plain_values_by_type_and_value(observe, x, before, after):
    def program(x, value):
        # a use that works for every kind of value
        return x + (value.scale if isinstance(value, Frozen) else len([value]))

    program_entry = observe(program, x, before)
    assert program_entry.hits(x, before)
    assert not program_entry.hits(x, after)
    keyword = observe(program, x, value=before)
    assert keyword.hits(x, value=before)
    assert not keyword.hits(x, value=after)


def test_nan_equals_itself(observe, x):
    entry = observe(lambda x, value: x * value, x, math.nan)
    assert entry.hits(x, float("nan"))


def test_call_shape(observe, x):
    def program(x, y=None, *rest, **options):
        return x

    entry = observe(program, x)
    assert not entry.hits(x, None)
    assert not entry.hits(x, flag=True)
    assert "positional" in entry.reason(x, None)
    entry = observe(program, x, a=1, b=2)
    assert entry.hits(x, a=1, b=2)
    assert not entry.hits(x, a=1)
    assert "keyword" in entry.reason(x, a=1)


def test_dataclass_by_read_fields(observe, x):
    def program(x, settings):
        return x * settings.scale if settings.color is Color.RED else x

    entry = observe(program, x, Settings())
    assert entry.hits(x, Settings(note="other"))
    assert not entry.hits(x, Settings(scale=3.0))
    assert not entry.hits(x, Settings(color=Color.BLUE))
    assert entry.reason(x, Settings(scale=3.0)) == "settings.scale: expected 2.0, got 3.0"
    assert not entry.hits(x, SimpleNamespace(scale=2.0, color=Color.RED))


def test_dataclass_with_slots(observe, x):
    entry = observe(lambda x, settings: x * settings.scale, x, Slotted())
    assert entry.hits(x, Slotted(note="other"))
    assert not entry.hits(x, Slotted(scale=3.0))


def test_namespace_and_nested_objects(observe, x):
    def program(x, config):
        return x * config.inner.scale

    entry = observe(program, x, SimpleNamespace(inner=SimpleNamespace(scale=2, unread=1), unread=1))
    assert entry.hits(x, SimpleNamespace(inner=SimpleNamespace(scale=2, unread=5)))
    assert not entry.hits(x, SimpleNamespace(inner=SimpleNamespace(scale=3, unread=1)))
    assert not entry.hits(x, SimpleNamespace())
    assert "config.inner" in entry.reason(x, SimpleNamespace())


def test_object_with_equality_of_its_own(observe, x):
    class Version:
        def __init__(self, number):
            self.number = number

        def __eq__(self, other):
            return self.number == other.number

        def __hash__(self):
            return hash(self.number)

    table = {Version(1): 2.0, Version(2): 3.0}

    def program(x, version):
        return x * table[version]

    entry = observe(program, x, Version(1))
    assert entry.hits(x, Version(1))
    assert not entry.hits(x, Version(2))


def test_tensors_in_nested_containers(observe, x):
    def program(batch, pair):
        return batch["x"] + batch["more"][0] + pair.left

    other = torch.ones(2, 4)
    entry = observe(program, {"x": x, "more": [other], "label": "a"}, Pair(x, 3))
    assert entry.paths == ["pair[0]", "batch['more'][0]"]
    assert entry.hits({"x": x, "more": [other], "label": "unread"}, Pair(x, 3))
    assert not entry.hits({"x": x, "more": [other, other], "label": "a"}, Pair(x, 3))
    assert not entry.hits({"x": x, "label": "a"}, Pair(x, 3))
    assert not entry.hits({"x": x, "more": [other], "label": "a"}, Pair(x, 4))
    assert not entry.hits({"x": x, "more": [torch.ones(3, 4)], "label": "a"}, Pair(x, 3))
    # the same object must still arrive on both paths
    assert not entry.hits({"x": x, "more": [other], "label": "a"}, Pair(torch.ones(2, 4), 3))
    assert entry.hits({"x": other, "more": [x], "label": "a"}, Pair(other, 3))


DICTIONARY_READS = {
    "subscript": lambda x, table: x * table["a"],
    "get": lambda x, table: x * table.get("a"),
    "membership": lambda x, table: x * 2 if "a" in table else x,
    "nested": lambda x, table: x * table["inner"]["a"],
}


@pytest.mark.parametrize("read", DICTIONARY_READS)
def test_entries_of_dictionaries(observe, x, read):
    program = DICTIONARY_READS[read]

    def table(**changes):
        return {"a": 2, "unread": 1, "inner": {"a": 2, "unread": 1}, **changes}

    entry = observe(program, x, table())
    assert entry.hits(x, table(unread=5, new=6)), entry.reason(x, table(unread=5, new=6))
    changed = {"inner": {"a": 3, "unread": 1}} if read == "nested" else {"a": 3}
    assert not entry.hits(x, table(**changed))
    without = table()
    del without["inner" if read == "nested" else "a"]
    assert not entry.hits(x, without)
    assert not entry.hits(x, None)


def test_missing_entries_of_dictionaries(observe, x):
    entry = observe(lambda x, table: x * table.get("a", 1) if "b" not in table else x, x, {"c": 1})
    assert entry.hits(x, {"c": 2})
    assert not entry.hits(x, {"a": 1})
    assert not entry.hits(x, {"b": 1})
    assert entry.reason(x, {"b": 1}) == "table['b']: did not exist, now it does"


@pytest.mark.parametrize(
    "program",
    [
        lambda x, table: x * len(table),
        lambda x, table: x * sum(table.values()),
        lambda x, table: x * sum(value for value in table.values()),
        lambda x, table: x * [value for key, value in table.items()][-1],
        lambda x, table: x * max(table, key=len).count("z") if table else x,
        lambda x, table: (lambda kept: x * kept["a"])(table),
        lambda x, table: x * SimpleNamespace(**table).a,
        lambda x, table: x * [table][0]["a"],
        lambda x, table: x * next(table[key] for key in ("a", "b")),
    ],
)
def test_dictionaries_read_as_a_whole(observe, x, program):
    entry = observe(program, x, {"a": 2, "b": 3})
    assert entry.hits(x, {"a": 2, "b": 3})
    assert not entry.hits(x, {"a": 2, "b": 3, "c": 4})
    assert not entry.hits(x, {"a": 2, "b": 4})


def test_tensor_metadata(observe, x):
    entry = observe(lambda x: x + 1, x)
    assert entry.hits(torch.zeros(2, 4))
    for other, word in (
        (torch.zeros(3, 4), "shape"),
        (torch.zeros(4, 2).t(), "stride"),
        (torch.zeros(2, 4, dtype=torch.float64), "dtype"),
        (torch.zeros(2, 4, device="meta"), "device"),
        (torch.zeros(2, 4, requires_grad=True), "requires_grad"),
        (torch.nn.Parameter(torch.zeros(2, 4)), "type"),
        (torch.zeros(2, 4).to_sparse(), "layout"),
        (torch._neg_view(torch.zeros(2, 4)), "is_neg"),
        (3, "expected a tensor"),
        (None, "expected a tensor"),
    ):
        assert not entry.hits(other), word
        assert word in entry.reason(other)
    complex_entry = observe(lambda x: x + 1, torch.zeros(2, dtype=torch.complex64))
    assert not complex_entry.hits(torch.zeros(2, dtype=torch.complex64).conj())


def test_strides_of_single_elements_do_not_count(observe):
    entry = observe(lambda x: x + 1, torch.zeros(1, 4))
    assert entry.hits(torch.zeros(4, 1).t())
    assert not entry.hits(torch.zeros(1, 8)[:, ::2])


def test_requires_grad_counts_without_gradients(observe, x):
    with torch.no_grad():
        entry = observe(lambda x: x + 1, x)
        assert entry.hits(x)
        assert not entry.hits(torch.ones(2, 4, requires_grad=True))


def test_unused_tensor_is_checked_by_type_only(observe, x):
    entry = observe(lambda x, unused: x + 1, x, x + 1)
    assert entry.hits(x, torch.zeros(7))
    assert not entry.hits(x, None)


def test_same_tensor_twice(observe, x):
    entry = observe(lambda x, y: x + y, x, x)
    assert not entry.hits(x, x + 1)
    assert entry.reason(x, x + 1) == "y: is no longer x"
    entry = observe(lambda x, y: x + y, x, x + 1)
    assert entry.hits(x, x)


def test_functions_as_arguments_by_code_and_closure(observe, x):
    def make(factor):
        return lambda value: value * factor

    def program(x, function):
        return function(x)

    entry = observe(program, x, make(2))
    assert entry.hits(x, make(2))
    assert not entry.hits(x, make(3))
    assert not entry.hits(x, lambda value: value)
    assert not entry.hits(x, torch.relu)
    assert observe(program, x, torch.relu).hits(x, torch.relu)


def test_objects_without_readable_state_by_identity(observe, x):
    marker, other = object(), object()
    entry = observe(lambda x, marker: x, x, marker)
    assert entry.hits(x, marker)
    assert not entry.hits(x, other)


@young_heap()
def test_identity_guards_do_not_keep_objects_alive(observe, x):
    generator = torch.Generator()
    entry = observe(lambda x, generator: x, x, generator)
    try:
        reference = weakref.ref(generator)
    except TypeError:
        pytest.skip("generators of this PyTorch take no weak references")
    entry.observer = None
    del generator
    gc.collect()
    assert reference() is None
    assert not entry.hits(x, None)


def test_module_as_argument(observe, x):
    def program(x, layer):
        return layer(x) * layer.scale

    def make(width, scale):
        layer = torch.nn.Linear(4, width)
        layer.scale = scale
        return layer

    entry = observe(program, x, make(3, 2))
    assert entry.paths == ["layer.weight", "layer.bias"] or set(entry.paths) >= {"layer.weight", "layer.bias"}
    assert entry.hits(x, make(3, 2))
    assert not entry.hits(x, make(5, 2))
    assert not entry.hits(x, make(3, 3))


def test_arrays_by_content_unless_lifted(observe, x):
    def program(x, array):
        return x * float(array[0])

    entry = observe(program, x, numpy.array([1.0, 2.0]))
    assert entry.hits(x, numpy.array([1.0, 2.0]))
    assert not entry.hits(x, numpy.array([3.0, 2.0]))
    assert not entry.hits(x, numpy.array([1.0, 2.0], dtype="float32"))
    scalar = observe(lambda x, value: x * float(value), x, numpy.float64(2.0))
    assert not scalar.hits(x, numpy.float64(3.0))
    assert not scalar.hits(x, 2.0)


@pytest.mark.parametrize(
    ("value", "other"),
    [
        (decimal.Decimal("2.5"), decimal.Decimal("2.50")),
        (range(0, 3, 2), range(0, 4, 2)),
        (datetime.datetime(2020, 1, 1, 0, tzinfo=UTC), datetime.datetime(2020, 1, 1, 1, tzinfo=EAST)),
        (numpy.float32(0.0), numpy.float32(-0.0)),
    ],
    ids=str,
)
def test_equal_values_that_are_not_identical(observe, x, value, other):
    assert value == other
    entry = observe(lambda x, value: (x + 1, str(value)), x, value)
    assert entry.hits(x, copy.deepcopy(value))
    assert not entry.hits(x, other)


@pytest.mark.parametrize(
    "nan",
    [
        lambda: numpy.float32("nan"),
        lambda: decimal.Decimal("nan"),
        lambda: decimal.Decimal("snan"),
        lambda: (float("nan"), 1.0),
    ],
    ids=["NumPy", "decimal", "signaling", "tuple"],
)
def test_values_with_nan(observe, x, nan):
    entry = observe(lambda x, value: (x + 1, str(value)), x, nan())
    assert entry.hits(x, nan())
