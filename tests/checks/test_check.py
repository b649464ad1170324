"""Rows of guards: the code of the prologue, the explanation and the dispatch key of one row agree."""

from __future__ import annotations

import abc
import collections
import functools
import types
import weakref

import numpy as np
import pytest
import torch

from thunder_core.checks import conditions
from thunder_core.checks.check import Check, Condition
from thunder_core.checks.global_state import GlobalState
from thunder_core.checks.guard import CallShape
from thunder_core.checks.plain import is_plain
from thunder_core.checks.prologue import Prologue, build_prologue
from thunder_core.checks.source import ArgumentSource, ConstantSource, NamespaceSource


class Plain:
    pass


class Renamed(dict):
    def __len__(self):
        return 7


class Base(abc.ABC):
    @abc.abstractmethod
    def method(self): ...


@functools.lru_cache
def cached(number):
    return number


cached(1)
ROWS = {name: row for name, row in vars(conditions).items() if isinstance(row, Condition)}
X = ArgumentSource(0, "x")
PLAIN = Plain()
MODULE = torch.nn.Linear(2, 2)
ARRAY = np.arange(3)
VALUES = (
    *(None, True, False, 0, 1, 0.0, -0.0, 2.0, float("nan"), 1j, "a", b"a", (), (1, "a"), (1, 1.0), [1], [], {"a": 1}),
    *({"a": 1, "b": 2}, {}, {1}, set(), frozenset({1}), slice(1), torch.float32, torch.device("cpu"), torch.Size([1])),
    *(
        PLAIN,
        Plain(),
        Plain,
        Base,
        int,
        len,
        (len, max),
        Renamed(a=1),
        collections.OrderedDict(a=1),
        MODULE,
        ARRAY,
        ARRAY + 1,
        cached,
        weakref.ref(PLAIN),
    ),
    *(Plain.__init__, lambda: 1, types.SimpleNamespace(a=1), torch.zeros(2), torch),
)
EXPECTED = {
    "TYPE": (int, bool, dict, Plain, types.FunctionType),
    "VALUE": (*filter(is_plain, VALUES), [1], [], {"a": 1}, {}, {1}),
    "EQUALITY": (1, "a", torch.device("cpu"), bytearray(b"a")),
    "IDENTITY": (PLAIN, Plain, len, torch),
    "CODE": (VALUES[-4].__code__,),
    "SUBCLASS": (Plain, int),
    "NO_SUBCLASS": (Plain, int),
    "CACHED_RESULTS": (1, 2),
    "BASES": (Plain.__mro__, Base.__mro__),
    "CLASS_ATTRIBUTE_NAMES": (frozenset(vars(Plain)), frozenset(vars(Plain)) - {"__doc__"}, frozenset({"a"})),
    "DEFINED_NAMES": (frozenset(vars(Plain)), frozenset(vars(Plain)) - {"__doc__"}, frozenset({"a"})),
    "NOT_AMONG": ({}, {id(PLAIN): PLAIN}),
    "LENGTH": (0, 1),
    "STORED_LENGTH": (0, 1),
    "KEYS": (("a",), (1,), ()),
    "STRING_KEYS": (("a", "b"), ()),
    "STORED_KEYS": (("a",), (1,)),
    "ATTRIBUTES": ((), ("a",)),
    "ATTRIBUTES_IN_ANY_ORDER": (frozenset(), frozenset({"a"})),
    "SAME_ITEMS": ((), (0,)),
    "MEMBERS": ((1,), (), (PLAIN,)),
    "ARRAY": (conditions.array_content(ARRAY), conditions.array_content(ARRAY, content=False)),
    "NO_ENTRY": ("a", 1),
    "NOT_IN_DICT": ("a", "training"),
    "NO_ATTRIBUTE": ("a", "training", "two words"),
    "BUILTINS": ((len, max), (len, min)),
    "GONE": (None,),
    "EMPTY_SLOT": ("__name__", "__defaults__"),
    "NOT_SHADOWED": (frozenset({"a"}), frozenset({"len", "b"})),
    "NO_HOOKS": (None,),
}
OF_PATHS = {"ALIAS", "DISTINCT", "OTHER_MEMORY", "REFERENT"}
OF_ATTRIBUTES = {"ATTRIBUTES", "ATTRIBUTES_IN_ANY_ORDER", "NOT_IN_DICT", "NO_HOOKS"}


def prologue_of(check: Check) -> Prologue:
    return build_prologue((check,), (), state=GlobalState.current(), shape=CallShape(1))


def holds(prologue: Prologue, value: object) -> bool:
    """Whether the check holds, as the prologue sees it; the explanation must see the same."""
    result = prologue.function((value,), {}) is not None
    why = prologue.why((value,), {})
    assert result == (why is None), f"{prologue}\n{value!r}\n{why}"
    assert why is None or why.startswith("x")
    return result


def test_all_kinds_are_tried() -> None:
    assert EXPECTED.keys() | OF_PATHS == ROWS.keys()


@pytest.mark.parametrize("name", EXPECTED)
def test_code_explanation_and_key_agree(name: str) -> None:
    seen = set()
    for expected in EXPECTED[name]:
        check = Check(NamespaceSource(X) if name in OF_ATTRIBUTES else X, ROWS[name], expected)
        prologue, keys = prologue_of(check), dict(check.keys())
        for value in VALUES:
            fits = holds(prologue, value)
            seen.add(fits)
            held = vars(value) if fits and name in OF_ATTRIBUTES else value
            for key, answer in keys.items() if fits else ():
                assert eval(key.expression.format(value="held"), {"held": held}) == answer
    assert seen == {True, False}


def test_other_paths() -> None:
    known = ConstantSource(PLAIN, "known")
    assert holds(prologue_of(Check(X, conditions.ALIAS, known)), PLAIN)
    assert not holds(prologue_of(Check(X, conditions.ALIAS, known)), Plain())
    assert holds(prologue_of(Check(X, conditions.DISTINCT, known)), Plain())
    assert not holds(prologue_of(Check(X, conditions.DISTINCT, known)), PLAIN)
    assert prologue_of(Check(X, conditions.ALIAS, known)).why((1,), {}) == "x: is no longer known"


def test_a_reference_keeps_nothing_alive() -> None:
    value = Plain()
    check = conditions.identity_check(X, value)
    assert check.condition is conditions.REFERENT
    assert holds(prologue_of(check), value)
    assert not holds(prologue_of(check), Plain())
    del value
    assert not holds(prologue_of(check), None)
    assert prologue_of(check).why((1,), {}) == "x: is not the same object as before (Plain)"


def test_a_new_kind_is_a_row() -> None:
    even = Condition("parity", "{value} % 2", conditions.EQUAL, lambda value, expected: f": {value} has another parity")
    check = Check(X, even, 0)
    assert holds(prologue_of(check), 4)
    assert not holds(prologue_of(check), 5)
    assert " % 2 != 0:" in prologue_of(check).python()
    assert prologue_of(check).why((5,), {}) == "x: 5 has another parity"
    assert list(dict(check.keys()).values()) == [0]
    assert check.describe() == "x: parity"
