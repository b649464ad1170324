"""Calls of `getattr` and its kin in bytecode: of which object they ask for which attribute.

The walk counts the values on the stack above the accessor, so that it knows which instruction takes the name: a name
that is a constant is an attribute; one that anything computes may be any attribute of the object.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Final

from thunder_core.guards.instructions import UNKNOWN

ACCESSORS: Final = frozenset({"getattr", "hasattr", "setattr", "delattr", "vars", "dir"})

_LOADS = frozenset(
    {"LOAD_CONST", "LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_NAME", "PUSH_NULL", "COPY"}
)
_NO_EFFECT = frozenset({"NOP", "PRECALL", "KW_NAMES"})
_POPS = {
    "BINARY_OP": 2, "BINARY_SUBSCR": 2, "BINARY_SLICE": 3, "COMPARE_OP": 2, "IS_OP": 2, "CONTAINS_OP": 2,
    "UNARY_INVERT": 1, "UNARY_NEGATIVE": 1, "UNARY_NOT": 1, "UNARY_POSITIVE": 1, "TO_BOOL": 1,
    "CONVERT_VALUE": 1, "FORMAT_SIMPLE": 1, "FORMAT_WITH_SPEC": 2, "STORE_FAST_LOAD_FAST": 1,
}  # fmt: skip
# How many values more than their operand says.
_POPS_MORE = {"BUILD_STRING": 0, "BUILD_TUPLE": 0, "BUILD_LIST": 0, "BUILD_SLICE": 0, "CALL": 2, "CALL_KW": 3}


@dataclass(slots=True)
class Access:
    """A call of an accessor while its arguments are being loaded.

    Attributes:
        depth: values on the stack above the function and the empty place beside it.
        owner: the variable or attribute that the object is loaded from; UNKNOWN if anything else gives it.
        name: the attribute's, if it is a constant.
    """

    depth: int
    owner: str = UNKNOWN
    name: str | None = None


class Accesses:
    """What a code object asks for through accessors.

    Attributes:
        named: owners and constant names.
        whole: owners of which any attribute may be asked.
        open: calls whose arguments are being loaded, the inner ones last.
    """

    def __init__(self) -> None:
        self.named: set[tuple[str, str]] = set()
        self.whole: set[str] = set()
        self.open: list[Access] = []

    def follow(self, operation: str, argument: int, loaded: tuple[str, ...], constant: object) -> None:
        """Take the next instruction in.

        Args:
            loaded: the variables, or the attribute, that it loads.
            constant: the constant that it loads, or None.
        """
        if self.open:
            self.open = [access for access in self.open if self._goes_on(access, operation, argument, loaded, constant)]
        if operation in ("LOAD_GLOBAL", "LOAD_NAME") and loaded[0] in ACCESSORS:
            self.open.append(Access(-1 if operation == "LOAD_NAME" and sys.version_info >= (3, 13) else 0))

    def end(self) -> None:
        """No instruction follows."""
        self.whole.update(UNKNOWN for _ in self.open)
        self.open.clear()

    def _goes_on(
        self, access: Access, operation: str, argument: int, loaded: tuple[str, ...], constant: object
    ) -> bool:
        """Whether arguments of ``access`` are still being loaded after the instruction."""
        effect = _stack_effect(operation, argument)
        if effect is None:  # a condition in the default or the value leaves the object as it is
            certain = operation.startswith("POP_JUMP") and access.depth > 2
            self.whole.add(access.owner if certain else UNKNOWN)
            return False
        popped, pushed = effect
        left = access.depth - popped
        if left < 0:
            if operation != "CALL" or left != -2:  # the accessor is passed on, or its arguments are unpacked
                self.whole.add(UNKNOWN)
            elif access.name is None:
                self.whole.add(access.owner)
            else:
                self.named.add((access.owner, access.name))
            return False
        if left < 2:
            access.name = None
        access.depth = left + pushed
        for place, label in enumerate((*loaded, UNKNOWN)[:pushed], left):
            if place == 0:
                access.owner = label
            elif place == 1 and isinstance(constant, str):
                access.name = constant
        return True


def _stack_effect(operation: str, argument: int) -> tuple[int, int] | None:
    """How many values the instruction takes from the stack and puts there; None where that is not known here."""
    if operation in _LOADS:
        return 0, 1
    if operation == "LOAD_GLOBAL":
        return 0, 1 + (argument & 1)
    if operation == "LOAD_FAST_LOAD_FAST":
        return 0, 2
    if operation == "LOAD_METHOD":
        return 1, 2
    if operation == "LOAD_ATTR":
        return 1, 1 + (argument & 1 if sys.version_info >= (3, 12) else 0)
    if operation in _NO_EFFECT:
        return 0, 0
    if operation == "STORE_FAST":  # of an assignment expression: a copy of the value stays
        return 1, 0
    if operation == "FORMAT_VALUE":
        return (2 if argument & 4 else 1), 1
    if operation in _POPS_MORE:
        return _POPS_MORE[operation] + argument, 1
    popped = _POPS.get(operation)
    return None if popped is None else (popped, 1)
