"""Numbers of the trace in texts that the program only prints or logs: ``print(f"loss {loss.item():.3f}")``.

Python requires that formatting returns a string. Where the bytecode shows that the text is an argument of ``print`` or
of a logger and nothing else, the number leaves a placeholder in it. The op that prints gets a format string in place of
the text, and the numbers as further arguments, so that each run formats its own. Any other text has the value of this
call, which each call checks.
"""

from __future__ import annotations

import logging
import re
import string
import sys
from types import CodeType, FrameType, FunctionType
from typing import Any, Final

from thunder_core.tracing.frames import PACKAGES, is_of_thunder
from thunder_frontend.observe.abstract_stack import Instruction, StackValue, consumers, is_marked, variable_consumers
from thunder_frontend.record.attempt import RecordAgain

_OPEN, _CLOSE = "\U0010fde0", "\U0010fde1"
"""The first and last character of a placeholder, for private use: texts do not contain them."""
_PLACEHOLDER: Final = re.compile(f"{_OPEN}([0-9]+){_CLOSE}")
_METHODS: Final = frozenset({"debug", "info", "warning", "error", "critical"})
_FORMATS: Final = frozenset({"FORMAT_VALUE", "FORMAT_SIMPLE", "FORMAT_WITH_SPEC"})
_CONVERSION: Final = 3
"""The bits of the argument of ``FORMAT_VALUE`` that name a conversion."""
_BY_ASCII: Final = 3
"""The conversion of ``f"{n!a}"``, which escapes placeholders."""
_HAS_SPECIFICATION: Final = 4
"""The bit of the argument of ``FORMAT_VALUE``."""
_ADD: Final = 0
"""The argument of ``BINARY_OP``."""
_CALLS: Final = frozenset({"CALL", "CALL_KW"})
_STORES: Final = frozenset({"STORE_FAST"})
_READS_VARIABLES: Final = frozenset({"locals", "eval", "exec", "vars", "dir"})
_OF_TENSORS: Final = frozenset({"torch._tensor", "torch.overrides"})
"""The modules of PyTorch with the code that runs between ``f"{tensor}"`` and its handler."""
_BY_CODE: Final = frozenset({"c"})  # ``f"{n:c}"`` raises an exception for some numbers


def placeholder(recorder: Any, number: Any, example: Any, specification: str | None) -> str | None:
    """The text of a formatted number; None where the value of this call has to be taken.

    Args:
        example: a number of its class.
        specification: None for the text of ``str`` and ``repr``.

    Raises:
        Exception: of Python, for an invalid specification.
    """
    if not allowed(recorder, specification):
        return None
    if specification is not None:
        format(example, specification)
    return in_text(recorder, number, "!r" if specification is None else f":{specification}")


def in_text(recorder: Any, number: Any, field: str = "") -> str:
    """The placeholder of a number; ``field`` is what follows it in a format string."""
    texts = recorder.notes.setdefault(placeholder, [])
    texts.append((number, field))
    return f"{_OPEN}{len(texts) - 1}{_CLOSE}"


def allowed(recorder: Any, specification: str | None) -> bool:
    """Whether the text that the program formats now may have a placeholder."""
    if not recorder.attempt.formats or recorder.suspension.active or not _fits(specification or ""):
        return False
    frame = _program_frame()
    return frame is not None and _is_only_printed(frame, whole=specification is None)


def _fits(specification: str) -> bool:
    """Whether a field of a format string can have a specification, and it formats each number."""
    return specification[-1:] not in _BY_CODE and "{" not in specification and "}" not in specification


