"""An abstract interpretation of bytecode: the instructions of a code object with the origins of their operands.

One pass over the bytecode, from start to end, maintains a stack of origins: the variable, attribute or constant from
which each value was loaded. Where two control-flow paths join, an origin is known if it is the same on both. This is
the only file that depends on the encoding of bytecode, which differs between CPython 3.11, 3.12, 3.13 and 3.14.
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
JUMPS_IF_NONE: Final = frozenset(name for name in dis.opmap if name.endswith(("_IF_NONE", "_IF_NOT_NONE")))
FIRST_ASSIGNMENT: Final = 13
"""The arguments of ``BINARY_OP`` from this one on are assignments, such as ``+=``; those below are operators."""
SUBSCRIPT: Final = 26
"""The argument of ``BINARY_OP`` for ``a[b]``, which is an instruction ``BINARY_SUBSCR`` before Python 3.14."""
COMMON_CONSTANTS: Final[tuple[Any, ...]] = (AssertionError, NotImplementedError, tuple, all, any)
"""The values of ``LOAD_COMMON_CONSTANT`` by its argument."""
JOIN: Final = "JOIN"
"""The operation of an `Instruction` for a join of control flow: its operands differ between the joined paths."""
UNKNOWN: Final = ""
"""The label of a value that was loaded from neither a variable nor an attribute."""
NO_CONSTANT: Final[Any] = type("NoConstant", (), {"__repr__": lambda _: "NO_CONSTANT"})()

_COMPARISON_SHIFT = 0 if sys.version_info < (3, 12) else 4 if sys.version_info < (3, 13) else 5
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
"""Instructions that the next instruction never follows."""
_OF_NUMBERS = frozenset({2, 3, 6, 8, 9, 11})
"""The arguments of ``BINARY_OP`` for ``// << % ** >> /``. The other operators also combine containers."""
_PLAIN_RESULTS = frozenset(
    {"abs", "bool", "dim", "float", "hasattr", "id", "int", "isinstance", "item", "len", "ndimension", "numel", "ord"}
    | {"repr", "round", "size", "str"}
)
"""Functions and methods of C with such results. Those of Python that have these names are observed when they return."""
_CACHE = dis.opmap["CACHE"]
_BACKWARD_JUMPS = frozenset(dis.opname[code] for code in dis.hasjrel if "BACKWARD" in dis.opname[code])
_FORWARD_JUMPS = {dis.opname[code] for code in dis.hasjrel} - _BACKWARD_JUMPS - {"END_ASYNC_FOR"}
"""Without ``END_ASYNC_FOR``, whose argument is the start of the loop, for `sys.monitoring`."""
_SKIPPED = frozenset({"CACHE", "PRECALL"})


class StackValue(NamedTuple):
    """The origin of a value on the stack.

    Attributes:
        label: the name of the variable or attribute, ``['a']`` for an item of a container, or UNKNOWN.
        chain: the global variable and the attributes loaded from it without other operations: ``("F", "relu")``.
        constant: the value of a constant.
        owner: for an attribute, the origin of the object from which it was loaded.
        is_class: whether the value is a result of ``type(x)``.
        is_plain: whether it is a number or a text, which an operator or a builtin function has computed.
    """

    label: str = UNKNOWN
    chain: tuple[str, ...] = ()
    constant: Any = NO_CONSTANT
    owner: StackValue | None = None
    is_class: bool = False
    is_plain: bool = False

    @property
    def is_constant(self) -> bool:
        """Whether the value is a constant."""
        return self.constant is not NO_CONSTANT

    @property
    def is_common(self) -> bool:
        """Whether the value is one of the `COMMON_CONSTANTS`, which instructions load without a lookup."""
        return any(self.constant is each for each in COMMON_CONSTANTS)


