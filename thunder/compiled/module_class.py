"""Classes of compiled modules, each a subclass of the class of the original module."""

from __future__ import annotations

import abc
import functools
import inspect
import sys
import threading
from types import FunctionType, MemberDescriptorType
from typing import Any, Final
from weakref import WeakValueDictionary

import torch

from thunder.compiled.module_forward import COMPILED, COMPILED_FORWARD, ForwardAttribute
from thunder_core.checks.originals import ORIGINAL
from thunder_core.errors import UnsupportedError
from thunder_core.forking import renew_in_child
from thunder_core.ir.import_paths import module_of
from thunder_core.tracing.frames import calls_program

REPLACED: Final = "_thunder_replaced"
"""The attribute of such a class with the class of the original."""

_HEAP_TYPE: Final = 1 << 9  # the flag of classes that are defined in Python
_ATTRIBUTES: Final = torch.nn.Module.__dict__["__dict__"]
_CLASS: Final = object.__dict__["__class__"]
_COMPOSABLE: Final = "torch.distributed._composable.contract"
_COMPOSED: Final = frozenset({"fully_shard", "replicate"})
"""Composable functions that change only what the original and the compiled module share."""

_classes: WeakValueDictionary[int, type] = WeakValueDictionary()
_lock: Final = threading.Lock()
renew_in_child(sys.modules[__name__], "_lock")


class _ReplacingClass(type):
    """The metaclass of the classes of compiled modules.

    Such a class equals the class of the originals and has its instances; a call of it creates an original. Attributes
    are set on the class of the originals, whose ``forward`` runs.
    """

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return replaced(cls)(*args, **kwargs)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, replaced(cls))

    def __eq__(cls, other: object) -> bool:
        return replaced(cls) is (replaced(other) if isinstance(other, _ReplacingClass) else other)

    def __hash__(cls) -> int:
        return hash(replaced(cls))

    def __setattr__(cls, name: str, value: Any) -> None:
        if REPLACED in cls.__dict__:
            setattr(replaced(cls), name, value)
        else:  # the metaclass of the original's class sets it, during the creation of this class
            super().__setattr__(name, value)

    def __delattr__(cls, name: str) -> None:
        delattr(replaced(cls), name)

    @property
    def __signature__(cls) -> inspect.Signature:
        return inspect.signature(replaced(cls))


def replaced(kind: Any) -> type[torch.nn.Module]:
    """The class of the originals of a class of compiled modules."""
    original: type[torch.nn.Module] = kind.__dict__[REPLACED]
    return original


def class_for(base: type, original: type[torch.nn.Module]) -> type:
    """The class of compiled modules whose originals have the class ``original``. Equal calls return the same class.

    Args:
        base: `ThunderModule`, whose methods precede those of ``original``.
        original: a class of modules.

    Raises:
        UnsupportedError: instances of ``original`` have state outside of ``__dict__``, which cannot be shared.
    """
    with _lock:
        known = _classes.get(id(original))
        if known is None or replaced(known) is not original:
            known = _classes[id(original)] = _create(base, original)
        return known


def new_instance(kind: type, original: torch.nn.Module) -> Any:
    """An instance that shares the ``__dict__`` of ``original``. Its other slots are not set."""
    instance: Any = object.__new__(kind)
    _ATTRIBUTES.__set__(instance, original.__dict__)
    object.__setattr__(instance, ORIGINAL, original)
    return instance


