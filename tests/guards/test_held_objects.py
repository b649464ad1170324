"""What a program reads through any chain of objects that hold others is guarded, whichever of them changes."""

from __future__ import annotations

import collections
import contextvars
import copy
import dataclasses
import functools
import itertools
import operator
import random
import threading
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import torch

import thunder
from tests.runtime.stateful import Box

X = torch.ones(2)


class Row(NamedTuple):
    """A kind of object that holds another one.

    Attributes:
        make: creates one.
        read: the object that it holds, as programs read it.
        put: replaces that object; None if it cannot be replaced.
    """

    make: Callable[[Any], Any]
    read: Callable[[Any], Any]
    put: Callable[[Any, Any], Any] | None = None


class Holder:
    """Holds an object in an attribute, and gives it in several other ways."""

    def __init__(self, held: Any) -> None:
        self.held = held

    @property
    def computed(self) -> Any:
        return self.held

    def __getitem__(self, index: int) -> Any:
        return self.held

    def __iter__(self) -> Iterator[Any]:
        yield self.held

    def __call__(self) -> Any:
        return self.held

    def __enter__(self) -> Any:
        return self.held

    def __exit__(self, *error: object) -> None: ...


class Slots:
    __slots__ = ("__weakref__", "held")

    def __init__(self, held: Any) -> None:
        self.held = held


class Computed:
    def __init__(self, held: Any) -> None:
        self.store = {"held": held}

    def __getattr__(self, name: str) -> Any:
        if name not in self.__dict__.get("store", ()):
            raise AttributeError(name)
        return self.store[name]


@dataclasses.dataclass(eq=False)
class Data:
    held: Any


Pair = collections.namedtuple("Pair", "held")


def entered(holder: Any) -> Any:
    with holder as held:
        return held


def raised(error: ValueError) -> Any:
    try:
        raise error
    except ValueError as caught:
        return caught.args[0]


def matched(holder: Any) -> Any:
    match holder:
        case {"held": held} | [_, held]:
            return held


def closure(held: Any) -> Callable[[], Any]:
    return lambda: held


def set_cell(function: Any, held: Any) -> None:
    function.__closure__[0].cell_contents = held


def second(a: Any, b: Any) -> Any:
    return b


def default(held: Any) -> Callable[[], Any]:
    return lambda held=held: held


def with_attribute(holder: Any, held: Any) -> Any:
    holder.held = held
    return holder


def context(held: Any) -> contextvars.ContextVar[Any]:
    variable = contextvars.ContextVar[Any]("held")
    variable.set(held)
    return variable


def as_key(held: Any) -> dict[Any, Any]:
    return {held: 1} if type(held).__hash__ else {"held": held}


def key_of(holder: dict[Any, Any]) -> Any:
    return holder.get("held") or next(iter(holder))


def weakly(held: Any) -> tuple[Any, Any]:
    """A weak reference, and the object."""
    return (weakref.ref(held) if hasattr(type(held), "__weakref__") else lambda: held), held


def items(key: Any, make: Callable[[Any], Any], *reads: Callable[[Any], Any]) -> Iterator[Row]:
    return (Row(make, read, lambda holder, held: operator.setitem(holder, key, held)) for read in reads)


def attributes(make: Callable[[Any], Any], *reads: Callable[[Any], Any]) -> Iterator[Row]:
    return (Row(make, read, lambda holder, held: setattr(holder, "held", held)) for read in reads)


held = operator.attrgetter("held")
ROWS: tuple[Row, ...] = (
    *items(1, lambda held: [1, held], lambda h: h[1], lambda h: h[-1], lambda h: h[1:][0], lambda h: [*h][1], matched),
    *items(0, lambda held: [held], lambda h: next(reversed(h)), lambda h: next(zip(h, h, strict=True))[0]),
    *items(0, lambda held: [held], lambda h: sorted(h, key=id)[0], lambda h: next(itertools.chain(h))),
    *items(0, lambda held: [held], lambda h: h.copy()[0]),
    *items(0, lambda held: [held], lambda h: functools.reduce(lambda _, each: each, h, None), operator.itemgetter(0)),
    *items("held", lambda held: {"held": held}, lambda h: h["held"], lambda h: h.get("held"), lambda h: {**h}["held"]),
    *items("held", lambda held: {"held": held}, lambda h: next(iter(h.values())), lambda h: next(iter(h.items()))[1]),
    *items("held", lambda held: {"held": held}, lambda h: (lambda held: held)(**h), matched),
    *items((1, "a"), lambda held: {(1, "a"): held}, lambda h: h[1, "a"]),
    *items("held", lambda held: collections.OrderedDict(held=held), lambda h: h["held"]),
    *items("held", lambda held: collections.ChainMap({"held": held}, {}), lambda h: h["held"]),
    *items("held", lambda held: collections.UserDict(held=held), lambda h: h["held"]),
    *items(0, lambda held: collections.deque([held]), lambda h: h[0]),
    *items(0, lambda held: collections.UserList([held]), lambda h: h[0]),
    *attributes(Holder, lambda h: h.held, lambda h: getattr(h, "he" + "ld"), lambda h: vars(h)["held"], held, entered),
    *attributes(Holder, lambda h: h.computed, lambda h: h[0], lambda h: next(iter(h)), lambda h: h()),
    *attributes(Holder, lambda h: copy.copy(h).held),
    *attributes(Slots, lambda h: h.held),
    *attributes(Data, lambda h: dataclasses.replace(h).held, lambda h: getattr(h, dataclasses.fields(h)[0].name)),
    *attributes(lambda held: types.SimpleNamespace(held=held), lambda h: h.held),
    *attributes(lambda held: type("Class", (), {"held": held}), lambda h: h.held, lambda h: h().held),
    *attributes(lambda held: with_attribute(types.ModuleType("module"), held), lambda h: h.held),
    *attributes(lambda held: with_attribute(threading.local(), held), lambda h: h.held),
    *attributes(lambda held: with_attribute(torch.nn.Module(), held), lambda h: h.held),
    *attributes(lambda held: with_attribute(torch.ones(1), held), lambda h: h.held),
    *attributes(lambda held: with_attribute(torch.nn.Parameter(torch.ones(1)), held), lambda h: h.held),
    *attributes(lambda held: with_attribute(lambda: None, held), lambda h: h.held),
    Row(Computed, lambda h: h.held, lambda h, held: operator.setitem(h.store, "held", held)),
    Row(lambda held: Holder(held).__call__, lambda h: h(), lambda h, held: setattr(h.__self__, "held", held)),
    Row(closure, lambda h: h(), set_cell),
    Row(closure, lambda h: h.__closure__[0].cell_contents, set_cell),
    Row(default, lambda h: h(), lambda h, held: setattr(h, "__defaults__", (held,))),
    Row(context, lambda h: h.get(), lambda h, held: h.set(held)),
    Row(ValueError, raised, lambda h, held: setattr(h, "args", (held,))),
    Row(lambda held: functools.partial(second, 1, b=held), lambda h: h(), lambda h, held: h.keywords.update(b=held)),
    Row(lambda held: functools.partial(max, held), lambda h: h.args[0]),
    Row(lambda held: (1, held), lambda h: h[1]),
    Row(lambda held: Pair(held), lambda h: h._asdict()["held"]),
    Row(lambda held: types.MappingProxyType({"held": held}), lambda h: h["held"]),
    Row(as_key, key_of),
    Row(lambda held: {held} if type(held).__hash__ else [held], lambda h: next(iter(h))),
    Row(lambda held: functools.lru_cache(lambda: held), lambda h: h()),
    Row(weakly, lambda h: h[0]()),
)  # fmt: skip
SCALARS: tuple[Callable[[float], Any], ...] = (float, lambda value: torch.full((2,), value))


