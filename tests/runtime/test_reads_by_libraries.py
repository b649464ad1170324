"""State that libraries read by functions in C, or that guards of equal values miss, is read anew in each call."""

from __future__ import annotations

import dataclasses
import functools
import gc
import importlib
import logging
import os
import pickle
import sys
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pydantic
import pytest
import torch

import thunder

Row = tuple[Callable[[torch.Tensor], torch.Tensor], list[Callable[[], Any]]]
"""A program, and what changes between its calls."""


class Options(pydantic.BaseModel):
    scale: float = 2.0
    offsets: list[float] = [1.0]


class Computed(Options):
    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def twice(self) -> float:
        return self.scale * 2


ROWS: dict[str, Callable[[], Row]] = {}


def row(make: Callable[[], Row]) -> Callable[[], Row]:
    """Add a row."""
    ROWS[make.__name__] = make
    return make


@row
def pydantic_dump() -> Row:
    options = Options()
    changes = [lambda: setattr(options, "scale", 3.0), lambda: options.offsets.append(5.0)]
    return lambda x: x * options.model_dump()["scale"] + len(options.model_dump_json()), changes


@row
def pydantic_computed_field() -> Row:
    options = Computed()
    return lambda x: x * options.model_dump()["twice"], [lambda: setattr(options, "scale", 3.0)]


@row
def pydantic_validation() -> Row:
    given = {"scale": 2.0}
    return lambda x: x * Options.model_validate(given).scale, [lambda: given.update(scale=3.0)]


@row
def level_of_a_logger() -> Row:
    logger, parent = logging.getLogger("thunder_test.inner"), logging.getLogger("thunder_test")
    changes = [lambda: logger.setLevel(10), lambda: parent.setLevel(20), lambda: logger.setLevel(0)]
    return lambda x: x * logger.getEffectiveLevel(), [*changes, lambda: parent.setLevel(0)]


def identities(items: Any, other: Any) -> Row:
    return lambda x: x * (2 if items[0] is items[1] else 3), [lambda: items.__setitem__(1, other)]


@row
def same_list_twice() -> Row:
    shared: list[int] = []
    return identities([shared, shared], [])


@row
def equal_floats() -> Row:
    first, second = float("1.5"), float("1.5")
    return identities([first, second], first)


@row
def equal_tuples() -> Row:
    first, second = tuple([1, 2]), tuple([1, 2])  # noqa: C409  not one constant
    return identities([first, second], first)


@row
def write_to_a_list_that_is_there_twice() -> Row:
    shared: list[int] = []
    held = [shared, shared]

    def program(x: torch.Tensor) -> torch.Tensor:
        held[0].append(1)
        count = len(held[1])
        held[0].pop()
        return x * (count + 1)

    return program, [lambda: held.__setitem__(1, [])]


@row
def array_of_objects() -> Row:
    item = types.SimpleNamespace(scale=2.0)
    array = np.array([item, None], dtype=object)
    changes = [
        lambda: setattr(item, "scale", 3.0),
        lambda: array.__setitem__(0, types.SimpleNamespace(scale=5.0)),
    ]
    return lambda x: x * array[0].scale, changes


@row
def flags_of_an_array() -> Row:
    array = np.ones(2)
    return lambda x: x * (2 if array.flags.writeable else 3), [lambda: array.setflags(write=False)]


@row
def order_of_an_array() -> Row:
    box = types.SimpleNamespace(array=np.ones((2, 3)))
    changes = [lambda: setattr(box, "array", np.ones((3, 2)).T)]
    return lambda x: x * (2 if box.array.flags.c_contiguous else 3), changes


@row
def variables_of_the_standard_library() -> Row:
    changes = [lambda: warnings.simplefilter("always"), lambda: sys.path.append("/no/such/folder")]
    return lambda x: x * len(warnings.filters) + len(sys.path), changes


@row
def options_of_numpy() -> Row:
    changes = [lambda: np.set_printoptions(precision=3), lambda: np.seterr(divide="ignore")]

    def program(x: torch.Tensor) -> torch.Tensor:
        return x * np.get_printoptions()["precision"] * (2 if np.geterr()["divide"] == "ignore" else 3)

    return program, changes


