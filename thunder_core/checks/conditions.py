"""The kinds of checks, one row each: an expression of an object, and its comparison with an expected value."""

from __future__ import annotations

import enum
import weakref
from collections.abc import Iterator, Sequence
from types import CodeType, FunctionType
from typing import Any, Final

from thunder_core.checks.arrays import array_content, shares_memory
from thunder_core.checks.check import (
    EQUAL,
    IDENTICAL,
    IS,
    IS_NOT,
    LACKS,
    Check,
    Comparison,
    Condition,
)
from thunder_core.checks.guard import Guard, show, type_name
from thunder_core.checks.plain import identical, is_plain, key_text, same_items_of
from thunder_core.checks.source import ConstantSource, NamespaceSource, Source
from thunder_core.checks.stored_attributes import is_filled, referent_of
from thunder_core.checks.stored_content import stored_items
from thunder_core.ir.import_paths import module_of
from thunder_core.tracing.frames import CodeKind, is_in_installed, is_of_thunder, kind_of_class

# ---------------------------------------------------------------- type, value and identity

TYPE: Final = Condition(
    "type",
    "type({value})",
    IS,
    lambda value, expected: f": expected an object of type {type_name(expected)}, got {type_name(type(value))}",
    type_name,
)
VALUE: Final = Condition("value", "{value}", IDENTICAL, summary=show)
"""Type and value of plain data at all levels."""
EQUALITY: Final = Condition("equality", "{value}", Comparison("type({actual}) is not {type} or {actual} != {expected}"))
"""Type and ``==``, for objects whose class defines ``__eq__``."""
IDENTITY: Final = Condition("identity", "{value}", IS)
"""Identity, with a strong reference to the object: for classes, builtins, Python modules."""
REFERENT: Final = Condition(
    "identity",
    "{value}",
    Comparison("{actual} is None or {actual} is not {expected}()"),  # a dead reference returns None
    lambda value, expected: f": is not the same object as before ({expected.name})",
)
"""Identity, with a weak reference to the object."""
ALIAS: Final = Condition("alias", "{value}", IS, lambda value, expected: f": is no longer {expected.describe()}")
"""Identity with the object at another path."""
DISTINCT: Final = Condition(
    "distinct", "{value}", IS_NOT, lambda value, expected: f": is now the same object as {expected.describe()}"
)
"""No identity with the object at another path."""
NOT_AMONG: Final = Condition(
    "not among",
    "id({value})",
    Comparison("{actual} in {expected}"),
    lambda value, expected: ": is now one of the objects that a container holds",
    lambda expected: f"{len(expected)} objects",
)
"""No identity with any of several objects, given by their ids; objects that get such an id later fail it, too."""


class _Referent(weakref.ref[Any]):
    """A weak reference with the name of the object's class."""

    __slots__ = ("name",)
    name: str


def identity_check(source: Source, value: Any) -> Check:
    """Check the identity of an object, with a weak reference if its class allows that."""
    try:
        reference = _Referent(value)
    except TypeError:  # its class has no slot for weak references
        return Check(source, IDENTITY, value)
    reference.name = type(value).__name__
    return Check(source, REFERENT, reference)


# ---------------------------------------------------------------- functions and classes


def _other_code(value: Any, expected: CodeType) -> str:
    code = getattr(value, "__code__", None)
    got = show(value) if code is None else f"{code.co_qualname} ({code.co_filename}:{code.co_firstlineno})"
    return f": expected the function {expected.co_qualname}, got {got}"


