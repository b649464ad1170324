"""State that programs read by other means than a name: slots, modules' dictionaries, ``super``, patterns, defaults."""

from __future__ import annotations

import collections
import enum
import operator
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

import thunder


class Slots:
    __slots__ = ("other", "value")

    def __init__(self) -> None:
        self.value = 1


class Base:
    def method(self) -> float:
        return 1.0


class Derived(Base):
    def method(self) -> float:
        return super().method() + 1


@dataclass
class Pair:
    first: float = 1.0
    items: list[float] = field(default_factory=lambda: [1.0])


class Member(enum.Enum):
    ONE = 1


class Holder:
    def __init__(self) -> None:
        self.table = {"key": 1.0}


def default_of_a_slot(state: Any) -> float:
    return getattr(state.slots, "other", 3)


def slot_that_may_be_empty(state: Any) -> float:
    try:
        return state.slots.other
    except AttributeError:
        return 3


def method_of_a_base_class(state: Any) -> float:
    return state.derived.method()


def positional_pattern(state: Any) -> float:
    match state.pair:
        case Pair(1.0, items):
            return len(items)
    return 0


def default_of_a_member(state: Any) -> float:
    return getattr(state.member, "other", 3)


def length_limit(state: Any) -> float:
    return state.deque.maxlen


def dictionary_of_a_python_module(state: Any) -> float:
    return state.module.__dict__["value"] + vars(state.module)["value"]


def default_of_a_python_module(state: Any) -> float:
    return getattr(state.module, "other", 3)


def item_behind_a_getter(state: Any) -> float:
    return operator.attrgetter("table")(state.holder)["key"]


def item_behind_a_default(state: Any) -> float:
    return getattr(state.holder, "table", {})["key"]


def default_of_a_tensor(state: Any) -> float:
    return getattr(state.tensor, "tag", 3)


def identity_of_tensors(state: Any) -> float:
    return 1 if state.tensor is state.tensors[0] else 2


def cell_of_a_function(state: Any) -> float:
    return state.function.__closure__[0].cell_contents


def closing_over(value: float) -> Callable[[], float]:
    return lambda: value


CHANGES: tuple[tuple[Callable[[Any], float], Callable[[Any], Any]], ...] = (
    (default_of_a_slot, lambda state: setattr(state.slots, "other", 5)),
    (slot_that_may_be_empty, lambda state: setattr(state.slots, "other", 5)),
    (method_of_a_base_class, lambda state: setattr(Base, "method", lambda self: 5.0)),
    (positional_pattern, lambda state: state.pair.items.append(2.0)),
    (default_of_a_member, lambda state: setattr(state.member, "other", 5)),
    (length_limit, lambda state: setattr(state, "deque", collections.deque([1], maxlen=7))),
    (dictionary_of_a_python_module, lambda state: setattr(state.module, "value", 5)),
    (default_of_a_python_module, lambda state: setattr(state.module, "other", 5)),
    (item_behind_a_getter, lambda state: state.holder.table.update(key=5.0)),
    (item_behind_a_default, lambda state: state.holder.table.update(key=5.0)),
    (default_of_a_tensor, lambda state: setattr(state.tensor, "tag", 5)),
    (identity_of_tensors, lambda state: setattr(state, "tensor", state.tensors[0])),
    (cell_of_a_function, lambda state: setattr(state.function.__closure__[0], "cell_contents", 5.0)),
)
STATE = types.SimpleNamespace()


@pytest.mark.parametrize(("read", "change"), CHANGES, ids=[read.__name__ for read, _ in CHANGES])
def test_state_that_changes(
    read: Callable[[Any], float], change: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Base, "method", Base.method)  # restores it
    module = types.ModuleType("of_the_user")
    vars(module)["value"] = 1
    state: dict[str, Any] = {"slots": Slots(), "derived": Derived(), "pair": Pair(), "member": Member.ONE}
    state |= {"deque": collections.deque([1], maxlen=5), "module": module, "holder": Holder()}
    state |= {"tensor": torch.ones(2), "tensors": [torch.ones(2)], "function": closing_over(1.0)}
    vars(STATE).update(state)

    def program(x: torch.Tensor) -> torch.Tensor:
        return x * read(STATE)

    compiled, x = thunder.jit(program), torch.ones(2)
    torch.testing.assert_close(compiled(x), program(x))
    compiled(x)
    assert thunder.cache_misses(compiled) == 1
    before = program(x)
    change(STATE)
    assert not torch.equal(program(x), before)
    torch.testing.assert_close(compiled(x), program(x))