@row
def garbage_collector() -> Row:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x * (2 if gc.isenabled() else 3) * gc.get_threshold()[0]

    return program, [gc.disable, gc.enable, lambda: gc.set_threshold(500)]


@row
def threads() -> Row:
    lock, stop = threading.Lock(), threading.Event()
    other = threading.Thread(target=stop.wait)

    def program(x: torch.Tensor) -> torch.Tensor:
        held = (2 if lock.locked() else 3) * (5 if stop.is_set() else 7)
        return x * held * threading.active_count() * len(threading.current_thread().name)

    return program, [lock.acquire, other.start, lambda: (stop.set(), other.join())]


@row
def a_library_in_c() -> Row:
    loader = pytest.importorskip("yaml.cyaml")
    import yaml

    text = ["a: 2"]

    def program(x: torch.Tensor) -> torch.Tensor:
        return x * yaml.load(text[0], Loader=loader.CSafeLoader)["a"]

    return program, [lambda: text.__setitem__(0, "a: 3")]


def test_methods_of_python_are_no_foreign_functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A class of an installed package overrides a method of a builtin class and calls it by ``super``."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    source = "class Table(dict):\n    def get(self, key):\n        return super().get(str(key)) or 2.0\n"
    (folder / "thunder_test_table.py").write_text(source)
    monkeypatch.syspath_prepend(folder)
    table = importlib.import_module("thunder_test_table").Table()
    compiled = thunder.jit(lambda x: x * table.get(1))
    for value in (2.0, 3.0):
        assert compiled(torch.ones(1)).item() == value
        table["1"] = 3.0
    assert thunder.cache_misses(compiled) == 2
    assert not thunder.explain(compiled).fallbacks


class Listed(types.SimpleNamespace):
    """A class of the program that inherits the methods in C."""


SHOWN: dict[str, Callable[[Any, Any], Any]] = {
    "repr": lambda one, other: repr(one),
    "format": lambda one, other: f"{one}",
    "conversion": lambda one, other: f"{one!r:>30}",
    "percent": lambda one, other: "%s" % (one,),  # noqa: UP031  the subject
    "method": lambda one, other: "{}".format(one),  # noqa: UP032
    "map": lambda one, other: ",".join(map(str, [one])),
    "in a list": lambda one, other: str([{"key": one}]),
    "method of C": lambda one, other: types.SimpleNamespace.__repr__(one),
    "equal": lambda one, other: one == other,
    "unequal": lambda one, other: [one] != [other],
    "contained": lambda one, other: one in [other],
    "counted": lambda one, other: [other].count(one),
    "pickled": lambda one, other: pickle.dumps([one]),
}


@pytest.mark.filterwarnings("ignore::thunder_core.errors.UncacheableWarning")
@pytest.mark.battery
@pytest.mark.parametrize("kind", [types.SimpleNamespace, Listed])
@pytest.mark.parametrize("name", SHOWN)
def test_namespaces(name: str, kind: type) -> None:
    """Methods in C read all attributes of a namespace."""
    one, other = (kind(scale=1, items=[kind(held=1)]) for _ in range(2))

    def program(x: torch.Tensor) -> torch.Tensor:
        shown = SHOWN[name](one, other)
        return x * (len(shown) if isinstance(shown, str | bytes) else 2 + shown)

    compiled, x = thunder.jit(program, executors=[]), torch.ones(2)
    changes: list[Callable[[], Any]] = [lambda: vars(one).update(scale=200), lambda: vars(one).update(more=None)]
    changes += [lambda: vars(one.items[0]).update(held="text"), lambda: vars(one).pop("scale")]
    changes += [lambda: vars(one).update(vars(other)) or vars(one).pop("more"), os.getpid]
    for change in (os.getpid, *changes):
        change()
        assert torch.equal(program(x), compiled(x))
    assert name == "pickled" or thunder.cache_misses(compiled) < len(changes) + 1


