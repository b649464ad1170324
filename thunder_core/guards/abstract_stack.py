"""The instructions of a code object, each with the values that it takes from the stack.

The walk goes over the bytecode once, from its start to its end, and keeps a stack of what is known about each value:
the variable, the attribute or the constant that it was loaded from. Where two ways of execution meet, a value is known
if both ways have the same. What CPython 3.11 to 3.13 encode differently is here, and nowhere else.
"""

from __future__ import annotations

import dis
import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from types import CodeType
from typing import Any, Final, NamedTuple

ATTRIBUTE_LOADS: Final = frozenset({"LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"})
GLOBAL_LOADS: Final = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})
JOIN: Final = "JOIN"
"""The operation of a step that is no instruction: its operands differ between the ways of execution that meet there."""
UNKNOWN: Final = ""
"""The label of a value that is loaded from neither a variable nor an attribute."""
NO_CONSTANT: Final[Any] = type("NoConstant", (), {"__repr__": lambda _: "NO_CONSTANT"})()

_NAME_SHIFT = {"LOAD_GLOBAL": 1}
if sys.version_info >= (3, 12):
    _NAME_SHIFT |= {"LOAD_ATTR": 1, "LOAD_SUPER_ATTR": 2}
_NAME_OPERATIONS = (
    ATTRIBUTE_LOADS
    | GLOBAL_LOADS
    | {"STORE_ATTR", "DELETE_ATTR", "STORE_GLOBAL", "DELETE_GLOBAL", "IMPORT_NAME", "IMPORT_FROM"}
)
_ENDS = frozenset(
    {"JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP_FORWARD", "RAISE_VARARGS", "RERAISE", "RETURN_CONST"}
    | {"RETURN_VALUE"}
)
"""Instructions after which execution does not go on with the next one."""
_CACHE = dis.opmap["CACHE"]
_FORWARD_JUMPS = frozenset(dis.opname[code] for code in dis.hasjrel if "BACKWARD" not in dis.opname[code])
_SKIPPED = frozenset({"CACHE", "PRECALL"})
_BACKWARD_JUMPS = frozenset(dis.opname[code] for code in dis.hasjrel if "BACKWARD" in dis.opname[code])


class StackValue(NamedTuple):
    """What is known about a value on the stack.

    Attributes:
        label: the variable or attribute that it was loaded from, or ``['a']`` for the entry of a container; or UNKNOWN.
        chain: a global variable and the attributes that are loaded right from it: ``("F", "relu")``.
        constant: the constant that it is.
        owner: what it was loaded from, if it is an attribute.
        is_class: it is what ``type`` gives for an object.
    """

    label: str = UNKNOWN
    chain: tuple[str, ...] = ()
    constant: Any = NO_CONSTANT
    owner: StackValue | None = None
    is_class: bool = False

    @property
    def is_constant(self) -> bool:
        """Whether it is a constant."""
        return self.constant is not NO_CONSTANT


class Step(NamedTuple):
    """An instruction, or a `JOIN`.

    A call with keywords is a ``CALL_KW`` in all versions; its last operand is the tuple of the keywords.

    Attributes:
        position: the offset of the instruction.
        argument: its operand in the bytecode.
        name: the attribute, global variable or Python module that it names, if any.
        operands: the values that it takes from the stack, the lowest first.
    """

    position: int
    operation: str
    argument: int
    name: str
    operands: Sequence[StackValue]

    @property
    def callee(self) -> StackValue:
        """The function of a call."""
        return _callee(self.operands)

    @property
    def call_arguments(self) -> Sequence[StackValue]:
        """The arguments of a ``CALL``."""
        return _call_arguments(self.operands)


def _callee(operands: Sequence[StackValue]) -> StackValue:
    first, second = operands[:2]
    return second if first is _NULL else first


def _call_arguments(operands: Sequence[StackValue]) -> Sequence[StackValue]:
    first, second, *arguments = operands
    return arguments if first is _NULL or second is _NULL else (second, *arguments)


_ANY = StackValue()
_CLASS = StackValue(is_class=True)
_NULL = StackValue(constant=None)  # the empty place beside a function that is no bound method


