"""How to give the caller what the program returned: recipes for its result and for its writes to Python objects.

The result of a program may be any Python object that contains tensors: nested containers, dataclasses, Hugging Face
outputs, caches. A recipe is Python source that builds a fresh one from the computed tensors, so each call returns
objects of its own, as eager does. Objects that existed before the program ran are not rebuilt: the recipe refers to
them by their access path.
"""

from __future__ import annotations

import copyreg
import enum
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from thunder_core.acquire.traced_number import TracedNumber
from thunder_core.acquire.traced_tensor import TracedTensor
from thunder_core.errors import UnsupportedError
from thunder_core.ir.proxy import Proxy

if TYPE_CHECKING:
    from thunder_core.acquire.recorder import Recorder
    from thunder_core.guards.observer import Observer, Write
    from thunder_core.guards.source import Source

_ATOMS = (
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    type,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.ModuleType,
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
    torch.nn.Module,
    torch.Generator,
    enum.Enum,
    range,
    slice,
)
_SPELLED = (type(None), bool, int, str)


@dataclass(frozen=True)
class Recipe:
    """Python statements over ``o0``, ``o1``, ... (the outputs of the trace), ``args`` and ``kwargs``.

    Attributes:
        lines: statements that build what is needed and perform the writes.
        result: expression of the program's result.
        namespace: objects that the statements refer to by name.
        writes: number of writes to Python objects.
    """

    lines: tuple[str, ...]
    result: str
    namespace: dict[str, Any]
    writes: int


class Rebuilder:
    """Builds a `Recipe`; appends to ``outputs`` the proxies that it needs."""

    def __init__(self, recorder: Recorder, observer: Observer, outputs: list[Proxy]) -> None:
        self._recorder = recorder
        self._observer = observer
        self._outputs = outputs
        self._positions: dict[str, int] = {}
        self._built: dict[int, str] = {}
        self._alive: list[Any] = []
        self._lines: list[str] = []
        self._namespace: dict[str, Any] = {}

    def recipe(self, result: Any, writes: Sequence[Write]) -> Recipe:
        """The recipe for one run of the program."""
        # values of writes are built before any write happens: a write may replace what another refers to
        for original, final in self._recorder.inputs.reshaped_objects():
            self._lines.append(f"{self._output(original)}.as_strided_({final.shape}, {final.stride}, {final.offset})")
        values = [self._expression(write.value) for write in writes]
        expression = self._expression(result)
        for write, value in zip(writes, values, strict=True):
            self._lines.extend(write.statements(value, self))
        return Recipe(tuple(self._lines), expression, self._namespace, len(values))

    def _expression(self, value: Any) -> str:
        if isinstance(value, _SPELLED) and type(value) in _SPELLED:
            return repr(value)
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, TracedNumber):
            return self._output(value.proxy)
        known = self._built.get(id(value))
        if known is not None:
            return known
        if isinstance(value, _ATOMS) or type(value) in (float, complex):
            return self._constant(value)
        source = self._observer.source_of(value)
        if source is not None:
            return source.expression(self)
        return self._fresh(value)

    def _tensor(self, tensor: torch.Tensor) -> str:
        if type(tensor) is TracedTensor:
            proxy = tensor.variable.proxy
        else:
            proxy = self._recorder.inputs.object_proxy(tensor)
        return self._output(proxy)

    def _output(self, proxy: Proxy) -> str:
        position = self._positions.get(proxy.name)
        if position is None:
            position = self._positions[proxy.name] = len(self._outputs)
            self._outputs.append(proxy)
        return f"o{position}"

    def _fresh(self, value: Any) -> str:
        """Build an object that the program made."""
        self._alive.append(value)  # keeps its id its own
        kind = type(value)
        if kind is tuple:
            items = "".join(f"{self._expression(item)}, " for item in value)
            return self._assign(value, f"({items.rstrip()})" if value else "()")
        if kind is list:
            name = self._assign(value, "[]")
            self._lines.extend(f"{name}.append({self._expression(item)})" for item in value)
            return name
        if kind is dict:
            name = self._assign(value, "{}")
            self._lines.extend(f"{name}[{self._expression(k)}] = {self._expression(v)}" for k, v in value.items())
            return name
        if kind in (set, frozenset) or isinstance(value, torch.Size):
            items = "".join(f"{self._expression(item)}, " for item in value)
            return self._assign(value, f"{self._constant(kind)}(({items}))")
        return self._reduced(value)

    def _reduced(self, value: Any) -> str:
        """Any other object, by the protocol that ``copy`` and ``pickle`` use."""
        try:
            reduced = value.__reduce_ex__(4)
        except TypeError as error:
            raise UnsupportedError(
                f"the program returns or stores a {type(value).__qualname__}, which cannot be rebuilt: {error}",
                advice=("return tensors in tuples, lists, dicts, dataclasses or other copyable objects",),
            ) from error
        if isinstance(reduced, str):
            return self._constant(value)
        make, arguments, state, items, pairs = (*reduced, None, None, None)[:5]
        if make is copyreg.__newobj__:  # type: ignore[attr-defined]
            make, arguments = arguments[0].__new__, arguments
        call = ", ".join(self._expression(argument) for argument in arguments)
        name = self._assign(value, f"{self._callable(make)}({call})")
        if state is not None:
            self._lines.append(f"{self._constant(_set_state)}({name}, {self._expression(state)})")
        for item in items or ():
            self._lines.append(f"{name}.append({self._expression(item)})")
        for key, item in pairs or ():
            self._lines.append(f"{name}[{self._expression(key)}] = {self._expression(item)}")
        return name

    def _callable(self, make: Callable[..., Any]) -> str:
        return self._constant(make)

    def _assign(self, value: Any, expression: str) -> str:
        name = f"v{len(self._built)}"
        self._lines.append(f"{name} = {expression}")
        self._built[id(value)] = name
        return name

    # What printing an access path needs (the `Names` protocol of sources).

    def constant(self, value: Any, hint: str) -> str:
        """A global name of the recipe for an object."""
        return self._constant(value)

    def bound(self, source: Source) -> str | None:
        """No access path has a variable here."""
        return None

    def _constant(self, value: Any) -> str:
        for name, known in self._namespace.items():
            if known is value:
                return name
        name = f"c{len(self._namespace)}"
        self._namespace[name] = value
        return name


def _set_state(value: Any, state: Any) -> None:
    """Set the state that ``__reduce_ex__`` returned, as ``copy.copy`` does."""
    if hasattr(value, "__setstate__"):
        value.__setstate__(state)
        return
    slots = None
    if isinstance(state, tuple) and len(state) == 2:
        state, slots = state
    if state:
        value.__dict__.update(state)
    for key, item in (slots or {}).items():
        setattr(value, key, item)