def test_other_attributes_of_namespaces_are_not_read() -> None:
    """Code that formats and compares other objects does not read a namespace as a whole."""
    state = types.SimpleNamespace(mode="a", calls=0)

    def program(x: torch.Tensor, size: int) -> torch.Tensor:
        named = isinstance(state.mode, str) and f"{size}"
        return x * 2 if named and state.mode == "a" and size % 2 == 0 and x.size(0) != len("a") else x

    compiled = thunder.jit(program)
    for state.calls in range(3):
        compiled(torch.ones(2), 2)
    assert thunder.cache_misses(compiled) == 1


@row
def exceptions() -> Row:
    error, end = ValueError("a"), StopIteration(2)

    def program(x: torch.Tensor) -> torch.Tensor:
        return x * len(error.args) * len(f"{error}") * (2 if error.__cause__ is None else 3) * end.value

    changes = [lambda: setattr(error, "args", ("a", 2)), lambda: setattr(error, "__cause__", KeyError())]
    return program, [*changes, lambda: setattr(end, "value", 5)]


def of_fields(read: Callable[[Any, Any], Any]) -> Row:
    @dataclasses.dataclass
    class Table:
        first: int = 1
        second: int = 2

    held, fields = Table(), dict(Table.__dataclass_fields__)
    changes = [
        lambda: setattr(Table, "__dataclass_fields__", {"first": fields["first"]}),
        lambda: Table.__dataclass_fields__.update(third=fields["second"]),
        lambda: setattr(fields["first"], "metadata", {"scale": 7}),
        lambda: setattr(fields["first"], "name", "second"),
    ]
    return lambda x: x * read(Table, held), changes


READS_OF_FIELDS: dict[str, Callable[[Any, Any], Any]] = {
    "class": lambda kind, held: len(dataclasses.fields(kind)),
    "object": lambda kind, held: sum(ord(field.name[0]) for field in dataclasses.fields(held)),
    "metadata": lambda kind, held: dataclasses.fields(kind)[0].metadata.get("scale", 2),
    "dictionary": lambda kind, held: sum(dataclasses.asdict(held).values()),
    "attribute": lambda kind, held: len(kind.__dataclass_fields__),
}
ROWS.update({f"fields: {name}": functools.partial(of_fields, read) for name, read in READS_OF_FIELDS.items()})


@row
def special_attributes_of_a_class() -> Row:
    class Versioned:
        __version__ = 2
        __slots__ = ("one",)
        __table__ = {"scale": 3}  # noqa: RUF012  changes

    held = Versioned()
    changes = [
        lambda: setattr(Versioned, "__version__", 5),
        lambda: setattr(Versioned, "__slots__", ()),
        lambda: Versioned.__table__.update(scale=7),
    ]

    def program(x: torch.Tensor) -> torch.Tensor:
        return x * held.__version__ * (1 + len(Versioned.__slots__)) * held.__table__["scale"]

    return program, changes


@pytest.fixture(autouse=True)
def _state_of_the_process() -> Iterator[None]:
    options, errors, threshold, path = np.get_printoptions(), np.geterr(), gc.get_threshold(), list(sys.path)
    with warnings.catch_warnings():
        yield
    np.set_printoptions(**options)
    np.seterr(**errors)
    gc.enable()
    gc.set_threshold(*threshold)
    sys.path[:] = path


@pytest.mark.filterwarnings("ignore::thunder_core.errors.UncacheableWarning")
@pytest.mark.parametrize("name", ROWS)
def test_reads(name: str) -> None:
    """As eager, called before and after each change."""
    program, changes = ROWS[name]()
    compiled, x = thunder.jit(program, executors=[]), torch.ones(2)
    for change in (os.getpid, *changes, os.getpid):
        change()
        assert torch.equal(program(x), compiled(x))


def test_functions_that_take_paths_apart_are_part_of_programs() -> None:
    """They are functions in C of `posix`, whose other functions read files."""

    def program(x: torch.Tensor) -> torch.Tensor:
        parts = os.path.normpath("a//b/../c").split("/")
        root = os.path.splitroot("/a/b") if sys.version_info >= (3, 12) else os.path.splitdrive("/a/b")
        return x * (len(parts) + len(root[-1]) + len(os.path.join("a", "b")) + len(os.path.basename("a/b")))

    compiled, x = thunder.jit(program), torch.ones(2)
    for _ in range(2):
        assert torch.equal(program(x), compiled(x))
    assert thunder.cache_misses(compiled) == 1