CODE: Final = Condition("function", "{value}.__code__", IS, _other_code)
"""A Python function with this code, whichever function object it is."""
SUBCLASS: Final = Condition(
    "subclass",
    "{value}",
    Comparison("not issubclass({expected}, {actual})"),
    lambda value, expected: f": {expected.__qualname__} is no longer a subclass of it",
    lambda expected: f"{expected.__qualname__} is one",
)
"""An abstract class, which can register subclasses at any time, and one of its subclasses."""
NO_SUBCLASS: Final = Condition(
    "subclass",
    "{value}",
    Comparison("issubclass({expected}, {actual})"),
    lambda value, expected: f": {expected.__qualname__} is now a subclass of it",
    lambda expected: f"{expected.__qualname__} is none",
)
CACHED_RESULTS: Final = Condition(
    "cached results",
    "{value}.cache_info()[1]",
    Comparison("{actual} < {expected}"),
    lambda value, expected: ": its cache was cleared",
)
"""A function of ``functools.lru_cache`` whose cache was not cleared: its number of misses has not decreased."""


def other_attributes(kind: Any, expected: frozenset[str]) -> frozenset[str]:
    """The names in which the attributes of a class differ from ``expected``, without special names."""
    return frozenset(name for name in vars(kind).keys() ^ expected if not name.startswith("__"))


CLASS_ATTRIBUTE_NAMES: Final = Condition(
    "names",
    "{value}",
    # comparing the keys first is sufficient for most checks, and takes an eighth of the time
    Comparison("vars({actual}).keys() != {expected} and {other_attributes}({actual}, {expected})", (other_attributes,)),
    lambda value, expected: f": its attributes changed: {show(tuple(sorted(other_attributes(value, expected))))}",
)
"""All names that a class defines itself, given with special ones, which Python may add later."""
_ADDED_BY_PYTHON: Final = frozenset(
    {"__abstractmethods__", "__annotate__", "__annotate_func__", "__annotations__", "__annotations_cache__"}
    | {"__doc__", "__slotnames__", "_abc_impl"}
)
"""Attributes that Python adds to a class when they are first read."""


def newly_defined(kind: type, expected: frozenset[str]) -> frozenset[str]:
    """The names that a class has added or removed, except for those that Python adds when they are first read."""
    return frozenset(vars(kind).keys() ^ expected) - _ADDED_BY_PYTHON


DEFINED_NAMES: Final = Condition(
    "defined names",
    "{value}",
    # comparing the keys first is sufficient for most checks, and takes half of the time
    Comparison("vars({actual}).keys() != {expected} and {newly_defined}({actual}, {expected})", (newly_defined,)),
    lambda value, expected: (
        f": the names that it defines changed: {show(tuple(sorted(newly_defined(value, expected))))}"
    ),
)
"""All names that a class defines itself, special names included."""


BASES: Final = Condition(
    "bases",
    "{value}.__mro__",
    EQUAL,
    lambda value, expected: ": its bases changed",
    lambda expected: ", ".join(map(type_name, expected[1:])),
)
"""The classes in which Python looks up the attributes of a class."""


def class_checks(kind: type) -> Iterator[Check]:
    """Checks of the bases of a class, and of the names that it and its bases define.

    Library classes and installed packages are not checked.
    """
    checked = [base for base in kind.__mro__ if _is_checked(base)]
    if checked:
        yield Check(ConstantSource(kind, kind.__name__), BASES, kind.__mro__)
    for base in checked:
        yield Check(ConstantSource(base, base.__name__), DEFINED_NAMES, frozenset(vars(base)))


def _is_checked(kind: type) -> bool:
    of_user = kind_of_class(kind) is CodeKind.USER and not issubclass(kind, enum.Enum)
    return of_user and not is_in_installed(module_of(kind))


# ---------------------------------------------------------------- containers and attributes


def _other_length(value: Any, expected: int) -> str:
    return f": expected {expected} items, got {len(value)}"


LENGTH: Final = Condition("length", "len({value})", EQUAL, _other_length)
STORED_LENGTH: Final = Condition("length", "len({stored_items}({value}))", EQUAL, _other_length, uses=(stored_items,))
"""The number of stored items, if the class overrides access to them."""


def _other_keys(value: Any, expected: tuple[Any, ...]) -> str:
    return f": expected the keys {show(expected)}, got {show(tuple(value))}"


