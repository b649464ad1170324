"""Objects that a program creates and returns: references between them are those of eager."""

from __future__ import annotations

import collections
import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder


class Node:
    """An object with attributes."""


class Text(str):
    """Text with attributes."""

    value: torch.Tensor


class Number(float):
    """A number with attributes."""

    value: torch.Tensor


GLOBAL = Text("global")
GLOBAL.value = torch.zeros(2)


class Pair:
    """An object whose state a function sets, the last item of what `__reduce_ex__` returns."""

    first: Any
    second: Any

    def __reduce_ex__(self, protocol: Any) -> Any:
        return Pair, (), [self.first, self.second], None, None, _set_pair


def _set_pair(pair: Pair, items: list[Any]) -> None:
    pair.first, pair.second = items


def tuple_in_its_list(x: torch.Tensor) -> Any:
    items: list[Any] = [x + 1]
    pair = (items, 2)
    items.append(pair)
    return pair


def set_in_its_item(x: torch.Tensor) -> Any:
    node: Any = Node()
    node.value = x + 1
    node.set = {node}
    return node.set


def slice_in_its_step(x: torch.Tensor) -> Any:
    step: list[Any] = [x + 1]
    result = slice(None, None, step)
    step.append(result)
    return result


@pytest.mark.parametrize(
    ("program", "holds"),
    [
        (tuple_in_its_list, lambda result: result[0][1] is result),
        (set_in_its_item, lambda result: next(iter(result)).set is result),
        (slice_in_its_step, lambda result: result.step[1] is result),
    ],
)
def test_a_cycle_has_one_object(program: Callable[[torch.Tensor], Any], holds: Callable[[Any], bool]) -> None:
    x = torch.ones(2)
    compiled = thunder.jit(program, executors=[])
    assert holds(program(x))
    first, second = compiled(x), compiled(x)
    assert holds(first)
    assert holds(second)
    assert first is not second


def test_a_function_sets_the_state() -> None:
    def program(x: torch.Tensor) -> Pair:
        pair = Pair()
        pair.first, pair.second = x + 1, "text"
        return pair

    result = thunder.jit(program, executors=[])(torch.ones(2))
    assert result.second == "text"
    assert torch.equal(result.first, torch.full((2,), 2.0))


class WithoutCache:
    """Pickles a part of its attributes."""

    def __init__(self, value: torch.Tensor) -> None:
        self.value, self.cache = value, value * 2

    def __getstate__(self) -> Any:
        return {"value": self.value}

    def __setstate__(self, state: Any) -> None:
        self.value, self.cache = state["value"], None


class ByConstructor:
    """Is pickled by its constructor, without one of the arguments."""

    def __init__(self, value: torch.Tensor, scale: int = 0) -> None:
        self.value, self.scale = value, scale

    def __reduce__(self) -> Any:
        return ByConstructor, (self.value,)


class Unpicklable:
    """Refuses to be pickled."""

    def __init__(self, value: torch.Tensor) -> None:
        self.value = value

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise RuntimeError("not to be pickled")


class Computed(tuple):
    """A tuple whose constructor takes other arguments."""

    def __new__(cls, first: Any, second: Any) -> Any:
        self = super().__new__(cls, (first, second))
        self.value = first + second
        return self


class Counting(dict[str, Any]):
    """Counts the assignments by ``__setitem__``."""

    assignments = 0

    def __setitem__(self, key: str, value: Any) -> None:
        self.assignments += 1
        super().__setitem__(key, value)


class Doubling(list[Any]):
    """Appends items twice."""

    def append(self, item: Any) -> None:
        super().append(item)
        super().append(item)


class Named(collections.OrderedDict[str, Any]):
    """Items that are attributes, too; pickled without attributes."""

    def __init__(self, **items: Any) -> None:
        super().__init__(**items)
        self.__dict__.update(items)

    def __reduce__(self) -> Any:
        return Named, (), None, None, iter(self.items())


