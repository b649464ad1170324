"""Checks: guards that are rows. Prologue code, explanation, message and dispatch key of each follow from its row."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any, Final

import torch

from thunder_core.guards.guard import Guard, Key, show
from thunder_core.guards.plain import SINGLETON_TYPES, identical, is_plain, literal
from thunder_core.guards.source import PATH_ERRORS, Args, Kwargs, Names, Source
from thunder_core.ir.program import compile_source

Functions = tuple[Callable[..., Any], ...]
Constant = Callable[[Any, str], str]
"""Gives the name of a constant, of the value and a hint."""


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """How what was read is compared with what is expected.

    Attributes:
        failure: a Python condition that is true when they differ, with ``{actual}``, ``{expected}``, the latter's class
            ``{type}``, and the names of ``uses``.
        uses: functions that the condition calls.
        key: Python for the dispatch key, with ``{actual}``; empty when entries cannot be looked up by it.
    """

    failure: str
    uses: Functions = ()
    key: str = ""

    @property
    def needs_type(self) -> bool:
        """Whether the condition names the class of what is expected."""
        return "{type}" in self.failure


IS: Final = Comparison("{actual} is not {expected}", key="id({actual})")
IS_NOT: Final = Comparison("{actual} is {expected}")
EQUAL: Final = Comparison("{actual} != {expected}", key="{actual}")
TRUTH: Final = Comparison("bool({actual}) is not {expected}", key="{actual}")
IDENTICAL: Final = Comparison("not {identical}({actual}, {expected})", (identical,), key="{actual}")
LACKS: Final = Comparison("{expected} in {actual}")


def expected_and_got(value: Any, expected: Any) -> str:
    """The usual message."""
    return f": expected {show(expected)}, got {show(value)}"


def _nothing(expected: Any) -> str:
    return ""


@dataclass(frozen=True, slots=True, eq=False)
class Condition:
    """What checks of one kind have in common: a row of `thunder_core.guards.conditions`.

    Attributes:
        kind: what is compared, in a word or two.
        expression: Python for what is read, with ``{value}`` for the object and the names of ``uses``.
        message: why it fails, to follow the path, of the object and what is expected.
        summary: what is expected, for people.
        uses: functions that the expression calls.
        title: what many objects have in common that the prologue checks in one loop; empty for all other conditions.
    """

    kind: str
    expression: str
    comparison: Comparison
    message: Callable[[Any, Any], str] = expected_and_got
    summary: Callable[[Any], str] = _nothing
    uses: Functions = ()
    title: str = ""

    def actual(self, value: str, constant: Constant) -> str:
        """Python for what is read of the object ``value``."""
        if not self.uses:
            return self.expression.format(value=value)
        return self.expression.format(value=value, **_constants(self.uses, constant))

    def failure(self, value: str, expected: str, kind: str, constant: Constant) -> str:
        """Python that is true when the check fails, of expressions of the object, what is expected, and its class."""
        actual = self.actual(value, constant)
        used = _constants(self.comparison.uses, constant)
        return self.comparison.failure.format(actual=actual, expected=expected, type=kind, **used)


def _constants(functions: Functions, constant: Constant) -> dict[str, str]:
    return {each.__name__: constant(each, each.__name__) for each in functions}


@functools.cache
def key_expression(condition: Condition) -> str:
    """Python for the dispatch key of the object ``{value}``."""
    return condition.comparison.key.format(actual=condition.expression)


@functools.cache
def holding(conditions: tuple[Condition, ...]) -> Callable[..., bool]:
    """``f(value, *expected)``, true when each of the conditions holds: the code of prologues, as a function."""
    namespace: dict[str, Any] = {}
    names = [f"expected_{index}" for index in range(len(conditions))]
    failures = [
        condition.failure("value", name, f"type({name})", _in(namespace))
        for condition, name in zip(conditions, names, strict=True)
    ]
    source = f"def holds(value, {', '.join(names)}):\n    return not ({' or '.join(failures)})\n"
    return compile_source(source, "holds", namespace, title="conditions")


@functools.cache
def reading(condition: Condition) -> Callable[[Any], Any]:
    """``f(value)``, what the condition reads."""
    namespace: dict[str, Any] = {}
    source = f"def read(value):\n    return {condition.actual('value', _in(namespace))}\n"
    return compile_source(source, "read", namespace, title="conditions")


def _in(namespace: dict[str, Any]) -> Constant:
    def constant(value: Any, hint: str) -> str:
        namespace[hint] = value
        return hint

    return constant


@dataclass(frozen=True, slots=True, eq=False)
class Check(Guard):
    """A condition on the object that ``source`` leads to.

    Attributes:
        expected: what the condition has to read; a path stands for the object that it leads to.
    """

    condition: Condition
    expected: Any = None

    @property
    def kind(self) -> str:
        return self.condition.kind

    @property
    def paths(self) -> tuple[Source, ...]:
        return (self.expected,) if isinstance(self.expected, Source) else ()

    def summary(self) -> str:
        return self.condition.summary(self.expected)

    def remedy(self) -> str:
        number = isinstance(self.expected, int | float | complex) and not isinstance(self.expected, bool)
        if number and self.condition.comparison is IDENTICAL:
            return "pass it, or store it, as a tensor: torch.tensor(number); a compiled program is for one number"
        return Guard.remedy(self)

    def failure(self, value: str, names: Names) -> str:
        expected, condition, constant = self.expected, self.condition, names.constant
        if isinstance(expected, Source):
            text = expected.expression(names)
        else:
            short = _short_failure(condition, value, expected, names)
            if short is not None:
                return short
            text = (None if condition.comparison is IS else literal(expected)) or _constant(condition, expected, names)
        kind = _constant(condition, type(expected), names) if condition.comparison.needs_type else ""
        return condition.failure(value, text, kind, constant)

    def violation(self, args: Args, kwargs: Kwargs) -> str | None:
        expected = self.expected
        try:
            value = self.source.read(args, kwargs)
            expected = expected.read(args, kwargs) if isinstance(expected, Source) else expected
        except PATH_ERRORS as error:
            return f"{self.source.describe()}: is missing ({error})"
        try:
            holds = holding((self.condition,))(value, expected)
        except PATH_ERRORS:  # an object of another kind
            holds = False
        return None if holds else self.source.describe() + self.condition.message(value, self.expected)

    def keys(self) -> Iterator[tuple[Key, Any]]:
        condition, expected = self.condition, self.expected
        key = condition.comparison.key
        if not key or condition.uses or isinstance(expected, Source):
            return
        if condition.comparison is IDENTICAL:
            yield Key(self.source, f"id(type({condition.expression}))"), id(type(expected))
        if condition.comparison is IS:
            yield Key(self.source, key_expression(condition)), id(expected)
        elif _can_be_looked_up(expected):
            yield Key(self.source, key_expression(condition)), expected


def _short_failure(condition: Condition, value: str, expected: Any, names: Names) -> str | None:
    """A shorter or faster form of the code for what is expected here; None where there is none."""
    comparison, kind = condition.comparison, type(expected)
    if comparison is not TRUTH and comparison is not IDENTICAL:
        return None
    actual = condition.actual(value, names.constant)
    if comparison is TRUTH:
        return f"not {actual}" if expected else actual
    text = literal(expected)
    if kind in SINGLETON_TYPES:
        return f"{actual} is not {text or _constant(condition, expected, names)}"
    if text is not None and (kind in (int, str, bytes) or (kind is float and expected != 0)):
        return f"type({actual}) is not {kind.__name__} or {actual} != {text}"
    if isinstance(expected, list | dict | set):  # may change in place: being the same object proves nothing
        return None
    constant = _constant(condition, expected, names)
    return f"{actual} is not {constant} and not {names.constant(identical, 'identical')}({actual}, {text or constant})"


def _constant(condition: Condition, expected: Any, names: Names) -> str:
    """The name of what is expected."""
    return names.constant(expected, _hint(expected) or f"expected_{condition.kind.replace(' ', '_')}")


def _hint(value: Any) -> str:
    """A name for a constant; empty where its value has none."""
    if isinstance(value, CodeType):
        return f"code_of_{value.co_name}"
    if isinstance(value, torch.dtype | torch.layout | torch.memory_format | torch.device):
        return str(value).replace("torch.", "").replace(":", "")
    if isinstance(value, weakref.ref):
        return f"the_{getattr(value, 'name', 'object')}"
    if isinstance(value, type | FunctionType | BuiltinFunctionType | ModuleType):
        return value.__name__
    return "" if type(value).__module__ == "builtins" else type(value).__name__


def _can_be_looked_up(value: Any) -> bool:
    """True for values that a dictionary finds again: hashable, and no NaN (unequal to itself) inside."""
    try:
        hash(value)
    except TypeError:
        return False
    return is_plain(value) and (not isinstance(value, float | complex | tuple | frozenset) or "nan" not in repr(value))
