"""What is known about the values that instructions take from the stack, in every version of Python."""

from __future__ import annotations

import argparse
import asyncio.base_events
import contextlib
import dis
import json.decoder
import sys
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


def test_generators_that_are_passed_to_builtins() -> None:
    """Python 3.14 compares the called function with the builtin one, which is no comparison of the program's."""

    def program(a: Any) -> Any:
        return all(each is None for each in a), any(each is None for each in a), tuple(each for each in a)

    read = names(program)
    assert {("all",), ("any",), ("tuple",)} <= set(read.chains)
    assert (read.compares_identity, read.compares_types) == (False, False)


def test_returned_values_are_used() -> None:
    assert ("CONFIG", "scale") in names(eval("lambda: CONFIG.scale")).chains


@pytest.mark.skipif(not hasattr(dis, "_common_constants"), reason="instructions load them since Python 3.14")
def test_common_constants() -> None:
    assert tuple(dis._common_constants) == abstract_stack.COMMON_CONSTANTS  # type: ignore[attr-defined]
    assert dict(map(reversed, enumerate(name for name, _ in dis._nb_ops)))["NB_SUBSCR"] == abstract_stack.SUBSCRIPT


UNKNOWN_RESULTS = {"LOAD_ASSERTION_ERROR", "LOAD_BUILD_CLASS", "LOAD_CLOSURE", "LOAD_FAST_AND_CLEAR", "LOAD_LOCALS"}
UNKNOWN_RESULTS |= {"LOAD_SPECIAL"}
"""Instructions whose results have no origin."""
USED_OPERANDS = {"DELETE_FAST", "DELETE_NAME", "DELETE_SUBSCR", "LOAD_SUPER_METHOD", "STORE_NAME"}
"""Instructions whose operands count as used, like those of any instruction without a method."""
NOT_READ = {"CACHE", "COPY", "EXTENDED_ARG", "KW_NAMES", "PRECALL", "SWAP"}  # `instructions` yields none of these
NOT_READ |= {"ENTER_EXECUTOR", "EXIT_INIT_CHECK", "INTERPRETER_EXIT", "RESERVED"}  # no code object has them
EFFECTS = {
    (0, 0): (
        "COPY_FREE_VARS DELETE_DEREF DELETE_FAST DELETE_GLOBAL DELETE_NAME JUMP_BACKWARD "
        "JUMP_BACKWARD_NO_INTERRUPT JUMP_FORWARD MAKE_CELL NOP NOT_TAKEN RESUME RETURN_CONST "
        "SETUP_ANNOTATIONS"
    ),
    (0, 1): (
        "FOR_ITER GET_ANEXT GET_LEN IMPORT_FROM LOAD_ASSERTION_ERROR LOAD_BUILD_CLASS LOAD_CLASSDEREF "
        "LOAD_CLOSURE LOAD_COMMON_CONSTANT LOAD_CONST LOAD_DEREF LOAD_FAST LOAD_FAST_AND_CLEAR "
        "LOAD_FAST_BORROW LOAD_FAST_CHECK LOAD_LOCALS LOAD_NAME LOAD_SMALL_INT MATCH_KEYS MATCH_MAPPING "
        "MATCH_SEQUENCE PUSH_EXC_INFO PUSH_NULL RETURN_GENERATOR WITH_EXCEPT_START"
    ),
    (0, 2): "LOAD_FAST_BORROW_LOAD_FAST_BORROW LOAD_FAST_LOAD_FAST LOAD_GLOBAL",
    (1, 0): (
        "DELETE_ATTR IMPORT_STAR JUMP_IF_FALSE_OR_POP JUMP_IF_TRUE_OR_POP POP_EXCEPT POP_ITER "
        "POP_JUMP_BACKWARD_IF_FALSE POP_JUMP_BACKWARD_IF_NONE POP_JUMP_BACKWARD_IF_NOT_NONE "
        "POP_JUMP_BACKWARD_IF_TRUE POP_JUMP_FORWARD_IF_FALSE POP_JUMP_FORWARD_IF_NONE "
        "POP_JUMP_FORWARD_IF_NOT_NONE POP_JUMP_FORWARD_IF_TRUE POP_JUMP_IF_FALSE POP_JUMP_IF_NONE "
        "POP_JUMP_IF_NOT_NONE POP_JUMP_IF_TRUE POP_TOP PRINT_EXPR RERAISE RETURN_VALUE STORE_DEREF STORE_FAST "
        "STORE_GLOBAL STORE_NAME"
    ),
    (1, 1): (
        "ASYNC_GEN_WRAP CALL_INTRINSIC_1 CHECK_EG_MATCH CHECK_EXC_MATCH CONVERT_VALUE FORMAT_SIMPLE "
        "FORMAT_VALUE GET_AITER GET_AWAITABLE GET_ITER GET_YIELD_FROM_ITER LIST_TO_TUPLE "
        "LOAD_FROM_DICT_OR_DEREF LOAD_FROM_DICT_OR_GLOBALS SEND STORE_FAST_LOAD_FAST TO_BOOL UNARY_INVERT "
        "UNARY_NEGATIVE UNARY_NOT UNARY_POSITIVE YIELD_VALUE"
    ),
    (1, 2): "BEFORE_ASYNC_WITH BEFORE_WITH LOAD_METHOD LOAD_SPECIAL",
    (1, 3): "UNPACK_SEQUENCE",
    (1, 4): "UNPACK_EX",
    (2, 0): "DELETE_SUBSCR END_ASYNC_FOR STORE_ATTR STORE_FAST_STORE_FAST",
    (2, 1): (
        "BINARY_OP BINARY_SUBSCR BUILD_TEMPLATE CALL_INTRINSIC_2 CLEANUP_THROW COMPARE_OP CONTAINS_OP "
        "DICT_MERGE DICT_UPDATE END_SEND FORMAT_WITH_SPEC IMPORT_NAME IS_OP LIST_APPEND LIST_EXTEND "
        "PREP_RERAISE_STAR SET_ADD SET_FUNCTION_ATTRIBUTE SET_UPDATE"
    ),
    (3, 0): "RAISE_VARARGS STORE_SUBSCR",
    (3, 1): (
        "BINARY_SLICE BUILD_INTERPOLATION BUILD_LIST BUILD_SET BUILD_SLICE BUILD_STRING BUILD_TUPLE MAP_ADD MATCH_CLASS"
    ),
    (3, 2): "LOAD_SUPER_ATTR",
    (4, 0): "STORE_SLICE",
    (4, 1): "BUILD_CONST_KEY_MAP CALL_FUNCTION_EX",
    (5, 1): "CALL",
    (6, 1): "BUILD_MAP CALL_KW",
}
"""The instructions of all versions of Python by the numbers of values that they pop and push with the argument 3."""
EFFECTS_BY_VERSION = {
    "END_FOR": (1 if sys.version_info >= (3, 13) else 2, 0),
    "LOAD_ATTR": (1, 2 if sys.version_info >= (3, 12) else 1),
    "MAKE_FUNCTION": (1 if sys.version_info >= (3, 13) else 3, 1),
}
PSEUDO_INSTRUCTIONS = 256


def all_instructions() -> set[str]:
    """The instructions of this version of Python in the bytecode of code objects."""
    specialized = getattr(dis, "_specialized_opmap", {})
    names = {name for name, code in dis.opmap.items() if code < PSEUDO_INSTRUCTIONS and name not in specialized}
    return {name for name in names if not name.startswith("INSTRUMENTED_")} - NOT_READ


def test_instructions_on_variables_attributes_and_items() -> None:
    """An instruction that a new version of Python adds has to be added to one of these tables."""
    found = {name for name in all_instructions() if name.startswith(("LOAD_", "STORE_", "DELETE_"))}
    known = bytecode._METHODS.keys() | abstract_stack._LOADS.keys() | UNKNOWN_RESULTS | USED_OPERANDS
    assert found <= known


def test_numbers_of_values_that_instructions_pop_and_push() -> None:
    """An instruction that a new version of Python adds or changes is not read before someone has looked at it."""
    expected = {name: effect for effect, names in EFFECTS.items() for name in names.split()}
    expected |= EFFECTS_BY_VERSION
    found = {name: abstract_stack._effect(name, 3) for name in all_instructions()}
    assert found == {name: expected.get(name) for name in found}
