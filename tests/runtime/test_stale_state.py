"""State that is read by other means than Python code in sight: a later call sees what has changed."""

from __future__ import annotations

import copy
import datetime
import operator
import os
import time
import uuid
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import thunder
from thunder_core.errors import UncacheableWarning

GLOBAL = 2.0


def compare(jit: Callable[[Any], Any], program: Callable[..., Any], *changes: Callable[[], Any]) -> None:
    """The same as eager before and after each change."""
    compiled = jit(program)
    for change in (lambda: None, lambda: None, *changes):
        change()
        assert torch.equal(compiled(torch.ones(2)), program(torch.ones(2)))


@pytest.mark.parametrize("path", ["number", "inner.number"])
def test_attribute_getters(jit, path):
    held = SimpleNamespace(number=2.0, inner=SimpleNamespace(number=3.0))
    getter = operator.attrgetter(path)

    def change():
        held.number = held.inner.number = 5.0

    compare(jit, lambda x: x * getter(held), change)


def test_attribute_getter_kept_by_an_object(jit):
    held = SimpleNamespace(number=2.0, reader=SimpleNamespace(get=operator.attrgetter("number")))

    def read(reader, owner):
        return reader.get(owner)

    compare(jit, lambda x: x * read(held.reader, held), lambda: setattr(held, "number", 4.0))


def test_method_callers(jit):
    class Held:
        number = 2.0

        def double(self, more=0):
            return self.number * 2 + more

    held = Held()
    plain, with_keywords = operator.methodcaller("double"), operator.methodcaller("double", more=1)
    compare(
        jit,
        lambda x: x * plain(held) + with_keywords(held),
        lambda: setattr(held, "number", 3.0),
        lambda: setattr(held, "double", lambda more=0: 7.0),
    )


def test_item_getters(jit):
    held, getter = {"number": 2.0}, operator.itemgetter("number")
    compare(jit, lambda x: x * getter(held), lambda: held.update(number=3.0))


def test_weak_references(jit):
    class Held:
        number = 2.0

    held = Held()
    held.number = 2.5
    reference = weakref.ref(held)
    compare(jit, lambda x: x * reference().number, lambda: setattr(held, "number", 3.0))


def test_dictionary_of_globals(jit, monkeypatch):
    compare(jit, lambda x: x * globals()["GLOBAL"], lambda: monkeypatch.setitem(globals(), "GLOBAL", 3.0))


def test_methods_that_were_added_to_tensors(jit, monkeypatch):
    monkeypatch.setattr(torch.Tensor, "added_by_a_test", lambda self: self * 2, raising=False)
    compare(
        jit,
        lambda x: (x + 1).added_by_a_test(),
        lambda: monkeypatch.setattr(torch.Tensor, "added_by_a_test", lambda self: self * 3),
    )


def test_state_that_pytorch_tells(jit):
    threads, seed = torch.get_num_threads(), torch.initial_seed()
    try:
        compare(jit, lambda x: x * torch.initial_seed(), lambda: torch.manual_seed(1), lambda: torch.manual_seed(2))
        compare(jit, lambda x: x * torch.get_num_threads(), lambda: torch.set_num_threads(threads + 1))
        compare(
            jit,
            lambda x: x * (2 if torch.is_anomaly_enabled() else 1),
            lambda: torch.autograd.set_detect_anomaly(True),
        )
    finally:
        torch.set_num_threads(threads)
        torch.manual_seed(seed)
        torch.autograd.set_detect_anomaly(False)


def test_flags_of_backends(jit):
    # by `set_flags`: parts of PyTorch that other tests import forbid to assign flags
    before = torch.backends.cudnn.benchmark
    compare(
        jit,
        lambda x: x * (2 if torch.backends.cudnn.benchmark else 1),
        lambda: torch.backends.cudnn.set_flags(_benchmark=not before),
        lambda: torch.backends.cudnn.set_flags(_benchmark=before),
    )
    compare(
        jit,
        lambda x: x * (2 if torch.backends.mkldnn.enabled else 1),
        lambda: torch.backends.mkldnn.set_flags(False),
        lambda: torch.backends.mkldnn.set_flags(True),
    )


