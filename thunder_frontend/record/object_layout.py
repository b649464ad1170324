"""The contents of instances of Python classes, without the methods by which these classes pickle or store them.

Such methods may drop attributes (``__getstate__``), run the class's constructor (``__reduce__``) or change what is
stored (``__setitem__``), while an object that a program creates has to be created again as it is.
"""

from __future__ import annotations

import collections
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from types import FunctionType, MemberDescriptorType
from typing import Any, Final

import torch

from thunder_core.checks.stored_attributes import (
    MISSING,
    cached_by_class,
    namespace_of,
    set_attributes,
    slot_item,
    slot_names,
)

_WORD: Final = 8
_HEAP_TYPE: Final = 1 << 9  # Py_TPFLAGS_HEAPTYPE
_VALUES: Final = (tuple, int, float, complex, str, bytes)
"""Classes whose content is the argument of ``__new__``."""
_CONTAINERS: Final = (list, dict, collections.OrderedDict, collections.defaultdict, set)
_BASES: Final = frozenset({object, frozenset, *_VALUES, *_CONTAINERS})


@dataclass(frozen=True, slots=True)
class Contents:
    """The contents of an object.

    Attributes:
        base: the class of C whose ``__new__`` creates it, and whose methods store its items.
        arguments: the arguments of ``__new__`` after the class.
        state: its attributes as ``object.__getstate__`` returns them; None if there are none.
        items: the items of a list or a set.
        pairs: the items of a dictionary, with keys.
        default_factory: of a `collections.defaultdict`.
    """

    base: Any
    arguments: tuple[Any, ...]
    state: Any
    items: tuple[Any, ...] = ()
    pairs: tuple[tuple[Any, Any], ...] = ()
    default_factory: Any = None


def contents_of(value: Any) -> Contents | None:
    """The contents of an object; None if its class has state in C, or is a class of C itself."""
    base: Any = _base_of_c(type(value))
    if base is None:
        return None
    state = _attributes(value)
    if issubclass(base, BaseException):
        return Contents(base, vars(BaseException)["args"].__get__(value), state)
    if base in _VALUES:
        return Contents(base, base.__getnewargs__(value), state)
    if base is frozenset:
        return Contents(base, (tuple(frozenset.__iter__(value)),), state)
    if base in (list, set):
        return Contents(base, (), state, items=tuple(base.__iter__(value)))
    if issubclass(base, dict):
        factory = vars(base)["default_factory"].__get__(value) if base is collections.defaultdict else None
        return Contents(base, (), state, pairs=tuple(base.items(value)), default_factory=factory)
    return Contents(base, (), state)


def _attributes(value: Any) -> Any:
    """The attributes of an object as ``object.__getstate__`` returns them, but of slots that properties hide, too."""
    slots = {name: item for name in slot_names(type(value)) if (item := slot_item(value, name)) is not MISSING}
    own = dict(namespace_of(value) or ()) or None
    return (own, slots) if slots else own


def copy_module(module: torch.nn.Module) -> torch.nn.Module:
    """A deep copy of a module, without the methods by which its class and those of its submodules copy themselves."""
    parts = [part for part in module.modules() if _base_of_c(type(part)) is object and not _is_scripted(part)]
    memo: dict[int, Any] = {id(part): object.__new__(type(part)) for part in parts}
    for part in parts:
        set_attributes(memo[id(part)], copy.deepcopy(_attributes(part), memo))
    copied: torch.nn.Module = copy.deepcopy(module, memo)
    return copied


def _is_scripted(module: torch.nn.Module) -> bool:
    """Whether the attributes of a module are in C++."""
    return isinstance(module, torch.jit.ScriptModule)


def is_named_global(value: Any) -> bool:
    """Whether the class of an object pickles it by name, as the value of a global variable: there is just one."""
    hooks = (vars(kind).get(name) for kind in type(value).__mro__ for name in ("__reduce_ex__", "__reduce__"))
    if not any(isinstance(hook, FunctionType) for hook in hooks):
        return False
    try:
        return isinstance(value.__reduce_ex__(4), str)
    except Exception:  # noqa: BLE001 - the class of the user may refuse by any exception to be pickled
        return False


@cached_by_class
def _base_of_c(kind: type) -> type | None:
    """The class of C that a Python class is derived from; None for a class of C, and for one with other state in C."""
    current = kind
    for current in _chain(kind):
        if current in _BASES or (not current.__flags__ & _HEAP_TYPE and issubclass(current, BaseException)):
            break
        if not current.__flags__ & _HEAP_TYPE or not _adds_attributes_alone(current):
            return None
    if current is kind or (issubclass(current, BaseException) and current.__basicsize__ != BaseException.__basicsize__):
        return None
    return current


def _chain(kind: type) -> Iterator[type]:
    current: type | None = kind
    while current is not None:
        yield current
        current = current.__base__


def _adds_attributes_alone(kind: type) -> bool:
    """Whether instances are larger than those of the base by no more than slots and pointers for attributes."""
    base = kind.__base__
    assert base is not None
    held = vars(kind)
    words = sum(type(member) is MemberDescriptorType for member in held.values()) if "__slots__" in held else 0
    words += kind.__weakrefoffset__ > 0 and not base.__weakrefoffset__
    words += (kind.__dictoffset__ > 0 or kind.__dictoffset__ == -_WORD) and not base.__dictoffset__
    return kind.__basicsize__ - base.__basicsize__ == words * _WORD
