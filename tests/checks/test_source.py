"""Access paths: reads, expressions, assignments and deletions of one path agree."""

from __future__ import annotations

import contextvars
import sys
import weakref
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from thunder_core.checks.prologue_writer import PrologueNames
from thunder_core.checks.source import (
    PATH_ERRORS,
    ArgumentSource,
    AttributeSource,
    ClosureSource,
    Constants,
    ConstantSource,
    ContextSource,
    CreatedSource,
    EnvironmentSource,
    FunctionSource,
    GlobalSource,
    ItemSource,
    KeywordSource,
    NamespaceSource,
    ResultSource,
    Source,
    StoredAttributeSource,
    StoredItemSource,
    Unset,
)
from thunder_core.tracing.frames import CodeKind, kind_of


class Renamed(dict):
    def __getitem__(self, key):
        return "overridden"


X, OBJECT, KEY = ArgumentSource(0, "x"), SimpleNamespace(a=1), torch.zeros(1)
MODULE = torch.nn.Linear(2, 2)
VARIABLE: contextvars.ContextVar[int] = contextvars.ContextVar("VARIABLE")
NAMESPACE = {"__name__": "some.module", "a": 1}


def closure(value):
    return lambda: value


READS: list[tuple[Source, Any, Any]] = [
    (X, 3, 3),
    (KeywordSource("from"), OBJECT, OBJECT),
    (ConstantSource(OBJECT, "args"), None, OBJECT),
    (FunctionSource(OBJECT, "module"), None, OBJECT),
    (GlobalSource("some.module", "a", NAMESPACE), None, 1),
    (EnvironmentSource("NO SUCH VARIABLE"), None, None),
    (CreatedSource(lambda *parts: parts, (X, ConstantSource(2)), "pair"), 1, (1, 2)),
    (AttributeSource(X, "a"), OBJECT, 1),
    (AttributeSource(X, "not a name"), SimpleNamespace(**{"not a name": 1}), 1),
    (StoredAttributeSource(X, "a"), OBJECT, 1),
    (StoredAttributeSource(X, "weight", "_parameters"), MODULE, MODULE.weight),
    (NamespaceSource(X), OBJECT, vars(OBJECT)),
    (ItemSource(X, -1), [1, 2], 2),
    (ItemSource(X, KEY), {KEY: 5}, 5),
    (StoredItemSource(X, "a"), Renamed(a=1), 1),
    (ClosureSource(X, 0, "value"), closure(7), 7),
    (ResultSource(X), weakref.ref(MODULE), MODULE),
    (ContextSource(X), VARIABLE, Unset.UNSET),
]


@pytest.mark.parametrize(("source", "value", "expected"), READS, ids=[type(row[0]).__name__ for row in READS])
def test_reads_and_code_agree(source: Source, value: Any, expected: Any) -> None:
    args, kwargs = (value,), {"from": value}
    names = PrologueNames("")
    code = source.expression(names)
    evaluated = eval(code, dict(names.namespace), {"args": args, "kwargs": kwargs})
    for result in (source.read(args, kwargs), evaluated):
        assert type(result) is type(expected)
        assert result is expected or result == expected


@pytest.mark.parametrize(
    "step", [AttributeSource(X, "b"), ItemSource(X, "b"), ClosureSource(X, 0, "b"), ResultSource(X)]
)
def test_absent_paths(step: Source) -> None:
    with pytest.raises(PATH_ERRORS):
        step.read((1,), {})


WRITES: list[tuple[Source, Any]] = [
    (AttributeSource(X, "b"), SimpleNamespace()),
    (AttributeSource(X, "not a name"), SimpleNamespace()),
    (StoredAttributeSource(X, "b"), SimpleNamespace()),
    (ItemSource(X, "b"), {}),
    (StoredItemSource(X, "b"), Renamed()),
]


@pytest.mark.parametrize(("source", "value"), WRITES, ids=[type(row[0]).__name__ for row in WRITES])
def test_assignments_and_deletions(source: Source, value: Any) -> None:
    names = Constants()
    for statement in (source.assignment(names, "5"), source.deletion(names)):
        exec(statement, names.namespace, {"args": (value,)})
        if "5" in statement:
            assert source.read((value,), {}) == 5
    with pytest.raises(PATH_ERRORS):
        source.read((value,), {})


def test_equality_of_paths() -> None:
    one, other = [1], [1]
    assert ConstantSource(one) == ConstantSource(one)
    assert ConstantSource(one) not in (ConstantSource(other), FunctionSource(one))
    assert ItemSource(X, 1) == ItemSource(ArgumentSource(0), 1)
    assert ItemSource(X, 1) not in (ItemSource(X, True), StoredItemSource(X, 1))
    assert StoredAttributeSource(X, "a") != StoredAttributeSource(X, "a", "_buffers")


def test_frames_of_reads_are_not_observed() -> None:
    frames: list[Any] = []

    class Recording:
        @property
        def a(self) -> int:
            frames.append(sys._getframe(1).f_code)
            return 1

    assert AttributeSource(X, "a").read((Recording(),), {}) == 1
    assert [kind_of(code) for code in frames] == [CodeKind.IGNORED]