def template(recorder: Any, values: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Values with format strings for texts, and the numbers in these; without placeholders the values and nothing."""
    numbers: list[Any] = []

    def formatted(text: str) -> str:
        parts = _PLACEHOLDER.split(text)
        for position in range(1, len(parts), 2):
            number, field = recorder.notes[placeholder][int(parts[position])]
            parts[position] = f"{{{len(numbers)}{field}}}"
            numbers.append(number)
        parts[::2] = [part.replace("{", "{{").replace("}", "}}") for part in parts[::2]]
        return "".join(parts)

    if not has_placeholders(values):
        return values, ()
    changed = tuple([formatted(value) if type(value) is str else value for value in values])
    return changed, tuple(numbers)


def has_placeholders(values: Any) -> bool:
    """Whether there are texts with placeholders among some values."""
    return any(type(value) is str and _OPEN in value for value in values)


def refuse(values: Any) -> None:
    """Record again without placeholders if there are any among values that no op can format."""
    if has_placeholders(values):
        raise RecordAgain("a text with a number of the trace is printed by other code", formats=False)


def _program_frame() -> FrameType | None:
    """The frame that formats a number, or a tensor."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (module := str(frame.f_globals.get("__name__"))):
        if module.partition(".")[0] not in PACKAGES and module not in _OF_TENSORS:
            break
        frame = frame.f_back
    return frame


def _is_only_printed(frame: FrameType, *, whole: bool) -> bool:
    """Whether the text that the current instruction of a frame formats is only printed or logged.

    Args:
        whole: whether it is the text of ``str`` or ``repr``, maybe as a part of that of a container, which must not be
            padded afterwards.
    """
    code = frame.f_code
    instruction, taken = consumers(code, frame.f_lasti)
    if instruction is None or not _is_format(instruction, frame.f_globals, whole=whole):
        return False
    return _are_printed(taken, frame, code, through_variable=True)


def _is_format(instruction: Instruction, namespace: dict[str, Any], *, whole: bool) -> bool:
    """Whether an instruction formats a number, as part of a text that it does not change afterwards."""
    operation = instruction.operation
    if operation == "CONVERT_VALUE":
        return whole and instruction.argument != _BY_ASCII
    if operation in _FORMATS:
        if operation == "FORMAT_VALUE" and instruction.argument & _CONVERSION == _BY_ASCII:
            return False
        padded = operation == "FORMAT_WITH_SPEC" or (
            operation == "FORMAT_VALUE" and instruction.argument & _HAS_SPECIFICATION
        )
        return not (whole and padded)
    callee = instruction.callee if operation in _CALLS else StackValue()
    if callee.chain == ("str",):
        return whole and "str" not in namespace
    if callee.label != "format" or callee.owner is None or type(callee.owner.constant) is not str:
        return False
    fields = string.Formatter().parse(callee.owner.constant)
    return all(conversion is None and "{" not in (specification or "") for _, _, specification, conversion in fields)


def _are_printed(taken: list[Instruction], frame: FrameType, code: CodeType, *, through_variable: bool) -> bool:
    return bool(taken) and all(_is_printed(each, frame, code, through_variable=through_variable) for each in taken)


def _is_printed(taken: Instruction, frame: FrameType, code: CodeType, *, through_variable: bool) -> bool:
    """Whether the instruction that takes a text prints it, or passes it to one that does."""
    adds = taken.operation == "BINARY_OP" and taken.argument == _ADD
    if adds and not all(is_marked(each) or type(each.constant) is str for each in taken.operands):
        return False
    if adds or taken.operation in ("BUILD_STRING", "FORMAT_SIMPLE"):
        return _are_printed(consumers(code, taken.position)[1], frame, code, through_variable=through_variable)
    if taken.operation in _STORES and through_variable and _READS_VARIABLES.isdisjoint(code.co_names):
        name = code.co_varnames[taken.argument]
        return name not in code.co_cellvars and _are_printed(
            variable_consumers(code, name), frame, code, through_variable=False
        )
    return taken.operation in _CALLS and _prints(taken.callee, frame)


def _prints(callee: StackValue, frame: FrameType) -> bool:
    """Whether a called function is ``print`` or logs, and is recorded as an op."""
    if callee.chain == ("print",):
        return "print" not in frame.f_globals and _is_intercepted(frame.f_builtins.get("print"))
    if len(callee.chain) != 2 or callee.chain[1] not in _METHODS:
        return False
    owner, name = frame.f_globals.get(callee.chain[0]), callee.chain[1]
    if owner is logging:
        return vars(logging)[name].__module__ == "logging" and _is_intercepted(vars(logging.Logger)[name])
    return type(owner) in (logging.Logger, logging.RootLogger) and _is_intercepted(vars(logging.Logger)[name])


def _is_intercepted(function: Any) -> bool:
    return type(function) is FunctionType and is_of_thunder(function.__code__)
