"""Attributes of the user's objects that a program reads through objects that it creates: iterators, exceptions, ..."""

from __future__ import annotations

import collections
import contextvars
import functools
import itertools
import sys
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import thunder
from thunder_core.errors import UncacheableWarning
from thunder_frontend.observe.stored_objects import MOST_FRESH


class Config:
    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)


CONFIG = Config(scale=1.0)
HOLDER = Config(config=CONFIG)
Pair = collections.namedtuple("Pair", ("first", "second"))
VARIABLE: contextvars.ContextVar[Config] = contextvars.ContextVar("variable", default=CONFIG)
VARIABLE_THAT_IS_SET: contextvars.ContextVar[Config] = contextvars.ContextVar("variable_that_is_set")
VARIABLE_THAT_IS_SET.set(CONFIG)


class Error(Exception):
    pass


class WithDefault:
    config = CONFIG


def raises() -> None:
    raise ValueError((("a", [CONFIG]),))


def raises_attribute() -> None:
    raise ValueError(HOLDER.config)


def raises_with_attribute() -> None:
    error = Error()
    error.config = CONFIG  # type: ignore[attr-defined]
    raise error


def raises_with_cause() -> None:
    try:
        raises_with_attribute()
    except Error as error:
        raise KeyError from error


def of_exception() -> Any:
    try:
        raises()
    except ValueError as error:
        return error.args[0][0][1][0].scale


def of_attribute_in_exception() -> Any:
    try:
        raises_attribute()
    except ValueError as error:
        return error.args[0].scale


def of_attribute_of_exception() -> Any:
    try:
        raises_with_attribute()
    except Error as error:
        return error.config.scale  # type: ignore[attr-defined]


def of_cause() -> Any:
    try:
        raises_with_cause()
    except KeyError as error:
        return error.__cause__.config.scale  # type: ignore[union-attr]


TABLE = {"a": CONFIG}


class WithProperty:
    @property
    def config(self) -> Config:
        return CONFIG


WITH_PROPERTY = WithProperty()


def given() -> Config:
    return CONFIG


def new_error() -> ValueError:
    return ValueError(CONFIG)


def raises_result() -> None:
    raise ValueError(given())


def raises_item() -> None:
    raise ValueError(TABLE["a"])


def raises_property() -> None:
    raise ValueError(WITH_PROPERTY.config)


def raises_error_of_another() -> None:
    raise new_error()


def raises_missing_key() -> None:
    {}[CONFIG]


def raises_missing_attribute() -> None:
    CONFIG.missing  # noqa: B018


def of_raised(function: Callable[[], None]) -> Any:
    try:
        function()
    except AttributeError as error:
        return error.obj.scale  # type: ignore[attr-defined]
    except (ValueError, KeyError) as error:
        return error.args[0].scale


def yields() -> Iterator[Any]:
    yield 1
    return CONFIG


def of_generator() -> Any:
    generator = yields()
    next(generator)
    try:
        next(generator)
    except StopIteration as stop:
        return stop.value.scale


def create_class() -> Any:
    class Created:
        pass

    Created.config = CONFIG  # type: ignore[attr-defined]
    return Created()


def deep() -> Any:
    value: Any = CONFIG
    for _ in range(8):
        value = [Config(inner=value)]
    return value


def of_deep() -> Any:
    value = deep()
    for _ in range(8):
        value = value[0].inner
    return value.scale


def deep_store(value: Any) -> None:
    value.inner = CONFIG


def of_deep_store() -> Any:
    value = Config(inner=Config(inner=Config(inner=Config(inner=Config(inner=Config())))))
    deep_store(value.inner.inner.inner.inner.inner)
    return value.inner.inner.inner.inner.inner.inner.scale


def store_item(items: list[Any]) -> None:
    items[0] = CONFIG


def of_stored_item() -> Any:
    items: list[Any] = [0] * 100
    store_item(items)
    return items[0].scale


def identity(value: Any) -> Any:
    return value


def created(create: Callable[[], Any]) -> Any:
    return create()


