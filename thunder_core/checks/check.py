"""Checks: guards that are declared as rows of a table, from which code, messages and dispatch keys derive."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any, Final

import torch

from thunder_core.checks.guard import DispatchKey, Guard, show
from thunder_core.checks.plain import SINGLETON_TYPES, identical, is_plain, literal
from thunder_core.checks.sizes import NUMBER
from thunder_core.checks.source import PATH_ERRORS, Args, Constants, ItemSource, Kwargs, Names, Source
from thunder_core.ir.import_paths import module_of
from thunder_core.ir.program import compile_source

Functions = tuple[Callable[..., Any], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """A comparison of an actual value with the expected one.

    Attributes:
        failure: Python of a condition that is true if they differ. Its placeholders are ``{actual}``, ``{expected}``,
            ``{type}`` (the class of the expected value) and the names of the functions in ``uses``.
        uses: functions that the condition calls.
        key: Python of the dispatch key, with the placeholder ``{actual}``; empty if the value cannot be a key.
    """

    failure: str
    uses: Functions = ()
    key: str = ""

    @property
    def needs_type(self) -> bool:
        """Whether the condition contains the class of the expected value."""
        return "{type}" in self.failure


IS: Final = Comparison("{actual} is not {expected}", key="id({actual})")
IS_NOT: Final = Comparison("{actual} is {expected}")
EQUAL: Final = Comparison("{actual} != {expected}", key="{actual}")
TRUTH: Final = Comparison("bool({actual}) is not {expected}", key="{actual}")
IDENTICAL: Final = Comparison("not {identical}({actual}, {expected})", (identical,), key="{actual}")
LACKS: Final = Comparison("{expected} in {actual}")


def _expected_and_got(value: Any, expected: Any) -> str:
    """The message of most conditions."""
    return f": expected {show(expected)}, got {show(value)}"


def _nothing(expected: Any) -> str:
    return ""


@dataclass(frozen=True, slots=True, eq=False)
class Condition:
    """A property of an object and its comparison: a row of `thunder_core.checks.conditions`.

    Attributes:
        kind: the compared property, in one or two words.
        expression: Python of the actual value. Its placeholders are ``{value}`` (the object) and the names of the
            functions in ``uses``.
        comparison: how the actual value is compared with the expected one.
        message: returns the message of a failed check, without the path, for an object and the expected value.
        summary: returns a short text for an expected value.
        uses: functions that the expression calls.
        title: the comment above the loop, for a condition that the prologue checks in one loop over many objects.
    """

    kind: str
    expression: str
    comparison: Comparison
    message: Callable[[Any, Any], str] = _expected_and_got
    summary: Callable[[Any], str] = _nothing
    uses: Functions = ()
    title: str = ""

    def actual(self, value: str, names: Names) -> str:
        """Python of the actual value, where ``value`` is Python of the object."""
        return self.expression.format(value=value, **_constants(self.uses, names))

    def failure(self, value: str, expected: str, expected_type: str, names: Names) -> str:
        """Python of a condition that is true if the check fails.

        Args:
            value, expected, expected_type: Python of the object, of the expected value and of its class.
            names: the names of constants in the generated function.
        """
        actual = self.actual(value, names)
        used = _constants(self.comparison.uses, names)
        return self.comparison.failure.format(actual=actual, expected=expected, type=expected_type, **used)


def _constants(functions: Functions, names: Names) -> dict[str, str]:
    """The names by which generated code calls these functions."""
    return {each.__name__: names.constant(each, each.__name__) for each in functions}


@functools.cache
def _key_expression(condition: Condition) -> str:
    """Python of the dispatch key, with the placeholder ``{value}`` for the object."""
    return condition.comparison.key.format(actual=condition.expression)


@functools.cache
def compiled_test(conditions: tuple[Condition, ...]) -> Callable[..., bool]:
    """A function ``f(value, *expected)`` that returns whether all conditions hold, with the code of the prologue."""
    names, expected = Constants(), [f"expected_{index}" for index in range(len(conditions))]
    failures = [
        condition.failure("value", name, f"type({name})", names)
        for condition, name in zip(conditions, expected, strict=True)
    ]
    source = f"def holds(value, {', '.join(expected)}):\n    return not ({' or '.join(failures)})\n"
    return compile_source(source, "holds", names.namespace, title="conditions")


@functools.cache
def compiled_reader(condition: Condition) -> Callable[[Any], Any]:
    """A function ``f(value)`` that returns the actual value of a condition."""
    names = Constants()
    source = f"def read(value):\n    return {condition.actual('value', names)}\n"
    return compile_source(source, "read", names.namespace, title="conditions")


@dataclass(frozen=True, slots=True, eq=False)
class Check(Guard):
    """A condition on the object at the path ``source``.

    Attributes:
        expected: the expected value, or a path to it.
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
            return "pass or store it as a tensor, torch.tensor(number): a compiled program is specialized to the number"
        if isinstance(self.expected, str) and self.condition.comparison is IDENTICAL:
            return "each text has a program of its own: use few, or keep a text that does not matter out of the program"
        if self.condition.kind == "length":
            return "pass as many items in each call, or one padded tensor in place of them"
        return Guard.remedy(self)

    def failure(self, value: str, names: Names) -> str:
        expected, condition = self.expected, self.condition
        if isinstance(expected, Source):
            text = expected.expression(names)
        else:
            short = _short_failure(condition, value, expected, names)
            if short is not None:
                return short
            text = (None if condition.comparison is IS else literal(expected)) or _constant(condition, expected, names)
        expected_type = _constant(condition, type(expected), names) if condition.comparison.needs_type else ""
        return condition.failure(value, text, expected_type, names)

    def violation(self, args: Args, kwargs: Kwargs) -> str | None:
        expected = self.expected
        try:
            value = self.source.read(args, kwargs)
            expected = expected.read(args, kwargs) if isinstance(expected, Source) else expected
        except PATH_ERRORS as error:
            return f"{self.source.describe()}: is missing ({error})"
        try:
            holds = compiled_test((self.condition,))(value, expected)
        except PATH_ERRORS:  # an object of another type
            holds = False
        return None if holds else self.source.describe() + self.condition.message(value, self.expected)

    def differing_sizes(self, args: Args, kwargs: Kwargs) -> dict[Source, frozenset[int]] | None:
        if self.condition.comparison is not IDENTICAL or isinstance(self.expected, Source):
            return Guard.differing_sizes(self, args, kwargs)
        try:
            value = compiled_reader(self.condition)(self.source.read(args, kwargs))
        except PATH_ERRORS:
            return None
        numbers = _differing_numbers(self.expected, value, self.source)
        return None if numbers is None else {source: frozenset({NUMBER}) for source in numbers}

    def keys(self) -> Iterator[tuple[DispatchKey, Any]]:
        condition, expected = self.condition, self.expected
        key = condition.comparison.key
        if not key or condition.uses or isinstance(expected, Source):
            return
        if condition.comparison is IDENTICAL:
            yield DispatchKey(self.source, f"id(type({condition.expression}))"), id(type(expected))
        if condition.comparison is IS:
            yield DispatchKey(self.source, _key_expression(condition)), id(expected)
        elif _can_be_looked_up(expected):
            yield DispatchKey(self.source, _key_expression(condition)), expected


