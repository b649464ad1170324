"""Numbers of the trace that are the only key of a dictionary or set of the program: ``table = {n: x}; table[n]``.

Which entry a lookup finds depends on the values of keys, so hashing a number that varies takes its value in this call.
One lookup does not depend on it: that of the only key, by the variable that holds it. The bytecode shows that a local
variable holds a container that this code created, that each of its keys is one local variable with a single value, and
that no other code gets the container.
"""

from __future__ import annotations

from types import CodeType
from typing import Final

from thunder_frontend.observe.abstract_stack import (
    ATTRIBUTE_LOADS,
    BACKWARD_JUMPS,
    Instruction,
    StackValue,
    consumers,
    instructions,
    stored_variables,
    variable_consumers,
)
from thunder_frontend.record.formatted_texts import READS_VARIABLES, program_frame

_DISPLAYS: Final = frozenset({"BUILD_MAP", "BUILD_SET"})
_METHODS: Final = frozenset({"get", "setdefault", "pop"})
_CONTAINER: Final = {"BINARY_SUBSCR": 0, "DELETE_SUBSCR": 0, "STORE_SUBSCR": 1, "CONTAINS_OP": 1}
_KEY: Final = {"BINARY_SUBSCR": 1, "DELETE_SUBSCR": 1, "STORE_SUBSCR": 2, "CONTAINS_OP": 0}
"""The operands that are the container and the key, by instruction."""


def is_single_key() -> bool:
    """Whether the program hashes a number now that is the only key of a container."""
    frame = program_frame()
    if frame is None or not READS_VARIABLES.isdisjoint(frame.f_code.co_names):
        return False
    code = frame.f_code
    instruction, _ = consumers(code, frame.f_lasti)
    if instruction is None:
        return False
    if instruction.operation in _DISPLAYS:
        key = _key_of_display(instruction)
        name = _stored_as(code, instruction)
    elif instruction.operation in _CONTAINER:
        key = _local(code, instruction.operands[_KEY[instruction.operation]])
        name = _local(code, instruction.operands[_CONTAINER[instruction.operation]])
    elif instruction.operation == "CALL" and instruction.callee.label in _METHODS and instruction.callee.owner:
        key = _local(code, next(iter(instruction.call_arguments), StackValue()))
        name = _local(code, instruction.callee.owner)
    else:
        return False
    return bool(key and name) and _has_one_value(code, key) and _has_only_key(code, name, key)


def _local(code: CodeType, value: StackValue) -> str:
    """The local variable that a value was loaded from; empty if there is none, or if other code may assign it."""
    name = value.label if not value.chain and value.owner is None else ""
    return name if name in code.co_varnames and name not in code.co_cellvars else ""


def _key_of_display(display: Instruction) -> str:
    return display.operands[0].label if display.argument == 1 else ""


def _stored_as(code: CodeType, display: Instruction) -> str:
    """The variable that holds a created container, if nothing else takes it."""
    _, taken = consumers(code, display.position)
    names = {name for each in taken for name in stored_variables(code, each.operation, each.argument)[:1]}
    return names.pop() if len(taken) == len(names) == 1 else ""


def _assignments(code: CodeType, name: str) -> list[Instruction]:
    return [each for each in instructions(code) if name in stored_variables(code, each.operation, each.argument)]


def _has_one_value(code: CodeType, name: str) -> bool:
    """Whether a local variable has the same value in the whole run of its code."""
    assigned = len(_assignments(code, name))
    if name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]:
        return assigned == 0
    return assigned == 1 and all(each.operation not in BACKWARD_JUMPS for each in instructions(code))


def _has_only_key(code: CodeType, name: str, key: str) -> bool:
    """Whether a local variable holds containers of this code that are used by one key."""
    displays = [each for each in instructions(code) if each.operation in _DISPLAYS and _stored_as(code, each) == name]
    if not displays or len(displays) != len(_assignments(code, name)):
        return False
    if any(each.argument and (_key_of_display(each) != key) for each in displays):
        return False
    uses = variable_consumers(code, name)
    loads = [each for each in uses if each.operation in ATTRIBUTE_LOADS]
    calls = [each for each in instructions(code) if each.operation == "CALL" and _is_method_of(code, each, name)]
    return (
        len(loads) == len(calls)
        and all(_is_call_by_key(code, each, name, key) for each in calls)
        and all(_is_by_key(code, each, name, key) for each in uses if each not in loads)
    )


def _is_method_of(code: CodeType, call: Instruction, name: str) -> bool:
    owner = call.callee.owner
    return owner is not None and _local(code, owner) == name


def _is_call_by_key(code: CodeType, call: Instruction, name: str, key: str) -> bool:
    """Whether a call of a method of a container finds the entry of a key, which is not the container."""
    labels = [_local(code, each) for each in call.call_arguments]
    return call.callee.label in _METHODS and labels[:1] == [key] and name not in labels[1:]


def _is_by_key(code: CodeType, use: Instruction, name: str, key: str) -> bool:
    """Whether an instruction finds the entry of a key in a container, and does not store the container."""
    if use.operation not in _CONTAINER:
        return False
    container, found = use.operands[_CONTAINER[use.operation]], use.operands[_KEY[use.operation]]
    stores = use.operation == "STORE_SUBSCR" and _local(code, use.operands[0]) == name
    return _local(code, container) == name and _local(code, found) == key and not stores
