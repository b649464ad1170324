"""The instructions of a code object: what CPython 3.11 to 3.13 encode differently."""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterator
from types import CodeType
from typing import Final

_NAME_SHIFT = {"LOAD_GLOBAL": 1}
if sys.version_info >= (3, 12):
    _NAME_SHIFT |= {"LOAD_ATTR": 1, "LOAD_SUPER_ATTR": 2}

ATTRIBUTE_LOADS: Final = frozenset({"LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"})
GLOBAL_LOADS: Final = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})
_NAME_OPERATIONS = (
    ATTRIBUTE_LOADS
    | GLOBAL_LOADS
    | {"STORE_ATTR", "DELETE_ATTR", "STORE_GLOBAL", "DELETE_GLOBAL", "IMPORT_NAME", "IMPORT_FROM"}
)
_VARIABLE_LOADS = frozenset(
    {"LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"}
)

UNKNOWN: Final = ""
"""The owner of a name that is asked of something else than a variable or an attribute."""


def instructions(code: CodeType) -> Iterator[tuple[int, str, int]]:
    """Offset, operation and argument of each instruction. The ``dis`` module's own walk is ten times slower."""
    extended = 0
    raw = code.co_code
    for position in range(0, len(raw), 2):
        operation = dis.opname[raw[position]]
        if operation == "CACHE":
            continue
        argument = raw[position + 1] | extended
        if operation == "EXTENDED_ARG":
            extended = argument << 8
            continue
        extended = 0
        yield position, operation, argument


def name_of(code: CodeType, operation: str, argument: int) -> str:
    """The attribute, global variable or Python module that the instruction names; empty if it names none."""
    return code.co_names[argument >> _NAME_SHIFT.get(operation, 0)] if operation in _NAME_OPERATIONS else ""


def loaded_variable(code: CodeType, operation: str, argument: int, name: str) -> str:
    """The variable that the instruction loads."""
    if operation in _VARIABLE_LOADS:
        return variable_name(code, argument)
    if operation in ("LOAD_FAST_LOAD_FAST", "STORE_FAST_LOAD_FAST"):
        return variable_name(code, argument & 15)
    return name if operation in GLOBAL_LOADS else UNKNOWN


def variable_name(code: CodeType, index: int) -> str:
    """The variable behind operand ``index`` of an instruction: locals, then new cells, then free variables.

    All instructions on variables count this way, not only those on cells. Since Python 3.12 a comprehension in a
    function saves and restores its variable as a local one also where that is a cell; since 3.13 LOAD_FAST loads the
    cells of a closure.
    """
    names = code.co_varnames
    if index < len(names):
        return names[index]
    own = [name for name in code.co_cellvars if name not in names]
    return (*names, *own, *code.co_freevars)[index]


def protected_ranges(code: CodeType) -> list[tuple[int, int]]:
    """Ranges of offsets that an exception handler covers."""
    table = iter(code.co_exceptiontable)
    ranges = []
    while (start := _number(table)) is not None:
        length, _, _ = _number(table) or 0, _number(table), _number(table)
        ranges.append((start * 2, (start + length) * 2))
    return ranges


def _number(table: Iterator[int]) -> int | None:
    """The next number of an exception table: six bits a byte, the highest first."""
    byte = next(table, None)
    if byte is None:
        return None
    value = byte & 63
    while byte & 64:
        byte = next(table)
        value = value << 6 | byte & 63
    return value
