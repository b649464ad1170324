"""The kinds of checks, a row each: what is read of an object, and how it is compared with what is expected."""

from __future__ import annotations

import weakref
from types import CodeType
from typing import Any, Final

from thunder_core.guards.check import (
    EQUAL,
    IDENTICAL,
    IS,
    IS_NOT,
    LACKS,
    Check,
    Comparison,
    Condition,
)
from thunder_core.guards.guard import show, type_name
from thunder_core.guards.plain import identical, is_plain, key_text
from thunder_core.guards.source import Source
from thunder_core.guards.steps import NamespaceSource
from thunder_core.guards.stored_content import stored_items

# ---------------------------------------------------------------- what an object is

TYPE: Final = Condition(
    "type",
    "type({value})",
    IS,
    lambda value, expected: f": expected an object of type {type_name(expected)}, got {type_name(type(value))}",
    type_name,
)
VALUE: Final = Condition("value", "{value}", IDENTICAL, summary=show)
"""Type and value of plain data, all the way down."""
EQUALITY: Final = Condition("equality", "{value}", Comparison("type({actual}) is not {type} or {actual} != {expected}"))
"""Type and ``==``, for objects with an equality of their own."""
IDENTITY: Final = Condition("identity", "{value}", IS)
"""The very same object, which the check keeps alive: for classes, builtins, Python modules."""
REFERENT: Final = Condition(
    "identity",
    "{value}",
    Comparison("{actual} is None or {actual} is not {expected}()"),  # a reference to what is gone gives None
    lambda value, expected: f": is another object than before ({expected.name})",
)
"""The very same object, which the check does not keep alive."""
ALIAS: Final = Condition("alias", "{value}", IS, lambda value, expected: f": is no longer {expected.describe()}")
"""The object that another path leads to."""
DISTINCT: Final = Condition(
    "distinct", "{value}", IS_NOT, lambda value, expected: f": is now the same object as {expected.describe()}"
)
"""Another object than the one that another path leads to."""
NOT_AMONG: Final = Condition(
    "not among",
    "id({value})",
    Comparison("{actual} in {expected}"),
    lambda value, expected: ": is now one of the objects that a container holds",
    lambda expected: f"{len(expected)} objects",
)
"""None of some objects, which are expected by id."""


class _Referent(weakref.ref[Any]):
    """A weak reference that knows the name of the object's class."""

    __slots__ = ("name",)
    name: str


def identity_check(source: Source, value: Any) -> Check:
    """``source`` leads to ``value``, which the check keeps alive only if it must."""
    try:
        reference = _Referent(value)
    except TypeError:  # its class has no room for weak references
        return Check(source, IDENTITY, value)
    reference.name = type(value).__name__
    return Check(source, REFERENT, reference)


# ---------------------------------------------------------------- functions and classes


def _other_code(value: Any, expected: CodeType) -> str:
    code = getattr(value, "__code__", None)
    got = show(value) if code is None else f"{code.co_qualname} ({code.co_filename}:{code.co_firstlineno})"
    return f": expected the function {expected.co_qualname}, got {got}"


CODE: Final = Condition("function", "{value}.__code__", IS, _other_code)
"""A Python function with this code; which function object it is does not matter."""
SUBCLASS: Final = Condition(
    "subclass",
    "{value}",
    Comparison("not issubclass({expected}, {actual})"),
    lambda value, expected: f": {expected.__qualname__} is no longer a subclass of it",
    lambda expected: f"{expected.__qualname__} is one",
)
"""An abstract class, in which others can be registered at any time, and a subclass of it."""
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
"""A function of ``functools.lru_cache`` whose results were not cleared: it has at least as many misses."""


def own_names(kind: Any) -> frozenset[str]:
    """The names that a class defines itself, but for those that Python gives it."""
    return frozenset(name for name in vars(kind) if not name.startswith("__"))


OWN_NAMES: Final = Condition(
    "names",
    "{own_names}({value})",
    EQUAL,
    lambda value, expected: f": has other attributes than before: {show(tuple(sorted(own_names(value) ^ expected)))}",
    uses=(own_names,),
)
_MADE_LATE: Final = frozenset(
    {"__abstractmethods__", "__annotate__", "__annotate_func__", "__annotations__", "__annotations_cache__"}
    | {"__doc__", "__slotnames__", "_abc_impl"}
)
"""What Python keeps in a class when it is first asked for it."""


def newly_defined(kind: type, expected: frozenset[str]) -> frozenset[str]:
    """The names that a class defines itself and did not, or no longer does; what Python keeps there may come and go."""
    return frozenset(vars(kind).keys() ^ expected) - _MADE_LATE


DEFINED_NAMES: Final = Condition(
    "defined names",
    "{value}",
    # first what takes half of the time
    Comparison("vars({actual}).keys() != {expected} and {newly_defined}({actual}, {expected})", (newly_defined,)),
    lambda value, expected: f": defines other names than before: {show(tuple(sorted(newly_defined(value, expected))))}",
)
"""All names that a class defines itself, special ones among them."""