def _other_attributes(value: Any, expected: Any) -> str:
    return f": expected the attributes {show(tuple(expected))}, got {show(tuple(value))}"


SAME_ITEMS: Final = Condition(
    "same items",
    "{same_items_of}({value})",
    EQUAL,
    lambda value, expected: ": other items of it are the same object",
    uses=(same_items_of,),
)
"""Which items of a container of plain values are the same objects."""
# `keys()` instead of iteration: dispatch evaluates this on any object at the path, and must not consume an iterator.
KEYS: Final = Condition("keys", "tuple({value}.keys())", IDENTICAL, _other_keys)
STRING_KEYS: Final = Condition("keys", "tuple({value}.keys())", EQUAL, _other_keys)
STORED_KEYS: Final = Condition("keys", "{stored_items}({value})", IDENTICAL, _other_keys, uses=(stored_items,))
"""The stored keys of a dictionary, if its class overrides access to them."""
ATTRIBUTES: Final = Condition("attributes", "tuple({value}.keys())", EQUAL, _other_attributes)
"""The names in a dictionary of attributes (`NamespaceSource`), in their order."""
ATTRIBUTES_IN_ANY_ORDER: Final = Condition(
    "attributes", "{value}", Comparison("{actual}.keys() != {expected}"), _other_attributes
)


def keys_check(source: Source, keys: tuple[Any, ...], *, stored: bool = False) -> Check:
    """Check the keys of a dictionary and their order; ``stored``: its class overrides access to its items."""
    if stored:
        return Check(source, STORED_KEYS, keys)
    return Check(source, STRING_KEYS if all(type(key) is str for key in keys) else KEYS, keys)


def attributes_check(
    source: Source, names: tuple[str, ...], dictionary: str = "__dict__", *, ordered: bool = True
) -> Check:
    """Check the names in one of the dictionaries of attributes of an object, and their order if ``ordered``."""
    namespace = NamespaceSource(source, dictionary)
    if ordered:
        return Check(namespace, ATTRIBUTES, names)
    return Check(namespace, ATTRIBUTES_IN_ANY_ORDER, frozenset(names))


def same_members(items: tuple[Any, ...], expected: tuple[Any, ...]) -> bool:
    """Whether ``items`` are identical to the expected items: plain values by type and value, others by identity."""
    return len(items) == len(expected) and all(
        item is other or (is_plain(other) and identical(item, other))
        for item, other in zip(items, expected, strict=True)
    )


MEMBERS: Final = Condition(
    "members",
    "{stored_items}({value})",
    Comparison("not {same_members}({actual}, {expected})", (same_members,)),
    lambda value, expected: f": expected the items {show(expected)}, got {show(value)}",
    uses=(stored_items,),
)
"""The items of a set in the order of iteration, compared by `same_members`."""


def same_array(value: Any, expected: tuple[Any, ...]) -> bool:
    """Whether a value is a buffer with this `array_content`."""
    try:
        return array_content(value, content=expected[2] is not None) == expected
    except (TypeError, ValueError, BufferError):
        return False


ARRAY: Final = Condition(
    "array",
    "{value}",
    Comparison("not {same_array}({actual}, {expected})", (same_array,)),
    lambda value, expected: f": expected an equal array of {expected[:2]}, got {show(value)}",
)

OTHER_MEMORY: Final = Condition(
    "other memory",
    "{value}",
    Comparison("{shares_memory}({actual}, {expected})", (shares_memory,)),
    lambda value, expected: f": shares memory with {expected.describe()}, which the program writes",
)
"""A buffer that shares no memory with the tensor at another path."""

# ---------------------------------------------------------------- absence

_ADDED: Final = "did not exist, now it does"


def _attribute_added(value: Any, expected: Any) -> str:
    return f".{expected}: {_ADDED}"