# the functions that create an object, so that another frame reads it
CREATED: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "iter": (lambda: iter([CONFIG]), next),
    "map": (lambda: map(identity, [CONFIG]), next),
    "zip": (lambda: zip([CONFIG], [1], strict=True), lambda value: next(value)[0]),
    "enumerate": (lambda: enumerate((CONFIG,)), lambda value: next(value)[1]),
    "reversed": (lambda: reversed([1, CONFIG]), next),
    "filter": (lambda: filter(None, [CONFIG]), next),
    "chain": (lambda: itertools.chain([CONFIG], []), next),
    "islice": (lambda: itertools.islice([0, CONFIG], 1, None), next),
    "product": (lambda: itertools.product([CONFIG], [1]), lambda value: next(value)[0]),
    "repeat": (lambda: itertools.repeat(CONFIG, 2), next),
    "values": (lambda: {1: CONFIG}.values(), lambda value: next(iter(value))),
    "items": (lambda: {1: CONFIG}.items(), lambda value: next(iter(value))[1]),
    "key": (lambda: {CONFIG: 1}, lambda value: next(iter(value))),
    "keys": (lambda: {CONFIG: 1}.keys(), lambda value: next(iter(value))),
    "iterator of a deque": (lambda: iter(collections.deque([CONFIG])), next),
    "mapping proxy": (lambda: types.MappingProxyType({1: CONFIG}), lambda value: value[1]),
    "deque": (lambda: collections.deque([CONFIG]), lambda value: value[0]),
    "partial": (lambda: functools.partial(max, CONFIG, key=id), lambda value: value.args[0]),
    "slice": (lambda: slice(CONFIG), lambda value: value.stop),
    "weakref": (lambda: weakref.ref(CONFIG), lambda value: value()),
    "namedtuple": (lambda: Pair([CONFIG], 1), lambda value: value.first[0]),
    "long list": (lambda: [CONFIG, *range(100)], lambda value: value[0]),
    "long tuple": (lambda: (CONFIG, *range(100)), lambda value: value[0]),
    "long dictionary": (lambda: dict.fromkeys(range(100), CONFIG), lambda value: value[5]),
    "class attribute": (WithDefault, lambda value: value.config),
    "attribute of a created class": (create_class, lambda value: value.config),
    "nested": (
        lambda: {"a": {"b": {"c": {"d": {"e": {"f": CONFIG}}}}}},
        lambda value: value["a"]["b"]["c"]["d"]["e"]["f"],
    ),
}
READS: dict[str, Callable[[], Any]] = {
    **{name: lambda create=create, read=read: read(created(create)).scale for name, (create, read) in CREATED.items()},
    "exception": of_exception,
    "attribute in an exception": of_attribute_in_exception,
    "attribute of an exception": of_attribute_of_exception,
    "cause": of_cause,
    **{
        function.__name__: lambda function=function: of_raised(function)
        for function in (raises_result, raises_item, raises_property, raises_error_of_another)
    },
    **{
        function.__name__: lambda function=function: of_raised(function)
        for function in (raises_missing_key, raises_missing_attribute)
        if sys.version_info >= (3, 12)  # no event has the exception before
    },
    "StopIteration": of_generator,
    "deep": of_deep,
    "deep store": of_deep_store,
    "stored item": of_stored_item,
    "default of a context variable": lambda: VARIABLE.get().scale,
    "context variable": lambda: VARIABLE_THAT_IS_SET.get().scale,
}


@pytest.mark.parametrize("name", READS)
@pytest.mark.battery
def test_attributes_are_guarded(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read = READS[name]
    compiled = thunder.jit(lambda x: x * read(), dynamic=False)
    x = torch.ones(2)
    for scale in (1.0, 2.0, 1.0, 3.0):
        monkeypatch.setattr(CONFIG, "scale", scale)
        assert torch.equal(compiled(x), x * scale)
    assert thunder.cache_misses(compiled) == 3


@pytest.mark.slow
def test_a_program_whose_objects_are_too_many_is_not_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    def create() -> list[Any]:
        return [CONFIG, *[[] for _ in range(MOST_FRESH)]]

    compiled = thunder.jit(lambda x: x * created(create)[0].scale)
    x = torch.ones(2)
    with pytest.warns(UncacheableWarning, match=f"more than {MOST_FRESH} objects"):
        assert torch.equal(compiled(x), x)
    monkeypatch.setattr(CONFIG, "scale", 2.0)
    with pytest.warns(UncacheableWarning):
        assert torch.equal(compiled(x), x * 2)