def outcomes(
    jit: Callable[[Any], Any], rows: tuple[Row, ...], changed: int, scalar: Callable[[float], Any]
) -> list[Any]:
    """The results of three calls, between which the object changes, or is replaced in the ``changed``-th holder."""
    chain: list[Any] = [Box(scalar(3.0))]
    for row in rows:
        chain.append(row.make(chain[-1]))
    reads = [row.read for row in reversed(rows)]

    def program(x: torch.Tensor, holder: Any = chain[-1]) -> torch.Tensor:
        for read in reads:
            holder = read(holder)
        return x * holder.n

    compiled, results = jit(program), []
    for value in (5.0, 6.0, 7.0):
        results.append(compiled(X))
        if changed < 0:
            chain[0].n = scalar(value)
            continue
        new: Any = Box(scalar(value))
        for row in rows[:changed]:
            new = row.make(new)
        put = rows[changed].put
        assert put is not None
        put(chain[changed + 1], new)
    return results


@pytest.mark.filterwarnings("ignore::thunder_core.errors.UncacheableWarning")
@pytest.mark.parametrize("seed", range(42))
@pytest.mark.battery
def test_a_chain_of_holders(seed: int) -> None:
    numbers = random.Random(seed)
    for first in ROWS[seed % 7 :: 7] if seed < 7 else numbers.choices(ROWS, k=8):
        rows = (first, *numbers.choices(ROWS, k=numbers.choice((0, 1, 2))))
        changed = numbers.choice([-1, *[index for index, row in enumerate(rows) if row.put is not None]])
        scalar = numbers.choice(SCALARS)
        expected = outcomes(lambda function: function, rows, changed, scalar)
        assert all(map(torch.equal, outcomes(thunder.jit, rows, changed, scalar), expected)), (
            [ROWS.index(row) for row in rows],
            changed,
            expected,
        )


NAME, TEMPLATE = "d", "{0[k]}"
READS: tuple[Callable[[Any], float], ...] = (
    lambda h: operator.attrgetter(NAME)(h)["k"],
    lambda h: operator.attrgetter("o.d")(h)["k"],
    lambda h: operator.itemgetter("k")(operator.attrgetter(f"o.{NAME}")(h)),
    lambda h: next(map(operator.attrgetter(NAME), [h]))["k"],
    lambda h: next(operator.attrgetter(name)(h) for name in ("l",))[-1],
    lambda h: operator.methodcaller("get", "k")(getattr(h, NAME)),
    lambda h: functools.reduce(getattr, ["o", NAME], h)["k"],
    lambda h: object.__getattribute__(h, NAME)["k"],
    lambda h: vars(h)[NAME]["k"],
    lambda h: max(getattr(h, NAME).values()),
    lambda h: next(map(h.d.get, ["k"])),
    lambda h: dict.__getitem__(h.d, "k"),
    lambda h: sum(operator.attrgetter("l")(h)),
    lambda h: float(TEMPLATE.format(h.d)),
    lambda h: float(f"{h.d['k']}"),
)


@pytest.mark.parametrize("replaced", [False, True])
def test_reads_by_functions_of_c(replaced: bool) -> None:
    for read in READS:
        holder = Holder(None)

        def change(value: float, holder: Any = holder) -> None:
            for each in (holder, holder.o):
                if replaced or not hasattr(each, "d"):
                    each.d, each.l = {"k": value}, [value]
                each.d["k"] = each.l[0] = value

        holder.o = Holder(None)
        compiled = thunder.jit(lambda x, h, read=read: x * read(h))
        for value in (3.0, 5.0, 6.0):
            change(value)
            assert torch.equal(compiled(X, holder), X * value), (READS.index(read), value)