NO_ENTRY: Final = Condition("absent", "{value}", LACKS, lambda value, expected: f"[{key_text(expected)}]: {_ADDED}")
"""A dictionary without a key."""
NOT_IN_DICT: Final = Condition("absent", "{value}", LACKS, _attribute_added)
"""A dictionary of attributes (`NamespaceSource`) without a name."""
NO_ATTRIBUTE: Final = Condition(
    "absent",
    "{value}",
    Comparison("hasattr({actual}, {expected})"),
    _attribute_added,
)
EMPTY_SLOT: Final = Condition(
    "absent",
    "{value}",
    Comparison("{is_filled}({actual}, {expected})", (is_filled,)),
    _attribute_added,
)
"""An object without a value in a slot; a ``__getattr__`` of its class, which may return one, is not called."""
GONE: Final = Condition(
    "gone",
    "{referent_of}({value})",
    IS,
    lambda value, expected: ": refers to an object",
    uses=(referent_of,),
)
"""A weak proxy whose object is gone; no other check can have it as its expected value."""
NOT_SHADOWED: Final = Condition(
    "not shadowed",
    "{value}.keys()",
    Comparison("not {actual}.isdisjoint({expected})"),
    lambda value, expected: f": {', '.join(sorted(value.keys() & expected))} is no longer the builtin",
    lambda expected: ", ".join(sorted(expected)),
)
"""A Python module without global variables that have the names of these builtins."""


def is_replaced(value: Any, original: Any) -> bool:
    """Whether a builtin is another object than ``original``. What recordings put in its place does not count."""
    return value is not original and not (type(value) is FunctionType and is_of_thunder(value.__code__))


def any_replaced(values: tuple[Any, ...], originals: tuple[Any, ...]) -> bool:
    """Whether any of the builtins is replaced. It calls none of those that may be."""
    index = -1
    return True in [is_replaced(value, originals[index := index + 1]) for value in values]


def _names(functions: tuple[Any, ...]) -> str:
    return ", ".join([getattr(function, "__name__", repr(function)) for function in functions])


BUILTINS: Final = Condition(
    "builtins",
    "{value}",
    Comparison("{actual} != {expected} and {any_replaced}({actual}, {expected})", (any_replaced,)),
    lambda value, expected: f": expected {_names(expected)}, got {_names(value)}",
    _names,
)
"""The builtins that the program names."""

HOOKS: Final = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
"""The attributes in which a module stores its hooks."""


def _hooked(value: Any, expected: None) -> str:
    if "forward" in value:
        return ".forward: was replaced on the module"
    return f".{next(name for name in HOOKS if value[name])}: a hook was registered"


NO_HOOKS: Final = Condition(
    "hooks",
    "{value}",
    Comparison(" or ".join(["'forward' in {actual}", *[f"{{actual}}[{name!r}]" for name in HOOKS]])),
    _hooked,
    title="modules that were called: no hooks, and the forward of their class",
)
"""A module without forward or backward hooks and without an instance attribute ``forward``."""


def not_in_dict(source: Source, name: str, dictionary: str = "__dict__") -> Check:
    """Check that one of the dictionaries of attributes of an object lacks a name."""
    return Check(NamespaceSource(source, dictionary), NOT_IN_DICT, name)


def without_implied(guards: Sequence[Guard]) -> list[Guard]:
    """The guards without those of absent names in dictionaries of attributes of which others check all names.

    Code that reads every attribute of an object, and tests for some of them, has both. In a prologue of GPT-2 of
    Hugging Face they were a third of the conditions.
    """
    complete = {
        (id(guard.source.base), guard.source.dictionary)
        for guard in guards
        if isinstance(guard, Check)
        and guard.condition in (ATTRIBUTES, ATTRIBUTES_IN_ANY_ORDER)
        and isinstance(guard.source, NamespaceSource)
    }

    def is_implied(guard: Guard) -> bool:
        if not isinstance(guard, Check) or guard.condition is not NOT_IN_DICT:
            return False
        source = guard.source
        return isinstance(source, NamespaceSource) and (id(source.base), source.dictionary) in complete

    return [guard for guard in guards if not is_implied(guard)]