@pytest.mark.filterwarnings("ignore::thunder_core.errors.UncacheableWarning")
@pytest.mark.parametrize(
    "read",
    [
        lambda: time.time_ns() % 10**9,
        lambda: time.perf_counter_ns() % 10**9,
        lambda: datetime.datetime.now().microsecond,
        lambda: int.from_bytes(os.urandom(2), "little"),
        lambda: uuid.uuid4().int % 10**4,
    ],
    ids=["time", "perf_counter", "datetime", "urandom", "uuid4"],
)
def test_what_tells_something_else_each_time(jit, read):
    compiled = jit(lambda x: x.double() * read())
    assert len({compiled(torch.ones(1)).item() for _ in range(4)}) > 1


def test_the_warning_names_what_cannot_be_repeated():
    with pytest.warns(
        UncacheableWarning, match=r"takes values from os\.urandom, which a compiled program cannot repeat"
    ):
        thunder.jit(lambda x: x * len(os.urandom(2)))(torch.ones(1))


def test_clocks_of_the_library_do_not_prevent_reuse(check):
    import logging

    logger = logging.getLogger("thunder.tests.clocks")

    def program(x):
        logger.makeRecord(logger.name, logging.INFO, "", 0, "message", (), None)
        return x * 2

    check(program, lambda: (torch.randn(2),))


class Numbers:
    """Attributes in an order."""

    def __init__(self, **numbers: float) -> None:
        for name, number in numbers.items():
            setattr(self, name, number)

    def own(self) -> Any:
        return self.__dict__.values()


class NumbersOfModule(torch.nn.Module):
    own = Numbers.own

    def __init__(self, **numbers: float) -> None:
        super().__init__()
        for name, number in numbers.items():
            setattr(self, name, number)


READS: dict[str, Callable[[Any], Any]] = {
    "vars": lambda held: vars(held).values(),
    "__dict__": lambda held: held.__dict__.values(),
    "method": lambda held: held.own(),
    "names": lambda held: [getattr(held, name) for name in vars(held)],
    "unpacked": lambda held: {**vars(held)}.values(),
    "getattr": lambda held: getattr(held, "__dict__").values(),  # noqa: B009 - what is tested
    "computed name": lambda held: getattr(held, "__di" + "ct__").values(),
    "attrgetter": lambda held: operator.attrgetter("__dict__")(held).values(),
    "object": lambda held: object.__getattribute__(held, "__dict__").values(),
    "copy": lambda held: vars(copy.copy(held)).values(),
    "deep copy": lambda held: copy.deepcopy(vars(held)).values(),
}


@pytest.mark.parametrize("kind", [Numbers, NumbersOfModule, SimpleNamespace])
@pytest.mark.parametrize("name", READS)
@pytest.mark.slow
def test_order_of_attributes(jit, name, kind):
    if kind is SimpleNamespace and name == "method":
        kind = type("Derived", (SimpleNamespace,), {"own": Numbers.own})

    def program(x):
        for number in READS[name](held):
            if type(number) is float:
                x = x * 2 + number
        return x

    def change():
        first = held.first
        del held.first
        held.first = first

    held = kind(first=2.0, second=3.0, third=4.0)
    compare(jit, program, change, change)


def test_order_of_attributes_does_not_count_where_nobody_sees_it(jit):
    held = Numbers(first=2.0, second=3.0)
    compiled = jit(lambda x: x * sum(getattr(held, name) for name in ("first", "second")))
    for _ in range(3):
        compiled(torch.ones(2))
        first = held.first
        del held.first
        held.first = first
    assert thunder.cache_misses(compiled) == 1
