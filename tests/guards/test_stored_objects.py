"""Programs that store an object of the user in a variable, attribute or item, and read it from there."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import thunder

Program = Callable[..., torch.Tensor]


class Config:
    """An object with other attributes in each test."""

    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)


FIRST, SECOND, OTHER, HOLDER = Config(), Config(), Config(), Config()
CURRENT = FIRST
NAME = "config"


def in_cell(x: torch.Tensor, config: Any) -> torch.Tensor:
    def held() -> Any:
        return config

    config = SECOND
    return x * getattr(config, "flag", 3) + (held() is None)


def in_cell_by_a_nested_function(x: torch.Tensor, config: Any) -> torch.Tensor:
    def store() -> None:
        nonlocal config
        config = SECOND

    store()
    return x * getattr(config, "flag", 3)


def in_global(x: torch.Tensor, config: Any) -> torch.Tensor:
    global CURRENT
    CURRENT = SECOND
    return x * getattr(CURRENT, "flag", 3)


def in_local(x: torch.Tensor, config: Any) -> torch.Tensor:
    del config
    config = SECOND
    return x * getattr(config, "flag", 3)


def in_attribute(x: torch.Tensor, config: Any) -> torch.Tensor:
    HOLDER.config = SECOND
    return x * getattr(HOLDER.config, "flag", 3)


def in_attribute_by_setattr(x: torch.Tensor, config: Any) -> torch.Tensor:
    setattr(HOLDER, "config", SECOND)  # noqa: B010
    return x * getattr(HOLDER.config, "flag", 3)


def in_attribute_by_a_computed_name(x: torch.Tensor, config: Any) -> torch.Tensor:
    setattr(HOLDER, NAME, SECOND)
    return x * getattr(HOLDER.config, "flag", 3)


LABELLED = (in_cell, in_cell_by_a_nested_function, in_global, in_local, in_attribute, in_attribute_by_setattr)


@pytest.mark.parametrize("program", [*LABELLED, in_attribute_by_a_computed_name])
def test_default_of_an_attribute_of_a_stored_object(program: Program) -> None:
    """The variable that the code reads has another label than the object that it stored there."""
    compiled = thunder.jit(program)

    def call(function: Program, **attributes: Any) -> torch.Tensor:
        global CURRENT, SECOND
        CURRENT, SECOND = FIRST, Config(**attributes)
        HOLDER.config = FIRST
        return function(torch.ones(2), OTHER)

    for attributes in ({}, {"flag": 7}):
        torch.testing.assert_close(call(compiled, **attributes), call(program, **attributes))


# ---------------------------------------------------------------- stored by one function, read by another

ITEMS: dict[str, Any] = {}
STACK: list[Any] = []


class Created:
    """The program creates its objects."""

    def __init__(self) -> None:
        self.config = SECOND


def store_attribute() -> None:
    HOLDER.config = SECOND


def store_item() -> None:
    ITEMS["config"] = SECOND


def push() -> None:
    STACK.append(SECOND)


def store_global() -> None:
    global CURRENT
    CURRENT = SECOND


def fill(holder: Any) -> None:
    holder.config = SECOND


def read_attribute(x: torch.Tensor) -> torch.Tensor:
    return x * HOLDER.config.value


def read_item(x: torch.Tensor) -> torch.Tensor:
    return x * ITEMS["config"].value


def read_top(x: torch.Tensor) -> torch.Tensor:
    return x * STACK[-1].value


def read_global(x: torch.Tensor) -> torch.Tensor:
    return x * CURRENT.value


@contextlib.contextmanager
def using(config: Any) -> Iterator[None]:
    before = HOLDER.config
    HOLDER.config = config
    try:
        yield
    finally:
        HOLDER.config = before


def by_context_manager(x: torch.Tensor) -> torch.Tensor:
    with using(SECOND):
        return read_attribute(x)


def twice_by_context_manager(x: torch.Tensor) -> torch.Tensor:
    x = read_attribute(x)
    with using(SECOND):
        return read_attribute(x)


def popped(x: torch.Tensor) -> torch.Tensor:
    x = read_top(x)
    STACK.append(SECOND)
    x = read_top(x)
    STACK.pop()
    return x


def by_constructor(x: torch.Tensor) -> torch.Tensor:
    return x * Created().config.value


def in_created_object(x: torch.Tensor) -> torch.Tensor:
    holder = Config()
    fill(holder)
    return x * holder.config.value


def after(store: Callable[[], None], read: Program, *, twice: bool) -> Program:
    """A program that reads after it has stored; with ``twice`` also before."""

    def program(x: torch.Tensor) -> torch.Tensor:
        x = read(x) if twice else x
        store()
        return read(x)

    program.__name__ = f"{store.__name__}-{'twice' if twice else 'once'}"
    return program


PAIRS = ((store_attribute, read_attribute), (store_item, read_item), (push, read_top), (store_global, read_global))
get_value = operator.attrgetter("value")


def after_a_getter(x: torch.Tensor) -> torch.Tensor:
    x = x * get_value(CURRENT)
    with using(SECOND):
        return read_attribute(x)


INDIRECT = [after(store, read, twice=twice) for store, read in PAIRS for twice in (False, True)]
DIRECT = [by_context_manager, after_a_getter, twice_by_context_manager, popped, by_constructor, in_created_object]


@pytest.mark.parametrize("program", [*INDIRECT, *DIRECT], ids=lambda program: program.__name__)
def test_attribute_of_a_stored_object(program: Program) -> None:
    """The code that reads the attribute does not contain the name of the object, only that of its place."""
    compiled = thunder.jit(program)

    def call(function: Program, value: float) -> torch.Tensor:
        global CURRENT, SECOND
        first = Config(value=2.0)
        CURRENT, SECOND = first, Config(value=value)
        HOLDER.config = ITEMS["config"] = first
        STACK[:] = [first]
        return function(torch.ones(2))

    for value in (3.0, 5.0, 5.0):
        torch.testing.assert_close(call(compiled, value), call(program, value))
    assert thunder.cache_misses(compiled) == 2


def read_inner(x: torch.Tensor, holder: Any) -> torch.Tensor:
    return x * holder.inner.config.value


def store_in_shared(x: torch.Tensor, owner: Any) -> torch.Tensor:
    """The code reaches the object that it changes in its first frame, from an object that is in both owners."""
    before, owner.holder.inner.config = owner.holder.inner.config, owner.stored
    x = read_inner(x, owner.holder)
    owner.holder.inner.config = before
    return x


def store_in_another(x: torch.Tensor, owner: Any) -> torch.Tensor:
    holder = owner.holder
    owner = owner.other
    owner.inner.config = owner.stored
    return read_inner(x, owner) + holder.inner.config.value


def store_in_result(x: torch.Tensor, owner: Any) -> torch.Tensor:
    inner = inner_of(owner)
    inner.config = owner.stored
    return read_inner(x, owner.holder)


def inner_of(owner: Any) -> Any:
    return getattr(owner.holder, "inn" + "er")


def store_in_many(x: torch.Tensor, *owners: Any) -> torch.Tensor:
    for owner in owners:
        owner.inner.config = owner.stored
        x = read_inner(x, owner)
    return x


@pytest.mark.parametrize("store", [store_in_shared, store_in_another, store_in_result, store_in_many])
def test_stored_by_one_of_several_frames(store: Callable[..., torch.Tensor]) -> None:
    """Each frame of a function may change the objects that the function reaches from the arguments of this frame."""

    def program(x: torch.Tensor, owners: list[Any]) -> torch.Tensor:
        for owner in owners:
            x = store(x, owner)
        return x

    compiled = thunder.jit(program)

    def call(function: Callable[..., torch.Tensor], value: float) -> torch.Tensor:
        holder = Config(inner=Config(config=Config(value=2.0)))
        parts: dict[str, Any] = {"inner": Config(config=Config(value=4.0)), "holder": holder}
        owners = [Config(stored=Config(value=value + index), **parts) for index in range(3)]
        for owner in owners:
            owner.other = Config(inner=Config(config=None), stored=owner.stored)
        return function(torch.ones(2), owners)

    for value in (3.0, 5.0, 5.0):
        torch.testing.assert_close(call(compiled, value), call(program, value))


class Storing:
    """A context manager that stores an object of the user in its target."""

    def __init__(self, target: Config) -> None:
        self.target = target

    def __enter__(self) -> None:
        self.target.config = FIRST

    def __exit__(self, *_: object) -> None: ...


def store_in_part_of_argument(x: torch.Tensor) -> torch.Tensor:
    """The code that reads the object reaches it by another path than the code that stored it."""
    target = Config()
    with Storing(target):
        return x * target.config.value


def store_deep_in_argument(x: torch.Tensor) -> torch.Tensor:
    target = Config(first=Config(second=Config(items={})))
    store_item(target)
    return x * target.first.second.items["key"][0][0].value


def store_item(target: Any) -> None:
    target.first.second.items["key"] = [(FIRST,)]


@pytest.mark.parametrize("program", [store_in_part_of_argument, store_deep_in_argument])
def test_stored_in_a_part_of_an_argument(program: Program) -> None:
    """A function stores an object of the user in a part of its argument, which its caller has created."""
    compiled, x = thunder.jit(program), torch.ones(2)
    for value in (2.0, 3.0, 2.0):
        FIRST.value = value
        torch.testing.assert_close(compiled(x), program(x))