class Instruction(NamedTuple):
    """An instruction, or a `JOIN`.

    A call with keywords is a ``CALL_KW`` in all versions; its last operand is the tuple of the keywords. A subscript is
    a ``BINARY_SUBSCR``.

    Attributes:
        position: its offset in the bytecode.
        argument: its argument in the bytecode.
        name: the name of the attribute, global variable or Python module, or the operator of a comparison.
        operands: the values that it pops from the stack, the lowest first.
    """

    position: int
    operation: str
    argument: int
    name: str
    operands: Sequence[StackValue]

    @property
    def callee(self) -> StackValue:
        """The called function."""
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
_PLAIN = StackValue(is_plain=True)
_NULL = StackValue(constant=None)  # pushed together with a function that is not a bound method


_MARKED = StackValue("<marked>")  # a label that no variable has


def consumers(code: CodeType, position: int) -> tuple[Instruction | None, list[Instruction]]:
    """The instruction at an offset, as ``frame.f_lasti`` has it, and those that take its result from the stack.

    A `JOIN` among these means that not all of them are known.
    """
    start = max([each for each, _, _ in _decoded(code) if each <= position])
    found = list(instructions(code, start))
    own = next((each for each in found if each.position == start and each.operation != JOIN), None)
    return own, [each for each in found if any(value is _MARKED for value in each.operands)]


def is_marked(value: StackValue) -> bool:
    """Whether a value is the one of which `consumers` returns the instructions."""
    return value is _MARKED


def variable_consumers(code: CodeType, name: str) -> list[Instruction]:
    """The instructions that take the value of a local variable from the stack."""
    return [
        each
        for each in instructions(code)
        if any(value.label == name and not value.chain and value.owner is None for value in each.operands)
    ]


def instructions(code: CodeType, marked: int = -1) -> Iterator[Instruction]:
    """The instructions of ``code`` in order, including unreachable ones.

    Args:
        marked: the offset of an instruction whose result gets the label of a marked value.
    """
    stack: list[StackValue] = []
    known = True  # False in code without a known predecessor: the stack has a sufficient size and unknown values
    ended = False
    handlers = _handlers(code)
    ahead: dict[int, list[StackValue]] = {}  # by position of a jump target or handler: the stack there
    keywords: StackValue | None = None
    for position, operation, argument in _decoded(code):
        if position in ahead:
            before = ahead.pop(position)
            if not ended and (lost := _join(before, stack if known else None)):
                yield Instruction(position, JOIN, 0, "", lost)
            stack, known = before, True
        elif ended:
            stack, known = [_ANY] * code.co_stacksize, False
        ended = operation in _ENDS
        for target, depth, pushed in handlers.get(position, ()):
            if lost := _arrive(ahead, target, [*stack[:depth], *[_ANY] * pushed] if known else None):
                yield Instruction(position, JOIN, 0, "", lost)
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
                yield Instruction(position, JOIN, 0, "", lost)
        name = code.co_names[argument >> _NAME_SHIFT.get(operation, 0)] if operation in _NAME_OPERATIONS else ""
        if operation == "COMPARE_OP":
            name = dis.cmp_op[argument >> _COMPARISON_SHIFT]
        popped, pushed = _effect(operation, argument)
        operands: Sequence[StackValue] = _pop(stack, popped) if popped else ()
        if operation == "BINARY_OP" and argument == SUBSCRIPT:
            operation = "BINARY_SUBSCR"
        load = _LOADS.get(operation)
        if load is not None:
            stack += load(code, argument, name, operands)
        elif pushed:
            stack += [_ANY] * pushed
        if position == marked and pushed:
            stack[-1] = _MARKED
        if keywords is not None:
            operation, operands, keywords = "CALL_KW", [*operands, keywords], None
        yield Instruction(position, operation, argument, name, operands)
        if operation in _BACKWARD_JUMPS and any(value.label for value in stack):
            yield Instruction(position, JOIN, 0, "", stack)


def _decoded(code: CodeType) -> Iterator[tuple[int, str, int]]:
    """Offset, operation and argument of each instruction. `dis.get_instructions` takes ten times as long."""
    raw, names = code.co_code, dis.opname
    extended, start = 0, -1  # from the prefixes EXTENDED_ARG
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


