"""The stored content of containers, accessed by the methods of their builtin base class, which classes may override."""

from __future__ import annotations

import array
import collections
import operator
from collections.abc import Iterable
from typing import Any, Final

from thunder_core.ir.import_paths import module_of

_BASES = (collections.OrderedDict, dict, list, tuple, set, frozenset, collections.deque, bytearray, array.array)
_CLASSES = frozenset(_BASES)  # classes of the program are not compared with these: they may have an `__eq__`
_METHODS = (
    "__getitem__",
    "__setitem__",
    "__delitem__",
    "__iter__",
    "__len__",
    "__contains__",
    "__missing__",
    "__bool__",
)
_LIBRARY = ("builtins", "collections")
_MISSING = object()
STORING: Final = frozenset(
    {"__iadd__", "__ior__", "__setitem__", "add", "append", "appendleft", "extend", "extendleft", "heappush"}
    | {"heapreplace", "insert", "insort", "insort_left", "insort_right", "put", "put_nowait", "setdefault", "setitem"}
    | {"symmetric_difference_update", "update"}
)
"""Methods of containers, and functions, that store items."""
CHANGING: Final = STORING | frozenset(
    {"__delitem__", "clear", "delitem", "difference_update", "discard", "heappop", "intersection_update"}
    | {"move_to_end", "pop", "popitem", "popleft", "remove", "reverse", "rotate", "sort", "subtract"}
)
"""Methods of containers, and functions, that change the content."""


def _builtin_class(container: Any) -> Any:
    """The builtin base class of a container.

    Raises:
        TypeError: the object is not a container.
    """
    if type(container) in _CLASSES:
        return type(container)
    for base in _BASES:
        if isinstance(container, base):
            return base
    raise TypeError(f"{type(container).__qualname__} is not a container")


def _overrides(kind: type) -> bool:
    defining = [base for base in kind.__mro__ if any(name in base.__dict__ for name in _METHODS)]
    return module_of(defining[0]) not in _LIBRARY or hasattr(kind, "__missing__") if defining else False


def is_overridden(container: Any) -> bool:
    """Whether the class of a container may override its items, length or iteration."""
    kind = type(container)
    return kind not in _CLASSES and _overrides(kind)  # not cached: classes change


def entries(container: dict[Any, Any]) -> Iterable[tuple[Any, Any]]:
    """Keys and values of a dictionary."""
    return (
        collections.OrderedDict.items(container)
        if isinstance(container, collections.OrderedDict)
        else dict.items(container)
    )


def stored_items(container: Any) -> tuple[Any, ...]:
    """The items of a sequence or a set, or the keys of a dictionary."""
    return tuple(_builtin_class(container).__iter__(container))


def same_items(left: Any, right: Any) -> bool:
    """Whether two sequences have identical items."""
    return len(left) == len(right) and all(map(operator.is_, left, right))


def same_entries(left: dict[Any, Any], right: dict[Any, Any]) -> bool:
    """Whether two dictionaries have identical keys in equal order, and identical values."""
    return (
        len(left) == len(right)
        and all(map(operator.is_, left, right))
        and all(map(operator.is_, left.values(), right.values()))
    )


def stored_item(container: Any, key: Any) -> Any:
    """``container[key]``, without a default item of a `collections.defaultdict`.

    Raises:
        LookupError: there is no such item.
    """
    if not isinstance(container, dict):
        return _builtin_class(container).__getitem__(container, key)
    value = dict.get(container, key, _MISSING)
    if value is _MISSING:
        raise KeyError(key)
    return value


def store_item(container: Any, key: Any, value: Any) -> None:
    """``container[key] = value``."""
    _builtin_class(container).__setitem__(container, key, value)


def delete_item(container: Any, key: Any) -> None:
    """``del container[key]``."""
    _builtin_class(container).__delitem__(container, key)


def replace_content(container: Any, content: Any) -> None:
    """Replace the content of a container, or the bytes of a buffer."""
    base = _builtin_class(container)
    if base is array.array:
        content = array.array(container.typecode, content)
    if base in (list, bytearray, array.array):
        base.__setitem__(container, slice(None), content)
    elif isinstance(container, dict):
        base.clear(container)
        for key, item in content.items():
            base.__setitem__(container, key, item)
    elif base is set:
        set.clear(container)
        set.update(container, content)
    else:
        collections.deque.clear(container)
        collections.deque.extend(container, content)
