"""Turn the arguments of a call into proxies and literals, and into a key for the metadata cache."""

from __future__ import annotations

import enum
import types
from collections.abc import Container, Iterable
from typing import Any

import torch

from thunder_core.errors import RunEagerly
from thunder_core.ir.import_paths import import_path
from thunder_core.ir.location import at
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.size import Size, SizeExpr, from_fake
from thunder_core.ir.trace import Trace
from thunder_core.ir.tree import with_items
from thunder_core.tracing.frames import user_location
from thunder_core.tracing.outcome import LAYOUTS
from thunder_frontend.record.inputs import Inputs
from thunder_frontend.record.traced_number import TracedNumber
from thunder_frontend.record.traced_size import TracedSize
from thunder_frontend.record.traced_tensor import Variable, variable_of

_PLAIN = frozenset(
    {
        type(None),
        bool,
        int,
        float,
        complex,
        str,
        types.EllipsisType,
        torch.dtype,
        torch.device,
        torch.layout,
        torch.memory_format,
    }
)
_QUANTIZED = frozenset({torch.qint8, torch.quint8, torch.qint32, torch.quint4x2, torch.quint2x4})


class CallArguments:
    """The arguments of one call as its bound symbol has them, and the tensors among them in order of appearance.

    Args:
        inputs: the inputs of the trace; arguments from outside of the program are added to them.
        args, kwargs: the arguments that the program passes.
        runs_python: whether the call runs the user's Python, which may distinguish a number from an instance of a
            subclass.
        numbers: types of computed numbers that the call takes as proxies; others become the value of this call.

    Attributes:
        args, kwargs: with tensors as proxies and other objects as literals or opaque inputs.
        variables, proxies, objects: of each tensor argument, with the proxy before the call and the user's object.
        key: everything that decides the metadata of the results.
        hashable: whether ``key`` is hashable.
        foldable: whether all arguments other than tensors are literals.
        is_local: whether ``key`` describes the call in this recording only: it has ids of objects, or types of numbers.
    """

    __slots__ = (
        "args",
        "foldable",
        "hashable",
        "inputs",
        "is_local",
        "key",
        "kwargs",
        "numbers",
        "objects",
        "proxies",
        "runs_python",
        "variables",
    )

    def __init__(
        self,
        inputs: Inputs,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        runs_python: bool = False,
        numbers: Container[type] = (),
    ) -> None:
        self.inputs = inputs
        self.runs_python = runs_python
        self.numbers = numbers
        self.variables: list[Variable] = []
        self.proxies: list[TensorProxy] = []
        self.objects: list[Any] = []
        self.key: list[Any] = []
        self.hashable = True
        self.foldable = True
        self.is_local = False
        self.args: tuple[Any, ...] = _convert(args, self)
        self.kwargs: dict[str, Any] = _convert(kwargs, self) if kwargs else {}

    def size(self, value: Any) -> Size:
        """Note a size that varies between calls: the result of the call is not a constant of the program."""
        size: Size = from_fake(value) if self.inputs.owns_size(value) else int(value)
        self.foldable = self.foldable and type(size) is int
        self.key.append((type(size), size))
        return size

    def number(self, number: TracedNumber) -> Any:
        """Note a number that an op computes, and return it as an argument of the bound symbol."""
        kind = number.proxy.python_type
        if kind not in self.numbers and (float not in self.numbers or not issubclass(kind, float)):
            return _convert(number.value(), self)
        self.key.append(kind)
        self.is_local = True  # inference may have recorded a fact about its value
        self.foldable = False
        return number.proxy

    def object(self, value: Any) -> Any:
        """Note an argument that is neither a tensor nor a literal, and return it as an argument of the bound symbol."""
        self.key.append(id(value))
        self.is_local = True
        self.hashable = False
        self.foldable = False
        return self.inputs.object(value)

    def tensor(self, tensor: torch.Tensor) -> TensorProxy:
        """Note a tensor argument and return its proxy."""
        variable = variable_of(tensor) or self.inputs.lift(tensor)
        proxy = variable.proxy
        self.key.append(variable.key)
        # the result may depend on which arguments are the same tensor or share storage
        for index, other in enumerate(self.proxies):
            if other.storage == proxy.storage:
                self.key.append((index, self.objects[index] is tensor))
        self.variables.append(variable)
        self.proxies.append(proxy)
        self.objects.append(tensor)
        return proxy


def _convert(value: Any, call: CallArguments) -> Any:
    """``value`` with tensors as proxies and other objects as literals or opaque inputs."""
    kind = type(value)
    if kind in _PLAIN:
        if kind is torch.dtype and value in _QUANTIZED:
            raise _quantized(value)
        call.key.append((kind, value) if kind is not float or value else (kind, str(value)))
        return value
    if isinstance(value, torch.Tensor):
        return call.tensor(value)
    if kind is TracedSize or kind is torch.SymInt:
        return call.size(value)
    if kind is tuple:
        call.key.append((kind, len(value)))
        return tuple([_convert(item, call) for item in value])
    if kind is list:
        call.key.append((kind, len(value)))
        return [_convert(item, call) for item in value]
    return _convert_rare(value, kind, call)


def check_layouts(name: str, layouts: Iterable[torch.layout]) -> None:
    """Check that ops can have results of these layouts. Raises RunEagerly otherwise: a function returned them."""
    for layout in set(layouts) - LAYOUTS:
        kind = "in the format of oneDNN" if str(layout) == "torch._mkldnn" else f"of the layout {layout}"
        raise RunEagerly(f"{name} returns a tensor {kind}, which cannot be traced{at(user_location())}")


def _quantized(dtype: torch.dtype) -> RunEagerly:
    return RunEagerly(
        f"the program creates a quantized tensor, of the dtype {dtype}, which cannot be traced{at(user_location())}"
    )


def _convert_rare(value: Any, kind: type, call: CallArguments) -> Any:
    if kind is TracedNumber:
        return call.number(value)
    if kind is dict:
        call.key.append((kind, tuple(value)))
        return {key: _convert(item, call) for key, item in value.items()}
    if kind is torch.Size:
        call.key.append((kind, len(value)))
        items = [_convert(item, call) for item in value]
        return tuple(items) if any(type(item) is SizeExpr for item in items) else torch.Size(items)
    if kind is slice:
        call.key.append(kind)
        return slice(_convert(value.start, call), _convert(value.stop, call), _convert(value.step, call))
    if isinstance(value, tuple) and (getattr(value, "__dict__", None) or import_path(kind) is None):
        return call.object(value) if call.runs_python else _convert(tuple(value), call)
    if isinstance(value, tuple):
        call.key.append((kind, len(value)))
        return with_items(value, [_convert(item, call) for item in value])
    if kind is Trace or (isinstance(value, enum.Enum) and (isinstance(value, enum.Flag) or import_path(value))):
        call.key.append(id(value) if kind is Trace else value)
        call.is_local |= kind is Trace
        return value
    if isinstance(value, bool | int | float | str) and not call.runs_python:
        return _convert_subclass(value, call)
    return call.object(value)


def _convert_subclass(value: Any, call: CallArguments) -> Any:
    """NumPy scalars, members of local enums and other instances of subclasses are recorded as plain values."""
    for plain in (bool, int, float, str):
        if isinstance(value, plain):
            return _convert(plain(value), call)
    raise AssertionError("unreachable")
