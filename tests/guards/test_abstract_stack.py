"""What is known about the values that instructions take from the stack, in every version of Python."""

from __future__ import annotations

import argparse
import asyncio.base_events
import contextlib
import dis
import json.decoder
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch.nn.modules.module

from thunder_frontend.observe import abstract_stack, bytecode
from thunder_frontend.observe.abstract_stack import JOIN, Instruction, instructions
from thunder_frontend.observe.bytecode import names_of
from thunder_frontend.observe.code_names import CodeNames

PYTHON_MODULES = (argparse, asyncio.base_events, contextlib, json.decoder, typing, torch.nn.modules.module)


def codes(namespace: dict[str, Any]) -> Iterator[types.CodeType]:
    for value in list(namespace.values()):
        if isinstance(value, types.FunctionType):
            yield from nested(value.__code__)
        elif isinstance(value, type):
            yield from (
                code for held in vars(value).values() if hasattr(held, "__code__") for code in nested(held.__code__)
            )


def nested(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from nested(constant)


@pytest.mark.parametrize("module", PYTHON_MODULES, ids=lambda module: module.__name__)
def test_stacks_that_meet_have_one_depth(module: types.ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    join = abstract_stack._join

    def checked(stack: list[Any], other: list[Any] | None) -> list[Any]:
        assert other is None or len(stack) == len(other)
        return join(stack, other)

    monkeypatch.setattr(abstract_stack, "_join", checked)
    for code in codes(vars(module)):
        for instruction in instructions(code):
            assert instruction.operation != "IMPORT_NAME" or all(value.is_constant for value in instruction.operands)


def instructions_of(program: Callable[..., Any], operation: str) -> list[Instruction]:
    return [instruction for instruction in instructions(program.__code__) if instruction.operation == operation]


def test_calls() -> None:
    def program(a: Any, b: Any) -> Any:
        return a.f(1, b) + print(b) + a[b](a) + print(b, end=a)  # type: ignore[func-returns-value]

    calls = instructions_of(program, "CALL")
    assert [call.callee.label for call in calls] == ["f", "print", ""]
    assert [[value.label or value.constant for value in call.call_arguments] for call in calls] == [
        [1, "b"],
        ["b"],
        ["a"],
    ]
    assert [call.callee.chain for call in calls] == [(), ("print",), ()]
    (call,) = instructions_of(program, "CALL_KW")
    assert call.callee.label == "print"
    assert call.operands[-1].constant == ("end",)


def test_ways_that_meet() -> None:
    def program(a: Any, b: Any, c: Any) -> Any:
        result = a.f((b if a else c), b)
        while result < 3:  # longer than what CPython copies into both ways
            result = result.next + a
        return result

    (call,) = instructions_of(program, "CALL")
    assert [value.label for value in call.call_arguments] == ["", "b"]
    (lost,) = instructions_of(program, JOIN)
    assert {value.label for value in lost.operands} == {"b", "c"}


def names(program: Callable[..., Any]) -> CodeNames:
    return names_of(program.__code__)


def test_keys() -> None:
    def program(table: Any, other: Any, third: Any, key: Any) -> Any:
        table["a"] += table.get("b", 0)
        table["c"]["d"].e = "f" in table
        third[0] = other.get
        return other[key]

    uses = names(program).dictionaries
    assert uses.keys == {"table": {"a", "b", "c", "f"}, "['c']": {"d"}, "third": {0}}
    assert "table" not in uses.whole
    assert "other" in uses.whole


def test_get_with_keywords_reads_anything() -> None:
    def program(table: Any) -> Any:
        return table.get(default="a", key="b")

    assert "table" in names(program).dictionaries.whole


def test_appending_alone() -> None:
    def program(a: Any, b: Any) -> None:
        a.append(1)
        b.append(2)
        print(b)

    assert names(program).dictionaries.used.isdisjoint({"a"})
    assert "b" in names(program).dictionaries.used


def test_accessors() -> None:
    def program(a: Any, b: Any, c: Any, name: Any) -> Any:
        return getattr(a.layer, "weight", name if a else b), hasattr(b, name), vars(c)

    read = names(program)
    assert read.probes == {("layer", "weight")}
    assert read.whole == {"b", "c"}


def test_an_accessor_that_is_passed_on_reads_anything() -> None:
    def program(a: Any) -> Any:
        return map(getattr, a, ["b"])

    assert names(program).whole == {""}


def test_chains() -> None:
    def program(x: Any) -> Any:
        return torch.nn.functional.relu(torch.abs(x), json.decoder)

    assert list(names(program).chains) == [
        ("torch", "nn", "functional", "relu"),
        ("torch", "abs"),
        ("json", "decoder"),
    ]


@pytest.mark.parametrize(
    ("source", "identity", "objects"),
    [
        ("a is None", False, False),
        ("a is b", True, False),
        ("a == 1", False, False),
        ("a == b", False, True),
        ("a in (1, 2)", False, False),
        ("a in b", False, True),
        ("a[b]", False, True),
        ("a['b']", False, False),
        ("{a: 1}", False, True),
        ("{'a': b}", False, False),
        ("{a, 1}", False, True),
    ],
)
def test_comparisons(source: str, identity: bool, objects: bool) -> None:
    read = names_of(compile(source, "program", "eval"))
    assert (read.compares_identity, read.compares_objects) == (identity, objects)


UNKNOWN_RESULTS = {"LOAD_ASSERTION_ERROR", "LOAD_BUILD_CLASS", "LOAD_CLOSURE", "LOAD_FAST_AND_CLEAR", "LOAD_LOCALS"}
"""Instructions whose results have no origin."""
USED_OPERANDS = {"DELETE_FAST", "DELETE_NAME", "DELETE_SUBSCR", "LOAD_SUPER_METHOD", "STORE_NAME"}
"""Instructions whose operands count as used, like those of any instruction without a method."""
PSEUDO_INSTRUCTIONS = 256


def test_instructions_on_variables_attributes_and_items() -> None:
    """An instruction that a new version of Python adds has to be added to one of these tables."""
    found = {name for name, code in dis.opmap.items() if code < PSEUDO_INSTRUCTIONS}
    found = {name for name in found if name.startswith(("LOAD_", "STORE_", "DELETE_"))}
    known = bytecode._METHODS.keys() | abstract_stack._LOADS.keys() | UNKNOWN_RESULTS | USED_OPERANDS
    assert found <= known