def steps(code: CodeType) -> Iterator[Step]:
    """The instructions of ``code`` in order, those that cannot be reached included."""
    stack: list[StackValue] = []
    known = True  # False in code that nothing seen so far leads to: the stack is long enough, but is not that of a run
    ended = False
    handlers = _handlers(code)
    ahead: dict[int, list[StackValue]] = {}  # the stacks at targets of jumps and at handlers
    keywords: StackValue | None = None
    for position, operation, argument in _instructions(code):
        if position in ahead:
            before = ahead.pop(position)
            if not ended and (lost := _join(before, stack if known else None)):
                yield Step(position, JOIN, 0, "", lost)
            stack, known = before, True
        elif ended:
            stack, known = [_ANY] * code.co_stacksize, False
        ended = operation in _ENDS
        for target, depth, pushed in handlers.get(position, ()):
            if lost := _arrive(ahead, target, [*stack[:depth], *[_ANY] * pushed] if known else None):
                yield Step(position, JOIN, 0, "", lost)
        if operation == "SWAP":
            stack[-1], stack[-argument] = stack[-argument], stack[-1]
            continue
        if operation == "COPY":
            stack.append(stack[-argument])
            continue
        if operation == "KW_NAMES":
            keywords = StackValue(constant=code.co_consts[argument])
            continue
        if operation in _FORWARD_JUMPS:
            target = _following(code.co_code, position) + 2 * argument
            if lost := _arrive(ahead, target, _after_jump(stack, operation, argument) if known else None):
                yield Step(position, JOIN, 0, "", lost)
        name = code.co_names[argument >> _NAME_SHIFT.get(operation, 0)] if operation in _NAME_OPERATIONS else ""
        popped, pushed = _effect(operation, argument)
        operands: Sequence[StackValue] = _pop(stack, popped) if popped else ()
        load = _LOADS.get(operation)
        if load is not None:
            stack += load(code, argument, name, operands)
        elif pushed:
            stack += [_ANY] * pushed
        if keywords is not None:
            operation, operands, keywords = "CALL_KW", [*operands, keywords], None
        yield Step(position, operation, argument, name, operands)
        if operation in _BACKWARD_JUMPS and any(value.label for value in stack):
            yield Step(position, JOIN, 0, "", stack)


def _instructions(code: CodeType) -> Iterator[tuple[int, str, int]]:
    """Offset, operation and argument of each instruction. The walk of the ``dis`` module is ten times slower."""
    raw, names = code.co_code, dis.opname
    extended, start = 0, -1  # of the prefixes EXTENDED_ARG
    for position in range(0, len(raw), 2):
        operation = names[raw[position]]
        if operation in _SKIPPED:
            continue
        argument = raw[position + 1] | extended
        if operation == "EXTENDED_ARG":
            extended, start = argument << 8, position if start < 0 else start
            continue
        yield position if start < 0 else start, operation, argument
        extended, start = 0, -1


def _following(raw: bytes, position: int) -> int:
    """The offset after the instruction at ``position`` and its inline caches."""
    while raw[position] == dis.EXTENDED_ARG:
        position += 2
    position += 2
    while position < len(raw) and raw[position] == _CACHE:
        position += 2
    return position


def _pop(stack: list[StackValue], count: int) -> list[StackValue]:
    taken = stack[-count:]
    del stack[-count:]
    return taken


def _arrive(ahead: dict[int, list[StackValue]], target: int, stack: list[StackValue] | None) -> list[StackValue]:
    """Note the stack with which execution comes to ``target``; returns the values that are not known there."""
    if target in ahead:
        return _join(ahead[target], stack)
    if stack is not None:
        ahead[target] = stack
    return []


def _join(stack: list[StackValue], other: list[StackValue] | None) -> list[StackValue]:
    """Leave in ``stack`` what it has in common with ``other``, nothing if that is not known.

    Returns the values of both that differ.
    """
    lost: list[StackValue] = []
    for index, (first, second) in enumerate(zip(stack, other or [_ANY] * len(stack), strict=False)):
        if first is not second and first != second:
            lost += (first, second)
            stack[index] = _ANY
    return lost