def _short_failure(condition: Condition, value: str, expected: Any, names: Names) -> str | None:
    """The condition in a shorter or faster form, if there is one for this expected value; else None."""
    comparison, kind = condition.comparison, type(expected)
    if comparison is not TRUTH and comparison is not IDENTICAL:
        return None
    actual = condition.actual(value, names)
    if comparison is TRUTH:
        return f"not {actual}" if expected else actual
    text = literal(expected)
    if kind in SINGLETON_TYPES:
        return f"{actual} is not {text or _constant(condition, expected, names)}"
    if text is not None and (kind in (int, str, bytes) or (kind is float and expected != 0)):
        return f"type({actual}) is not {kind.__name__} or {actual} != {text}"
    if isinstance(expected, list | dict | set):  # may change in place, so identity does not imply equality
        return None
    constant = _constant(condition, expected, names)
    return f"{actual} is not {constant} and not {names.constant(identical, 'identical')}({actual}, {text or constant})"


def _constant(condition: Condition, expected: Any, names: Names) -> str:
    """The name of a value in generated code, as a constant."""
    return names.constant(expected, _name_of(expected) or f"expected_{condition.kind.replace(' ', '_')}")


def _name_of(value: Any) -> str:
    """A name for a constant, from the name of the value or of its class; empty for builtin classes."""
    if isinstance(value, CodeType):
        return f"code_of_{value.co_name}"
    if isinstance(value, torch.dtype | torch.layout | torch.memory_format | torch.device):
        return str(value).replace("torch.", "").replace(":", "")
    if isinstance(value, weakref.ref):
        return f"the_{getattr(value, 'name', 'object')}"
    if isinstance(value, type | FunctionType | BuiltinFunctionType | ModuleType):
        return value.__name__
    return "" if module_of(type(value)) == "builtins" else type(value).__name__


def _can_be_looked_up(value: Any) -> bool:
    """Whether a value can be the key of a dictionary: hashable, and without NaN, which is not equal to itself."""
    try:
        hash(value)
    except TypeError:
        return False
    return is_plain(value) and (not isinstance(value, float | complex | tuple | frozenset) or "nan" not in repr(value))


def _differing_numbers(expected: Any, value: Any, source: Source) -> list[Source] | None:
    """The paths to ints and floats in ``value`` that differ from the expected ones; None if anything else differs.

    Args:
        source: the path to ``value``.
    """
    if identical(value, expected):
        return []
    kind = type(expected)
    if type(value) is not kind:
        return None
    if kind is int or kind is float:
        return [source]
    if kind is dict and identical(list(value), list(expected)):  # also the types of keys: 1 == True
        keys = list(expected)
    elif kind in (list, tuple, torch.Size) and len(value) == len(expected):
        keys = list(range(len(expected)))
    else:
        return None
    parts = [_differing_numbers(expected[key], value[key], ItemSource(source, key)) for key in keys]
    return None if None in parts else [source for numbers in parts for source in numbers or ()]
