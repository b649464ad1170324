"""Objects of each kind that a program changes: the same as in eager, call after call."""

from __future__ import annotations

import array
import collections
import functools
import logging
import threading
from dataclasses import dataclass, field
from types import CellType, MethodType, SimpleNamespace

import pytest
import torch

import thunder


class Slotted:
    __slots__ = ("value",)

    def __init__(self):
        self.value = 1


@dataclass
class WithDefault:
    value: int = 0
    items: list = field(default_factory=list)


@dataclass(frozen=True)
class Frozen:
    value: int = 1


class Logged:
    def __init__(self):
        object.__setattr__(self, "log", [])
        self.value = 0

    def __setattr__(self, name, value):
        self.log.append(name)
        object.__setattr__(self, name, value)


def function():
    def created(number=1, *, factor=2):
        return number * factor

    return created


def counts(held):
    held.value = getattr(held, "value", 0) + 1


def deletes(held):
    if hasattr(held, "value"):
        del held.value
    else:
        held.value = 5


def deletes_attribute(held):
    if "value" in vars(held):
        del held.value


def moves(held):
    value = held.value
    del held.value
    held.value = value


def sets_defaults(held):
    held.__defaults__ = (held.__defaults__[0] + 1,)
    held.__kwdefaults__ = {"factor": held.__kwdefaults__["factor"] + 1}
    held.__name__ += "a"


def sets_attribute_of_function(held):
    held.__func__.value = getattr(held.__func__, "value", 0) + 1


def moves_item(held):
    held.move_to_end("a")


def sets_content(held):
    held.cell_contents += 1


def closing_over(value):
    return lambda: value


def sets_closure_variable(held):
    held.__closure__[0].cell_contents = held() + 1


def sets_byte(held):
    held[0] += 1


def sets_frozen(held):
    object.__setattr__(held, "value", held.value + 1)


CASES = {
    "empty slot": (Slotted, deletes, lambda held: getattr(held, "value", None)),
    "default of a class": (lambda: WithDefault(5), deletes_attribute, lambda held: (held.value, list(vars(held)))),
    "order of attributes": (lambda: SimpleNamespace(value=1, other=2), moves, lambda held: list(vars(held).items())),
    "__setattr__": (Logged, counts, vars),
    "frozen": (Frozen, sets_frozen, vars),
    "attribute of a function": (function, counts, vars),
    "defaults": (function, sets_defaults, lambda held: (held.__defaults__, held.__kwdefaults__, held.__name__)),
    "method": (lambda: MethodType(function(), 1), sets_attribute_of_function, vars),
    "partial": (lambda: functools.partial(function(), 1), counts, vars),
    "logger": (lambda: logging.Logger("name"), counts, lambda held: held.value),
    "exception": (lambda: ValueError("text"), counts, vars),
    "thread-local": (threading.local, counts, vars),
    "attribute of an OrderedDict": (collections.OrderedDict, counts, vars),
    "order of items": (lambda: collections.OrderedDict(a=1, b=2, c=3), moves_item, lambda held: list(held.items())),
    "cell": (lambda: CellType(1), sets_content, lambda held: held.cell_contents),
    "closure variable": (lambda: closing_over(1), sets_closure_variable, lambda held: held()),
    "bytearray": (lambda: bytearray(b"abc"), sets_byte, bytes),
    "array": (lambda: array.array("i", [1, 2]), sets_byte, list),
}


@pytest.mark.parametrize("case", CASES)
def test_kinds(case):
    make, change, content = CASES[case]

    def program(x, held):
        change(held)
        return x + 1

    compiled, x = thunder.jit(program), torch.ones(2)
    for _ in range(2):
        held, expected = make(), make()
        for _ in range(3):
            assert torch.equal(compiled(x, held), program(x, expected))
            assert content(held) == content(expected)


@pytest.mark.filterwarnings("ignore::thunder_core.errors.UncacheableWarning")
def test_a_partial_whose_parts_the_program_changes():
    """It runs eagerly."""

    def program(x, held):
        result = held(x)
        held.__setstate__((torch.add, (held.args[0] + 1,), {}, {}))
        return result

    compiled, x = thunder.jit(program), torch.ones(2)
    held, expected = (functools.partial(torch.mul, 2) for _ in range(2))
    for _ in range(3):
        assert torch.equal(compiled(x, held), program(x, expected))
        assert (held.func, held.args) == (expected.func, expected.args)


def test_a_closure_variable_that_gets_a_tensor():
    def program(x, held):
        cell = held.__closure__[0]
        before = held()
        cell.cell_contents = x * 2
        y = held() + before
        cell.cell_contents = y * 2
        return y

    compiled, x = thunder.jit(program), torch.ones(2)
    held, expected = closing_over(1.0), closing_over(1.0)
    for _ in range(3):
        assert torch.equal(compiled(x, held), program(x, expected))
        assert torch.equal(held(), expected())


def test_moved_items_are_read():
    def program(x, table):
        table.move_to_end("a")
        return x * table["a"]

    compiled, x = thunder.jit(program), torch.ones(2)
    for number in (1, 2):
        table, expected = (collections.OrderedDict(a=number, b=2, c=number) for _ in range(2))
        assert torch.equal(compiled(x, table), program(x, expected))
        assert list(table.items()) == list(expected.items())


def test_moved_keys_of_another_call():
    def program(x, table):
        table["a"] = table.pop("a")
        return x

    compiled, x = thunder.jit(program), torch.ones(2)
    for keys in ("abc", "bac", "bcda", "a"):
        table, expected = ({key: ord(key) for key in keys} for _ in range(2))
        compiled(x, table)
        program(x, expected)
        assert list(table.items()) == list(expected.items())


Pair = collections.namedtuple("Pair", "first second", defaults=(2,))


class Renamed:
    def scale(self, number=4):
        return number

    __call__ = scale
    __len__ = lambda self, number=3: number  # noqa: E731  the name of its code is another


def test_methods_by_other_names(monkeypatch):
    def program(x, held):
        return x * Pair(1).second * held() * len(held)

    compiled, x, held = thunder.jit(program), torch.ones(2), Renamed()
    changes = [
        lambda: None,
        lambda: monkeypatch.setattr(Pair.__new__, "__defaults__", (5,)),
        lambda: monkeypatch.setattr(Renamed, "__call__", lambda self, number=7: number),
        lambda: monkeypatch.setattr(Renamed.__len__, "__defaults__", (9,)),
        lambda: monkeypatch.setattr(Renamed, "__len__", lambda self: 11),
    ]
    for change in changes:
        change()
        assert torch.equal(compiled(x, held), program(x, held))