def _after_jump(stack: list[StackValue], operation: str, argument: int) -> list[StackValue]:
    """The stack at the target of a jump."""
    effect = dis.stack_effect(dis.opmap[operation], argument, jump=True)
    return stack[:effect] if effect < 0 else stack + [_ANY] * effect


_PUSH_NOTHING = frozenset(
    {"COPY_FREE_VARS", "MAKE_CELL", "NOP", "RESUME", "END_FOR", "END_ASYNC_FOR", "IMPORT_STAR", "PRINT_EXPR", "RERAISE"}
    | {"RAISE_VARARGS", "SETUP_ANNOTATIONS"}
)
_NOTHING_STARTS = ("STORE_", "DELETE_", "POP_", "JUMP_", "RETURN_VALUE", "RETURN_CONST")


@functools.cache
def _effect(operation: str, argument: int) -> tuple[int, int]:
    """How many values the instruction takes from the stack, and how many it puts there, if it does not jump.

    ``dis`` has the difference of the two. An instruction that is not listed here puts one value on the stack.
    """
    if operation == "CALL":
        return argument + 2, 1
    if operation == "RETURN_GENERATOR":
        return 0, 1
    opcode = dis.opmap[operation]
    difference = dis.stack_effect(opcode, argument if opcode >= dis.HAVE_ARGUMENT else None, jump=False)
    if operation in _POPS:
        return _POPS[operation], _POPS[operation] + difference
    if operation in _PUSH_NOTHING or operation.startswith(_NOTHING_STARTS):
        return -difference, 0
    pushed = max(1, difference)
    return pushed - difference, pushed


_POPS = {
    "LOAD_ATTR": 1, "LOAD_METHOD": 1, "LOAD_SUPER_ATTR": 3, "LOAD_FROM_DICT_OR_GLOBALS": 1, "UNPACK_SEQUENCE": 1,
    "UNPACK_EX": 1, "STORE_FAST_LOAD_FAST": 1, "STORE_FAST_STORE_FAST": 2, "BEFORE_WITH": 1, "BEFORE_ASYNC_WITH": 1,
    "SEND": 1,
}  # fmt: skip
"""Of instructions that put another number of values on the stack than one: how many they take."""


def variable_name(code: CodeType, index: int) -> str:
    """The variable behind operand ``index`` of an instruction: locals, then new cells, then free variables.

    All instructions on variables count this way, not only those on cells. Since Python 3.12 a comprehension in a
    function saves and restores its variable as a local one also where that is a cell; since 3.13 LOAD_FAST loads the
    cells of a closure.
    """
    names = code.co_varnames
    if index < len(names):
        return names[index]
    cells = [name for name in code.co_cellvars if name not in names]
    return (*names, *cells, *code.co_freevars)[index]


def stored_variables(code: CodeType, operation: str, argument: int) -> tuple[str, ...]:
    """The variables that an instruction ``STORE_FAST``, or one that contains it, assigns."""
    if operation == "STORE_FAST":
        return (variable_name(code, argument),)
    if operation == "STORE_FAST_LOAD_FAST":
        return (variable_name(code, argument >> 4),)
    if operation == "STORE_FAST_STORE_FAST":
        return variable_name(code, argument >> 4), variable_name(code, argument & 15)
    return ()


_Load = Callable[[CodeType, int, str, Sequence[StackValue]], Sequence[StackValue]]


def _constant(code: CodeType, argument: int, name: str, operands: Sequence[StackValue]) -> Sequence[StackValue]:
    return (StackValue(constant=code.co_consts[argument]),)


def _variable(code: CodeType, argument: int, name: str, operands: Sequence[StackValue]) -> Sequence[StackValue]:
    return (StackValue(variable_name(code, argument)),)


def _two_variables(code: CodeType, argument: int, name: str, operands: Sequence[StackValue]) -> Sequence[StackValue]:
    return StackValue(variable_name(code, argument >> 4)), StackValue(variable_name(code, argument & 15))