def _create(base: type, original: type[torch.nn.Module]) -> type:
    builtin = next(kind for kind in original.__mro__ if not kind.__flags__ & _HEAP_TYPE)
    if builtin is not object:
        raise UnsupportedError(
            f"thunder.jit cannot replace a {original.__qualname__}: it is both a module and a "
            f"{builtin.__name__}, whose contents cannot be shared",
            advice=("make it an attribute of the module instead of a base class",),
        )
    namespace: dict[str, Any] = {
        "__slots__": (ORIGINAL, COMPILED, COMPILED_FORWARD),
        "__module__": original.__module__,
        "__qualname__": original.__qualname__,
        "__doc__": original.__doc__,
        "__class__": property(_get_class, _set_class),
        "__dict__": property(_get_attributes),
        "forward": ForwardAttribute(original),
    }
    for kind in original.__mro__:
        for name, member in kind.__dict__.items():
            if type(member) is MemberDescriptorType and name not in namespace:
                namespace[name] = _slot_of_original(member)
    if original.__call__ is not torch.nn.Module.__call__:
        namespace["__call__"] = _call_like(original.__call__, base.__call__)
    if original.__eq__ is object.__eq__:
        namespace |= {"__eq__": _equals, "__hash__": _hash}
    if issubclass(original, torch.fx.GraphModule):
        namespace |= {name: value for name, value in _graph_members(original).items() if name not in namespace}
    kind_of_class: Any = type(original)
    metaclass = _metaclass(kind_of_class)
    # The user's metaclass itself might register the class, or require arguments.
    create: Any = abc.ABCMeta.__new__ if issubclass(metaclass, abc.ABCMeta) else type.__new__
    created: type = create(metaclass, original.__name__, (base, original), namespace)
    type.__setattr__(created, REPLACED, original)
    return created


def _call_like(function: Any, call: Any) -> Any:
    """A method that calls ``call`` and looks like ``function``."""

    @calls_program
    @functools.wraps(function)
    def __call__(module: Any, *args: Any, **kwargs: Any) -> Any:
        return call(module, *args, **kwargs)

    return __call__


@functools.cache
def _metaclass(of_original: Any) -> type:
    if of_original is type:
        return _ReplacingClass
    return type(of_original.__name__, (_ReplacingClass, of_original), {})


def _get_class(module: Any) -> type:
    follow_class(module)
    return type(getattr(module, ORIGINAL))


def _set_class(module: Any, kind: type) -> None:
    """Set the class of the original, as parametrizations do."""
    getattr(module, ORIGINAL).__class__ = kind
    follow_class(module)


def follow_class(module: Any) -> bool:
    """Update the class of a compiled module if the class of its original changed. Returns whether it did."""
    current = type(module)
    original = type(getattr(module, ORIGINAL))
    if replaced(current) is original:
        return False
    _CLASS.__set__(module, class_for(current.__mro__[1], original))
    return True


def _get_attributes(module: Any) -> dict[str, Any]:
    caller = sys._getframe(1)
    if caller.f_globals.get("__name__") == _COMPOSABLE:
        name = getattr(caller.f_locals.get("func"), "__name__", "a composable API of torch.distributed")
        if name not in _COMPOSED:
            raise UnsupportedError(
                f"{name} cannot be applied to a module that thunder.jit returned",
                advice=(
                    "apply it to thunder.original(module), and use that one",
                    "fully_shard, replicate and torch.nn.parallel.DistributedDataParallel can be put around one",
                ),
            )
    attributes: dict[str, Any] = _ATTRIBUTES.__get__(module)
    return attributes


def _slot_of_original(member: MemberDescriptorType) -> property:
    return property(
        lambda module: member.__get__(getattr(module, ORIGINAL)),
        lambda module, value: member.__set__(getattr(module, ORIGINAL), value),
        lambda module: member.__delete__(getattr(module, ORIGINAL)),
    )


def _equals(module: Any, other: object) -> Any:
    return True if other is module or other is getattr(module, ORIGINAL) else NotImplemented


def _hash(module: Any) -> int:
    return hash(getattr(module, ORIGINAL))


def _graph_members(original: type) -> dict[str, Any]:
    """Methods and properties of graph modules that act on the original, since they change methods of its class."""
    members: dict[str, Any] = {}
    for kind in reversed(original.__mro__):
        if not module_of(kind).startswith("torch.fx."):
            continue
        for name, member in kind.__dict__.items():
            if name.startswith("__"):
                continue
            if isinstance(member, FunctionType):
                members[name] = _method_of_original(name)
            elif isinstance(member, property):
                members[name] = property(*_accessors_of_original(name))
    return members


def _method_of_original(name: str) -> Any:
    return lambda module, *args, **kwargs: getattr(getattr(module, ORIGINAL), name)(*args, **kwargs)


def _accessors_of_original(name: str) -> tuple[Any, Any]:
    return (
        lambda module: getattr(getattr(module, ORIGINAL), name),
        lambda module, value: setattr(getattr(module, ORIGINAL), name, value),
    )
