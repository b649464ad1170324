"""``float(n)`` and ``int(n)`` of numbers of the trace, of varying sizes and of tensors, which need no value.

Python requires that the classes return plain numbers. So a call that would specialize the program ends the recording
(`thunder_frontend.record.recorder.Recorder.convert`); in the next one, the name leads to another class in the module
that contains the call.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch

from thunder_core.tracing.frames import calls_program
from thunder_frontend.observe.stand_ins import CONVERSIONS
from thunder_frontend.record.traced_number import TracedNumber
from thunder_frontend.record.traced_size import TracedSize
from thunder_frontend.record.traced_tensor import variable_of

Namespaces = Iterable[dict[str, Any]]


class _Conversion(type):
    """The metaclass of classes that programs call in place of ``int`` and ``float``, as which they appear to be."""

    builtin: Any

    @calls_program
    def __call__(cls, *args: Any, **options: Any) -> Any:
        number = _converted(cls.builtin, args[0]) if len(args) == 1 and not options else NotImplemented
        return cls.builtin(*args, **options) if number is NotImplemented else number

    def __instancecheck__(cls, value: Any) -> bool:
        kind = value.proxy.python_type if type(value) is TracedNumber else type(value)
        return issubclass(int if kind is TracedSize else kind, cls.builtin) or isinstance(value, cls.builtin)

    def __subclasscheck__(cls, kind: type) -> bool:
        return issubclass(kind, cls.builtin)

    def __eq__(cls, other: object) -> bool:
        return other is cls or other is cls.builtin

    def __hash__(cls) -> int:
        return hash(cls.builtin)

    def __repr__(cls) -> str:
        return repr(cls.builtin)

    @property
    def dtype(cls) -> Any:
        """What NumPy takes for the class."""
        return sys.modules["numpy"].dtype(cls.builtin)


def _converted(kind: type, value: Any) -> Any:
    """The number of the trace for ``kind(value)``; `NotImplemented` where the builtin decides."""
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


def _class(builtin: type) -> type:
    members = {"builtin": builtin, "__slots__": (), "__module__": "builtins", "__qualname__": builtin.__name__}
    kind: type = _Conversion(builtin.__name__, (builtin,), members)
    CONVERSIONS[kind] = builtin
    return kind


_CLASSES: Final = {"int": _class(int), "float": _class(float)}


@contextmanager
def placed(namespaces: Namespaces) -> Iterator[None]:
    """A context in which the code with these global variables calls the other classes."""
    names = [(namespace, name) for namespace in namespaces for name in _CLASSES if name not in namespace]
    for namespace, name in names:
        namespace[name] = _CLASSES[name]
    try:
        yield
    finally:
        for namespace, name in names:
            if namespace.get(name) is _CLASSES[name]:
                del namespace[name]
