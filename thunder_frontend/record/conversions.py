"""``float(n)``, ``int(n)`` and ``type(n)`` of numbers of the trace, of varying sizes and of tensors.

Python requires that ``int`` and ``float`` return plain numbers, and ``type`` returns the class of the trace's numbers.
So a call that would specialize the program ends the recording (`thunder_frontend.record.recorder.Recorder.convert`,
`thunder_frontend.record.record_program`); in the next one, the name leads to another class in the module that contains
the call. As the classes that replace ``int`` and ``float`` are other objects than these, a program in which ``type`` is
replaced calls the builtin ``int`` and ``float``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import Any, Final

import torch

from thunder_core.tracing.frames import calls_program
from thunder_frontend.observe.abstract_stack import uses_as_value
from thunder_frontend.observe.stand_ins import CONVERSIONS
from thunder_frontend.record.traced_number import TracedNumber
from thunder_frontend.record.traced_size import TracedSize
from thunder_frontend.record.traced_tensor import variable_of

Namespaces = Iterable[dict[str, Any]]


class _Conversion(type):
    """The metaclass of classes that programs call in place of builtin ones, as which they appear to be.

    Subclasses, which a program may define while it is recorded, are like those of the builtin class.
    """

    builtin: Any

    @calls_program
    def __call__(cls, *args: Any, **options: Any) -> Any:
        if not _is_placed(cls):
            return super().__call__(*args, **options)
        if cls.builtin is type and len(args) == 3:  # a class is of the module that calls `type`
            name, bases, members = args
            return type(name, bases, {"__module__": sys._getframe(1).f_globals.get("__name__"), **members}, **options)
        number = _converted(cls.builtin, args[0]) if len(args) == 1 and not options else NotImplemented
        return cls.builtin(*args, **options) if number is NotImplemented else number

    def __instancecheck__(cls, value: Any) -> bool:
        if not _is_placed(cls):
            return super().__instancecheck__(value)
        kind = value.proxy.python_type if type(value) is TracedNumber else type(value)
        return issubclass(int if kind is TracedSize else kind, cls.builtin) or isinstance(value, cls.builtin)

    def __subclasscheck__(cls, kind: type) -> bool:
        return issubclass(kind, cls.builtin) if _is_placed(cls) else super().__subclasscheck__(kind)

    def __eq__(cls, other: object) -> bool:
        return other is cls or (other is cls.builtin and _is_placed(cls))

    def __hash__(cls) -> int:
        return hash(cls.builtin) if _is_placed(cls) else super().__hash__()

    def __repr__(cls) -> str:
        return repr(cls.builtin) if _is_placed(cls) else super().__repr__()

    @property
    def dtype(cls) -> Any:
        """What NumPy takes for the class."""
        return sys.modules["numpy"].dtype(cls.builtin)


def _converted(kind: type, value: Any) -> Any:
    """The number of the trace for ``kind(value)``, or its class; `NotImplemented` where the builtin decides."""
    if kind is type:
        number = value.proxy.python_type if type(value) is TracedNumber else type(value)
        return int if number is TracedSize else number
    if isinstance(value, torch.Tensor) and variable_of(value) is not None and _is_number(value):
        value = value.item()
        if type(value) not in (TracedNumber, TracedSize):
            return kind(value)
    if type(value) is TracedSize:
        return value if kind is int else value.node.shape_env.sizes().floats.computed(float, (value,))
    if type(value) is not TracedNumber or value.proxy.python_type is bool:
        return NotImplemented
    if kind is int:
        return value if value.proxy.python_type is int else value.__trunc__()
    return value if value.proxy.python_type is float else value.numbers.computed(float, (value,), value)


def _is_number(tensor: torch.Tensor) -> bool:
    count = tensor.numel()
    return type(count) is int and count == 1 and tensor.dtype is not torch.bool and not tensor.dtype.is_complex


def _is_placed(kind: type) -> bool:
    """Whether a class is one that replaces a builtin class, rather than a subclass of it."""
    return "builtin" in vars(kind)


def _class(builtin: type) -> type:
    members = {"builtin": builtin, "__slots__": (), "__module__": "builtins", "__qualname__": builtin.__name__}
    kind: type = _Conversion(builtin.__name__, (builtin,), members)
    CONVERSIONS[kind] = builtin
    return kind


_CLASSES: Final = {"int": _class(int), "float": _class(float), "type": _class(type)}


def may_replace_type(namespace: dict[str, Any]) -> bool:
    """Whether ``type`` is the builtin in a module, whose functions and methods use it only by calling it.

    ``type[int]`` and ``type(x) is type`` need the builtin itself.
    """
    return "type" not in namespace and not any(uses_as_value(code, "type") for code in _codes_of(namespace))


def _codes_of(namespace: dict[str, Any]) -> Iterator[CodeType]:
    """The code of the functions of a module, and of the methods of its classes."""
    pending = [*namespace.values()]
    name, classes = namespace.get("__name__"), set[int]()
    while pending:
        value = pending.pop()
        if isinstance(value, CodeType):
            yield value
            pending += [constant for constant in value.co_consts if isinstance(constant, CodeType)]
        elif isinstance(value, FunctionType):
            pending += [value.__code__] if value.__globals__ is namespace else []
            pending.append(vars(value).get("__wrapped__"))
        elif isinstance(value, property):
            pending += [value.fget, value.fset, value.fdel]
        elif isinstance(value, classmethod | staticmethod):
            pending.append(value.__func__)
        elif issubclass(type(value), type) and value.__module__ == name and id(value) not in classes:
            classes.add(id(value))
            pending += vars(value).values()


@contextmanager
def placed(converting: Namespaces, typed: Namespaces) -> Iterator[None]:
    """A context in which code calls the other classes.

    Args:
        converting: the global variables of the code that calls those of ``int`` and ``float``.
        typed: likewise for ``type``.
    """
    wanted = [(namespace, name) for namespace in converting for name in ("int", "float")]
    wanted += [(namespace, "type") for namespace in typed]
    names = [(namespace, name) for namespace, name in wanted if name not in namespace]
    for namespace, name in names:
        namespace[name] = _CLASSES[name]
    try:
        yield
    finally:
        for namespace, name in names:
            if namespace.get(name) is _CLASSES[name]:
                del namespace[name]