def _second_variable(code: CodeType, argument: int, name: str, operands: Sequence[StackValue]) -> Sequence[StackValue]:
    return (StackValue(variable_name(code, argument & 15)),)


def _global(code: CodeType, argument: int, name: str, operands: Sequence[StackValue]) -> Sequence[StackValue]:
    return (StackValue(name, (name,)),)


def _called_global(code: CodeType, argument: int, name: str, operands: Sequence[StackValue]) -> Sequence[StackValue]:
    value = StackValue(name, (name,))
    if not argument & 1:
        return (value,)
    return (value, _NULL) if sys.version_info >= (3, 13) else (_NULL, value)


def _attribute(code: CodeType, argument: int, name: str, operands: Sequence[StackValue]) -> Sequence[StackValue]:
    owner = operands[-1]
    chain = (*owner.chain, name) if owner.chain else ()
    return (StackValue(name, chain, owner=owner),)


def _called_attribute(code: CodeType, argument: int, name: str, operands: Sequence[StackValue]) -> Sequence[StackValue]:
    value = _attribute(code, argument, name, operands)
    return (*value, _NULL) if argument & 1 else value


def _method(code: CodeType, argument: int, name: str, operands: Sequence[StackValue]) -> Sequence[StackValue]:
    return (*_attribute(code, argument, name, operands), _NULL)


def _entry(code: CodeType, argument: int, name: str, operands: Sequence[StackValue]) -> Sequence[StackValue]:
    key = operands[-1]
    return (StackValue(f"[{key.constant!r}]"),) if key.is_constant else (_ANY,)


def _result(code: CodeType, argument: int, name: str, operands: Sequence[StackValue]) -> Sequence[StackValue]:
    is_class = _callee(operands).chain == ("type",) and len(_call_arguments(operands)) == 1
    return (_CLASS,) if is_class else (_ANY,)


def _null(code: CodeType, argument: int, name: str, operands: Sequence[StackValue]) -> Sequence[StackValue]:
    return (_NULL,)


_LOADS: dict[str, _Load] = {
    "LOAD_CONST": _constant,
    "LOAD_FAST": _variable,
    "LOAD_FAST_CHECK": _variable,
    "LOAD_DEREF": _variable,
    "LOAD_CLASSDEREF": _variable,
    "LOAD_FROM_DICT_OR_DEREF": _variable,
    "LOAD_FAST_LOAD_FAST": _two_variables,
    "STORE_FAST_LOAD_FAST": _second_variable,
    "LOAD_GLOBAL": _called_global,
    "LOAD_NAME": _global,
    "LOAD_FROM_DICT_OR_GLOBALS": _global,
    "LOAD_ATTR": _called_attribute if sys.version_info >= (3, 12) else _attribute,
    "LOAD_SUPER_ATTR": _called_attribute,
    "LOAD_METHOD": _method,
    "BINARY_SUBSCR": _entry,
    "CALL": _result,
    "PUSH_NULL": _null,
}
"""The values that instructions put on the stack, where something is known about them."""


def protected_ranges(code: CodeType) -> list[tuple[int, int]]:
    """Ranges of offsets that an exception handler covers."""
    return [(start, end) for start, end, _, _, _ in _exception_table(code)]


def _handlers(code: CodeType) -> dict[int, list[tuple[int, int, int]]]:
    """By the start of a range, its handlers: offset, values of the stack that stay, values that are put there."""
    handlers: dict[int, list[tuple[int, int, int]]] = {}
    for start, _, target, depth, pushed in _exception_table(code):
        handlers.setdefault(start, []).append((target, depth, pushed))
    return handlers


def _exception_table(code: CodeType) -> list[tuple[int, int, int, int, int]]:
    """Start and end of each range, and its handler as in `_handlers`."""
    table = iter(code.co_exceptiontable)
    rows = []
    while (start := _number(table)) is not None:
        length, target, depth = _number(table) or 0, _number(table) or 0, _number(table) or 0
        rows.append((start * 2, (start + length) * 2, target * 2, depth >> 1, 1 + (depth & 1)))
    return rows


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