class Frozen:
    """Has slots that its constructor alone sets."""

    __slots__ = ("__hidden", "value")

    def __init__(self, value: torch.Tensor) -> None:
        object.__setattr__(self, "value", value)
        object.__setattr__(self, "_Frozen__hidden", value * 3)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(name)


class ByName:
    """Has attributes of any name, in a dictionary."""

    def __init__(self, **values: Any) -> None:
        self.__dict__["values"] = values

    def __getattr__(self, name: str) -> Any:
        return self.__dict__["values"][name]


class Raised(ValueError):
    """An exception whose constructor takes other arguments than it has."""

    def __init__(self, value: torch.Tensor, code: int) -> None:
        super().__init__("raised", code)
        self.value = value


def doubled(x: torch.Tensor) -> Any:
    items = Doubling([x])
    items.append(x + 1)
    return items


def with_default(x: torch.Tensor) -> Any:
    items: Any = collections.defaultdict(list)
    items["a"].append(x + 1)
    items = Defaults(items.default_factory, items)
    return items


class Defaults(collections.defaultdict[str, Any]):
    """A dictionary with a default, and an attribute."""

    name = "defaults"


@pytest.mark.parametrize(
    ("program", "contents"),
    [
        (lambda x: WithoutCache(x + 1), lambda result: (result.value, result.cache)),
        (lambda x: ByConstructor(x + 1, 2), lambda result: (result.value, result.scale)),
        (lambda x: Unpicklable(x + 1), lambda result: result.value),
        (lambda x: Computed(x, x + 1), lambda result: (*result, result.value)),
        (lambda x: Counting(a=x + 1), lambda result: (dict(result), result.assignments)),
        (doubled, list),
        (lambda x: Named(a=x + 1, b=2), lambda result: (dict(result), result.a, result.b)),
        (lambda x: Frozen(x + 1), lambda result: (result.value, result._Frozen__hidden)),
        (lambda x: ByName(scale=x + 1), lambda result: result.scale),
        (lambda x: Raised(x + 1, 3), lambda result: (result.args[1], result.value)),
        (with_default, lambda result: (dict(result), result["b"], result.default_factory is list)),
    ],
)
def test_classes_with_methods_to_pickle_and_to_store(
    program: Callable[[torch.Tensor], Any], contents: Callable[[Any], Any]
) -> None:
    """Objects are created again as they are, whatever these methods do."""
    compiled = thunder.jit(program)
    for number in range(3):
        result, expected = compiled(torch.full((2,), number)), program(torch.full((2,), number))
        assert type(result) is type(expected)
        torch.testing.assert_close(contents(result), contents(expected), rtol=0, atol=0)
    assert thunder.cache_misses(compiled) == 1


class Single:
    """Pickled by name: there is one instance."""

    def __reduce__(self) -> str:
        return "SINGLE"


SINGLE = Single()


def test_an_object_that_is_pickled_by_name_is_the_same_object() -> None:
    held = [SINGLE]
    compiled = thunder.jit(lambda x: (x + 1, held[0], copy.copy(SINGLE)))
    for _ in range(2):
        assert compiled(torch.ones(2))[1] is compiled(torch.ones(2))[2] is SINGLE


@pytest.mark.parametrize("kind", [Text, Number])
def test_numbers_and_text_with_attributes(kind: Any) -> None:
    def program(x: torch.Tensor) -> Any:
        result = kind("2.5")
        result.value = x + 1
        return result

    compiled = thunder.jit(program, executors=[])
    for x in (torch.ones(2), torch.zeros(2)):
        result = compiled(x)
        assert type(result) is kind
        assert result == kind("2.5")
        assert torch.equal(result.value, x + 1)


def test_global_text_with_attributes_is_the_same_object() -> None:
    compiled = thunder.jit(lambda x: (x + 1, GLOBAL), executors=[])
    for _ in range(2):
        assert compiled(torch.ones(2))[1] is GLOBAL


def test_an_int_that_is_too_long_to_print() -> None:
    compiled = thunder.jit(lambda x: (x + 1, 10**5000), executors=[])
    assert compiled(torch.ones(2))[1] == 10**5000