# ---------------------------------------------------------------- what objects consist of


def _other_length(value: Any, expected: int) -> str:
    return f": expected {expected} items, got {len(value)}"


LENGTH: Final = Condition("length", "len({value})", EQUAL, _other_length)
STORED_LENGTH: Final = Condition("length", "len({stored_items}({value}))", EQUAL, _other_length, uses=(stored_items,))
"""Of a container whose class says something else than what it holds."""


def _other_keys(value: Any, expected: tuple[Any, ...]) -> str:
    return f": expected the keys {show(expected)}, got {show(tuple(value))}"


def _other_attributes(value: Any, expected: Any) -> str:
    return f": expected the attributes {show(tuple(expected))}, got {show(tuple(value))}"


# By their method, since dispatch evaluates this on whatever the path leads to: an iterator would be consumed.
KEYS: Final = Condition("keys", "tuple({value}.keys())", IDENTICAL, _other_keys)
STRING_KEYS: Final = Condition("keys", "tuple({value}.keys())", EQUAL, _other_keys)
STORED_KEYS: Final = Condition("keys", "{stored_items}({value})", IDENTICAL, _other_keys, uses=(stored_items,))
"""Of a dictionary whose class says something else than what it holds."""
ATTRIBUTES: Final = Condition("attributes", "tuple({value}.keys())", EQUAL, _other_attributes)
"""Of a dictionary of attributes, the path of which is that of the object: all names in it, in their order."""
ATTRIBUTES_IN_ANY_ORDER: Final = Condition(
    "attributes", "{value}", Comparison("{actual}.keys() != {expected}"), _other_attributes
)


def keys_check(source: Source, keys: tuple[Any, ...], *, stored: bool = False) -> Check:
    """The keys of a dictionary, in their order; ``stored``: its class says something else than what it holds."""
    if stored:
        return Check(source, STORED_KEYS, keys)
    return Check(source, STRING_KEYS if all(type(key) is str for key in keys) else KEYS, keys)


def attributes_check(
    source: Source, names: tuple[str, ...], dictionary: str = "__dict__", *, ordered: bool = True
) -> Check:
    """The names in one of the dictionaries of an object, in their order if that counts."""
    namespace = NamespaceSource(source, dictionary)
    if ordered:
        return Check(namespace, ATTRIBUTES, names)
    return Check(namespace, ATTRIBUTES_IN_ANY_ORDER, frozenset(names))


def same_members(items: tuple[Any, ...], expected: tuple[Any, ...]) -> bool:
    """True for the very same objects, and plain values that are identical."""
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
"""The items of a set, in the order in which they come: plain values by value, objects by identity."""


def array_content(array: Any, *, content: bool = True) -> tuple[Any, ...]:
    """Element type and shape of a NumPy array, and its bytes unless it is an input of the compiled program."""
    return array.dtype.str, array.shape, array.tobytes() if content else None


def same_array(value: Any, expected: tuple[Any, ...]) -> bool:
    """Whether a value is an array with that `array_content`."""
    return hasattr(value, "tobytes") and array_content(value, content=expected[2] is not None) == expected


ARRAY: Final = Condition(
    "array",
    "{value}",
    Comparison("not {same_array}({actual}, {expected})", (same_array,)),
    lambda value, expected: f": expected the same array as before of {expected[:2]}, got {show(value)}",
)

# ---------------------------------------------------------------- what objects lack

_NOW_IT_DOES: Final = "did not exist, now it does"
NO_ENTRY: Final = Condition(
    "absent", "{value}", LACKS, lambda value, expected: f"[{key_text(expected)}]: {_NOW_IT_DOES}"
)
"""A dictionary without a key."""
NOT_ITS_OWN: Final = Condition("absent", "{value}", LACKS, lambda value, expected: f".{expected}: {_NOW_IT_DOES}")
"""A dictionary of attributes, the path of which is that of the object, without one of that name."""
NO_ATTRIBUTE: Final = Condition(
    "absent",
    "{value}",
    Comparison("hasattr({actual}, {expected})"),
    lambda value, expected: f".{expected}: {_NOW_IT_DOES}",
)
NOT_SHADOWED: Final = Condition(
    "not shadowed",
    "{value}.keys()",
    Comparison("not {actual}.isdisjoint({expected})"),
    lambda value, expected: f": {', '.join(sorted(value.keys() & expected))} is no longer the builtin",
    lambda expected: ", ".join(sorted(expected)),
)
"""The global variables of a Python module, among which are none with the names of these builtins."""

HOOKS: Final = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
"""The dictionaries in which a module holds its hooks."""


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
"""The attributes of a module without forward or backward hooks and with the ``forward`` of its class."""


def not_its_own(source: Source, name: str, dictionary: str = "__dict__") -> Check:
    """The object has no attribute of its own by that name in one of its dictionaries."""
    return Check(NamespaceSource(source, dictionary), NOT_ITS_OWN, name)