def uses_as_value(code: CodeType, name: str) -> bool:
    """Whether code uses the global variable ``name`` other than by calling it."""
    loads = [(operation, argument) for _, operation, argument in _decoded(code) if operation in GLOBAL_LOADS]
    return any(
        code.co_names[argument >> _NAME_SHIFT.get(operation, 0)] == name
        and not (operation in _NAME_SHIFT and argument & 1)
        for operation, argument in loads
    )


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
    """Record the stack of a jump to ``target``; returns the values whose origins become unknown."""
    if target in ahead:
        return _join(ahead[target], stack)
    if stack is not None:
        ahead[target] = stack
    return []


def _join(stack: list[StackValue], other: list[StackValue] | None) -> list[StackValue]:
    """Replace the values of ``stack`` that differ from ``other`` by unknown ones; all, if ``other`` is unknown.

    Returns the values of both stacks that differ.
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
    {"COPY_FREE_VARS", "MAKE_CELL", "NOP", "NOT_TAKEN", "RESUME", "END_FOR", "END_ASYNC_FOR", "IMPORT_STAR"}
    | {"PRINT_EXPR", "RERAISE", "RAISE_VARARGS", "SETUP_ANNOTATIONS"}
)
_NOTHING_STARTS = ("STORE_", "DELETE_", "POP_", "JUMP_", "RETURN_CONST")
_FIXED = {"RETURN_GENERATOR": (0, 1), "RETURN_VALUE": (1, 0)}
"""Instructions for which `dis.stack_effect` differs between versions."""


@functools.cache
def _effect(operation: str, argument: int) -> tuple[int, int]:
    """The numbers of values that an instruction pops and pushes, if it does not jump.

    `dis.stack_effect` returns their difference. An instruction that is not listed here pushes one value.
    """
    if operation == "CALL":
        return argument + 2, 1
    if operation in _FIXED:
        return _FIXED[operation]
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
    "SEND": 1, "LOAD_SPECIAL": 1,
}  # fmt: skip
"""The numbers of popped values, for instructions that do not push one value."""


def variable_name(code: CodeType, index: int) -> str:
    """The variable with the argument ``index`` of an instruction: locals, then new cells, then free variables.

    This holds for all instructions on variables, not only for those on cells. Since Python 3.12 a comprehension in a
    function saves and restores its variable as a local one also where that is a cell; since 3.13 LOAD_FAST loads the
    cells of a closure.
    """
    names = code.co_varnames
    if index < len(names):
        return names[index]
    cells = [name for name in code.co_cellvars if name not in names]
    return (*names, *cells, *code.co_freevars)[index]


def stored_variables(code: CodeType, operation: str, argument: int) -> tuple[str, ...]:
    """The variables that ``STORE_FAST``, an instruction that combines it with another, or ``DELETE_FAST`` changes."""
    if operation in ("STORE_FAST", "DELETE_FAST"):
        return (variable_name(code, argument),)
    if operation == "STORE_FAST_LOAD_FAST":
        return (variable_name(code, argument >> 4),)
    if operation == "STORE_FAST_STORE_FAST":
        return variable_name(code, argument >> 4), variable_name(code, argument & 15)
    return ()


def _variable(code: CodeType, argument: int) -> StackValue:
    return StackValue(variable_name(code, argument))


def _attribute(name: str, owner: StackValue) -> StackValue:
    return StackValue(name, (*owner.chain, name) if owner.chain else (), owner=owner)


def _item(key: StackValue) -> StackValue:
    return StackValue(f"[{key.constant!r}]") if key.is_constant else _ANY


def _result(operands: Sequence[StackValue]) -> StackValue:
    if _callee(operands).label in _PLAIN_RESULTS:
        return _PLAIN
    return _CLASS if _callee(operands).chain == ("type",) and len(_call_arguments(operands)) == 1 else _ANY


def _called(argument: int, value: StackValue, *, null_first: bool = False) -> tuple[StackValue, ...]:
    """A value, and beside it `_NULL` if the instruction pushes the function of a call."""
    if not argument & 1:
        return (value,)
    return (_NULL, value) if null_first else (value, _NULL)


_NULL_BELOW_GLOBAL = sys.version_info < (3, 13)
_ATTRIBUTE_MAY_BE_CALLED = sys.version_info >= (3, 12)
_Load = Callable[[CodeType, int, str, Sequence[StackValue]], Sequence[StackValue]]
_LOADS: dict[str, _Load] = {
    "LOAD_CONST": lambda code, argument, name, operands: (StackValue(constant=code.co_consts[argument]),),
    "LOAD_SMALL_INT": lambda code, argument, name, operands: (StackValue(constant=argument),),
    "LOAD_COMMON_CONSTANT": lambda code, argument, name, operands: (StackValue(constant=COMMON_CONSTANTS[argument]),),
    **dict.fromkeys(
        (
            "LOAD_FAST",
            "LOAD_FAST_BORROW",
            "LOAD_FAST_CHECK",
            "LOAD_DEREF",
            "LOAD_CLASSDEREF",
            "LOAD_FROM_DICT_OR_DEREF",
        ),
        lambda code, argument, name, operands: (_variable(code, argument),),
    ),
    **dict.fromkeys(
        ("LOAD_FAST_LOAD_FAST", "LOAD_FAST_BORROW_LOAD_FAST_BORROW"),
        lambda code, argument, name, operands: (_variable(code, argument >> 4), _variable(code, argument & 15)),
    ),
    "STORE_FAST_LOAD_FAST": lambda code, argument, name, operands: (_variable(code, argument & 15),),
    "LOAD_GLOBAL": lambda code, argument, name, operands: _called(
        argument, StackValue(name, (name,)), null_first=_NULL_BELOW_GLOBAL
    ),
    **dict.fromkeys(
        ("LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"), lambda code, argument, name, operands: (StackValue(name, (name,)),)
    ),
    "LOAD_ATTR": lambda code, argument, name, operands: _called(
        argument if _ATTRIBUTE_MAY_BE_CALLED else 0, _attribute(name, operands[-1])
    ),
    "LOAD_SUPER_ATTR": lambda code, argument, name, operands: _called(argument, _attribute(name, operands[-1])),
    "LOAD_METHOD": lambda code, argument, name, operands: (_attribute(name, operands[-1]), _NULL),
    "BINARY_SUBSCR": lambda code, argument, name, operands: (_item(operands[-1]),),
    "CALL": lambda code, argument, name, operands: (_result(operands),),
    "CONVERT_VALUE": lambda code, argument, name, operands: (_PLAIN,),
    **dict.fromkeys(("FORMAT_SIMPLE", "FORMAT_VALUE", "FORMAT_WITH_SPEC"), lambda *_: (_PLAIN,)),
    "BINARY_OP": lambda code, argument, name, operands: (_PLAIN if argument in _OF_NUMBERS else _ANY,),
    "PUSH_NULL": lambda code, argument, name, operands: (_NULL,),
}
"""The values that instructions push, for those with known origins."""


def protected_ranges(code: CodeType) -> list[tuple[int, int]]:
    """The ranges of offsets with an exception handler."""
    return [(start, end) for start, end, _, _, _ in _exception_table(code)]


def _handlers(code: CodeType) -> dict[int, list[tuple[int, int, int]]]:
    """By start of a range, its handlers: offset, number of values that stay on the stack, number of pushed values."""
    handlers: dict[int, list[tuple[int, int, int]]] = {}
    for start, _, target, depth, pushed in _exception_table(code):
        handlers.setdefault(start, []).append((target, depth, pushed))
    return handlers


def _exception_table(code: CodeType) -> list[tuple[int, int, int, int, int]]:
    """Start and end of each protected range, and its handler as in `_handlers`."""
    table = iter(code.co_exceptiontable)
    rows = []
    while (start := _number(table)) is not None:
        length, target, depth = _number(table) or 0, _number(table) or 0, _number(table) or 0
        rows.append((start * 2, (start + length) * 2, target * 2, depth >> 1, 1 + (depth & 1)))
    return rows


def _number(table: Iterator[int]) -> int | None:
    """The next number of an exception table: six bits per byte, the highest bits first."""
    byte = next(table, None)
    if byte is None:
        return None
    value = byte & 63
    while byte & 64:
        byte = next(table)
        value = value << 6 | byte & 63
    return value
