"""What is replaced while a program is recorded, and that all of it is put back."""

from __future__ import annotations

import inspect
import math
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import thunder
from thunder_core.errors import UnsupportedError
from thunder_frontend.record import interceptions
from thunder_frontend.record.interception import Interception, Setting, owner_of, static_attribute
from thunder_frontend.record.interceptions import TABLE, add_interceptions, intercepting
from thunder_frontend.record.recorder import Recorder


class Scale:
    """A library's class, whose methods end in no torch function."""

    factor = 2.0

    def by_object(self, x: torch.Tensor) -> float:
        return self.factor

    @classmethod
    def by_class(cls, x: torch.Tensor) -> float:
        return cls.factor

    @staticmethod
    def by_number(x: torch.Tensor) -> float:
        return 2.0


class Inherits(Scale):
    """Has what it inherits."""


def scale(x: torch.Tensor) -> float:
    return 2.0


_held_elsewhere = scale


def _three(recorder: Recorder, original: Any, /, *args: Any, **kwargs: Any) -> float:
    assert original(*args, **kwargs) == 2.0
    return 3.0


@pytest.fixture(autouse=True)
def only_these(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that tests add are for these tests; plugins of the preset have added theirs before."""
    thunder.jit(scale)
    monkeypatch.setattr(interceptions, "_added", [])


def _state() -> Iterator[tuple[Any, ...]]:
    """What each attribute of the table is, with the code of functions."""
    for row in TABLE:
        owner = owner_of(row)
        if owner is not None:
            held = static_attribute(owner, row.name)
            yield row.name in vars(owner), held, getattr(getattr(held, "__func__", held), "__code__", None)


def test_the_table_says_what_each_row_is_for() -> None:
    assert len(TABLE) > 50
    assert all(row.purpose for row in TABLE)
    assert all(row.name in dir(owner_of(row)) for row in TABLE if owner_of(row) is not None)


def test_everything_is_replaced_and_put_back() -> None:
    before = list(_state())
    with intercepting():
        during = list(_state())
    assert [one == other for one, other in zip(before, during, strict=True)] == [False] * len(before)
    assert list(_state()) == before


def test_nothing_is_left_replaced_when_the_program_raises() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        torch.seed()
        return x

    before = list(_state())
    with pytest.raises(UnsupportedError, match=r"torch.seed"):
        thunder.jit(program)(torch.ones(2))
    assert list(_state()) == before


def test_nothing_is_left_replaced_when_a_row_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    before = list(_state())
    monkeypatch.setattr(interceptions, "_added", [Interception(math, "no_such_function", _three, "a test")])
    with pytest.raises(AttributeError, match="no_such_function"):
        thunder.jit(lambda x: x + 1)(torch.ones(2))
    assert list(_state()) == before
    monkeypatch.setattr(interceptions, "_added", [])
    assert thunder.jit(lambda x: x + 1)(torch.ones(1)).item() == 2.0


@pytest.mark.parametrize(
    ("owner", "name", "call"),
    [
        (Scale, "by_object", lambda x: Scale().by_object(x)),
        (Scale, "by_class", lambda x: Scale.by_class(x)),
        (Scale, "by_number", lambda x: Scale.by_number(x)),
        (Scale, "by_object", lambda x: Inherits().by_object(x)),
        (Scale, "by_class", lambda x: Inherits.by_class(x)),
        (inspect.getmodule(scale), "scale", lambda x: _held_elsewhere(x)),
        (f"{__name__}:Scale", "by_object", lambda x: Scale().by_object(x)),
        (f"{__name__}:", "scale", lambda x: _held_elsewhere(x)),
    ],
)
def test_kinds_of_functions(owner: Any, name: str, call: Any) -> None:
    row = Interception(owner, name, _three, "a test")
    held = static_attribute(owner_of(row), name)
    add_interceptions([row])
    function = thunder.jit(lambda x: x * call(x))
    assert function(torch.ones(1)).item() == 3.0
    assert static_attribute(owner_of(row), name) is held
    assert call(torch.ones(1)) == 2.0


def test_functions_of_c(monkeypatch: pytest.MonkeyPatch) -> None:
    def distance(recorder: Recorder, original: Any, /, *args: Any) -> Any:
        return original(*args) + 1

    monkeypatch.setattr(interceptions, "_functions_of_c", dict(interceptions._functions_of_c))
    monkeypatch.setattr(interceptions, "_stand_ins", dict(interceptions._stand_ins))
    original = math.dist
    held = [math.dist]
    add_interceptions([Interception(math, "dist", distance, "a test")])
    assert thunder.jit(lambda x: x * math.dist([0.0], [5.0]))(torch.ones(1)).item() == 6.0
    assert thunder.jit(lambda x: x * held[0]([0.0], [5.0]))(torch.ones(1)).item() == 6.0
    assert math.dist is held[0] is original


def test_other_threads_get_the_original() -> None:
    begun: list[bool] = []
    found: list[float] = []

    def other() -> None:
        while not begun:
            pass
        found.append(scale(torch.ones(1)))

    def three(recorder: Recorder, original: Any, x: torch.Tensor) -> float:
        begun.append(True)
        while not found:  # Python switches between threads
            pass
        return 3.0

    add_interceptions([Interception(inspect.getmodule(scale), "scale", three, "a test")])
    thread = threading.Thread(target=other)
    thread.start()
    assert thunder.jit(lambda x: x * scale(x))(torch.ones(1)).item() == 3.0
    thread.join()
    assert found == [2.0]


def test_what_a_handler_calls_is_recorded() -> None:
    def doubled(recorder: Recorder, original: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.add(x, x)

    add_interceptions([Interception(inspect.getmodule(scale), "scale", doubled, "a test")])
    function = thunder.jit(lambda x: x * scale(x))
    torch.testing.assert_close(function(torch.full((2,), 3.0)), torch.full((2,), 18.0))
    assert "torch.add(x, x)" in str(thunder.last_traces(function)[0])


def test_one_interception_of_a_function() -> None:
    row = Interception(Scale, "by_object", _three, "a test")
    add_interceptions([row])
    add_interceptions([row])
    with pytest.raises(ValueError, match=r"Scale.by_object is already intercepted: a test"):
        add_interceptions([Interception(Scale, "by_object", _three, "another")])
    with pytest.raises(ValueError, match=r"torch.cond is already intercepted"):
        add_interceptions([Interception(torch, "cond", _three, "another")])
    with pytest.raises(ValueError, match=r"Scale.by_nothing cannot be intercepted, since there is no such attribute"):
        add_interceptions([Interception(Scale, "by_nothing", _three, "a test")])
    with pytest.raises(
        ValueError, match=r"Inherits.by_object cannot be intercepted, since it is inherited: name the class"
    ):
        add_interceptions([Interception(Inherits, "by_object", _three, "a test")])


def test_a_row_may_take_the_place_of_a_refusal() -> None:
    row = Interception(torch.random, "seed", lambda recorder, original: 7, "a test")
    add_interceptions([row])
    assert thunder.jit(lambda x: x * torch.random.seed())(torch.ones(1)).item() == 7.0
    with pytest.raises(ValueError, match=r"seed is already intercepted: a test"):
        add_interceptions([Interception(torch.random, "seed", _three, "another")])


def test_only_a_class_that_is_refused_can_be_taken_over() -> None:
    with pytest.raises(
        ValueError,
        match="Linear cannot be supported by a plugin, since it is not one of the refused classes: FSDPModule",
    ):
        add_interceptions([Interception(Scale, "by_class", _three, "a test", takes_over="Linear")])


class Holder:
    factor = 3.0

    def read(self) -> float:
        raise AssertionError("it is intercepted")


@pytest.mark.parametrize("observed", [True, False])
def test_what_a_handler_reads_is_guarded_unless_it_is_not_observed(observed: bool) -> None:
    def handler(recorder: Recorder, original: Any, holder: Holder) -> float:
        return holder.factor

    holder = Holder()
    add_interceptions([Interception(Holder, "read", handler, "a test", observed=observed)])
    function = thunder.jit(lambda x: x * holder.read())
    assert function(torch.ones(1)).item() == 3.0
    holder.factor = 4.0
    assert function(torch.ones(1)).item() == (4.0 if observed else 3.0)


def test_settings_are_for_the_recording() -> None:
    settings = [row for row in TABLE if isinstance(row, Setting)]
    assert settings
    before = [getattr(row.owner, row.name) for row in settings]
    with intercepting():
        assert [getattr(row.owner, row.name) for row in settings] == [row.value for row in settings]
    assert [getattr(row.owner, row.name) for row in settings] == before
