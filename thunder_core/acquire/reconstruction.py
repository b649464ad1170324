"""Output reconstruction: statements that give the caller what the program returned, and repeat its writes to objects.

The result of a program may be any Python object that contains tensors: nested containers, dataclasses, Hugging Face
outputs, caches. A reconstruction is Python source that creates such an object from the computed tensors, a new one in
each call, as eager does. Objects that existed before the program ran are not created again: it refers to them by their
access path.
"""

from __future__ import annotations

import copyreg
import enum
import types
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from thunder_core.acquire.hooks import TracedHandle
from thunder_core.acquire.inputs import Inputs
from thunder_core.acquire.interceptions import original_of
from thunder_core.acquire.module_calls import EagerCallNeeded
from thunder_core.acquire.reconstructed_functions import (
    FunctionReconstructor,
    check_class,
    is_method_of_value,
    reconstruct_generator,
)
from thunder_core.acquire.reconstruction_writer import ReconstructionWriter
from thunder_core.acquire.subclasses import has_torch_dispatch
from thunder_core.acquire.traced_number import TracedNumber
from thunder_core.acquire.traced_size import TracedSize
from thunder_core.acquire.traced_tensor import holds_traced_tensor, variable_of
from thunder_core.acquire.variable import Variable
from thunder_core.acquire.wrapper_parts import added_attributes, carrying, parts_of
from thunder_core.errors import UnsupportedError
from thunder_core.guards.observer import Observer, Write
from thunder_core.guards.wrapper_gradients import outer_tensor
from thunder_core.ir.import_paths import import_path
from thunder_core.ir.proxy import Proxy
from thunder_core.ir.size import from_fake
from thunder_core.ir.switches import Values, set_switch

_ATOMS = (
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    type,
    types.ModuleType,
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
    enum.Enum,
    range,
)
_MADE_BY_EAGER = {torch.nn.Module: "module", torch.UntypedStorage: "storage", torch.storage.TypedStorage: "storage"}
_SPELLED = (type(None), bool, int, str)


@dataclass(frozen=True)
class Reconstruction:
    """Python statements over ``o0``, ``o1``, ... (the outputs of the trace), sizes, ``args`` and ``kwargs``.

    Attributes:
        lines: statements that build what is needed and perform the writes.
        result: expression of the program's result.
        namespace: objects that the statements refer to by name.
        writes: number of writes to Python objects.
        once: classes of objects in it that no other run can give, as they cannot be copied.
    """

    lines: tuple[str, ...]
    result: str
    namespace: dict[str, Any]
    writes: int
    once: tuple[str, ...] = ()


class Reconstructor(ReconstructionWriter):
    """Builds a `Reconstruction`; appends to ``outputs`` the proxies that it needs."""

    def __init__(self, inputs: Inputs, observer: Observer, outputs: list[Proxy]) -> None:
        super().__init__()
        self._inputs = inputs
        self._observer = observer
        self._outputs = outputs
        self._positions: dict[str, int] = {}
        self._once: list[str] = []

    def reconstruction(self, result: Any, writes: Sequence[Write], switches: Values) -> Reconstruction:
        """The reconstruction for one run of the program, which leaves these switches of PyTorch's set so."""
        # values and places are looked up before any write happens: a write may replace what another refers to
        for original, final in self._inputs.reshaped_objects():
            self.lines.append(f"{self._output(original)}.as_strided_({final.shape}, {final.stride}, {final.offset})")
        values = [self.expression(write.value) for write in writes]
        expression = self.expression(result)
        for write in writes:
            self.bind(write.place)
        for write, value in zip(writes, values, strict=True):
            self.lines.extend(write.statements(value, self))
        for name, value in switches.items():
            self.lines.append(f"{self.constant(set_switch)}({name!r}, {self.constant(value)})")
        return Reconstruction(tuple(self.lines), expression, self.namespace, len(values), tuple(self._once))

    def expression(self, value: Any) -> str:
        """Python for a value, after the lines that it needs."""
        if isinstance(value, _SPELLED) and type(value) in _SPELLED:
            return repr(value)
        if type(value) is TracedSize:
            return f"({from_fake(value)})"
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if type(value) is TracedNumber:
            return self._output(value.proxy)
        if isinstance(value, TracedHandle):
            return self._output(value.proxy())
        value = original_of(self._observer.original_of(value))
        known = self.known(value)
        if known is not None:
            return known
        handed = self._inputs.created_proxy(value)
        if handed is not None:
            return self._output(handed)
        if isinstance(value, _ATOMS) or type(value) in (float, complex):
            if isinstance(value, type):
                check_class(value, self._observer)
            return self.constant(value)
        source = self._observer.source_of(value)
        if source is not None:
            return self.assign(value, source.expression(self))
        return self._fresh(value)

    def _tensor(self, tensor: torch.Tensor) -> str:
        variable = variable_of(tensor)
        if variable is not None:
            return self._traced(tensor, variable)
        if has_torch_dispatch(type(tensor)):
            return self._wrapper(tensor)
        return self._output(self._inputs.object_proxy(tensor))

    def _traced(self, tensor: torch.Tensor, variable: Variable) -> str:
        """A tensor that the program computes, of the class and with the attributes that it has in the program."""
        known = self.known(tensor)
        if known is not None:
            return known
        if isinstance(tensor, torch.nn.Parameter):
            raise EagerCallNeeded("the program returns or stores a Parameter that it makes")
        name, kind = self._output(variable.proxy), type(tensor)
        if kind is not torch.Tensor:
            name = self.assign(tensor, f"{name}.as_subclass({self.constant(kind)})")
        attributes = vars(tensor)
        if attributes and kind is torch.Tensor:
            name = self.assign(tensor, name)
        self.lines.extend([f"{name}.{key} = {self.expression(item)}" for key, item in attributes.items()])
        return name

    def _wrapper(self, tensor: torch.Tensor) -> str:
        """A tensor that holds tensors: the one that existed before, or a new one, by ``__tensor_unflatten__``."""
        known = self.known(tensor)
        if known is not None:
            return known
        source = self._observer.source_of(tensor)
        if source is not None:
            return self.assign(tensor, source.expression(self))
        name = self.assign(tensor, self._outer(tensor, differentiable=tensor.requires_grad))
        if tensor.requires_grad and not self._has_carrier(tensor):  # a leaf, as views are that PyTorch makes in no_grad
            self.lines.append(f"{name}.requires_grad_()")
        attributes = added_attributes(tensor)
        self.lines.extend([f"{name}.{key} = {self.expression(item)}" for key, item in attributes.items()])
        return name

    def _outer(self, tensor: torch.Tensor, *, differentiable: bool) -> str:
        parts = parts_of(tensor)
        inner = "".join(
            f"{name!r}: {self._part(part, differentiable=differentiable)}, " for name, part in parts.inner.items()
        )
        unflatten = self.constant(type(tensor).__tensor_unflatten__)  # type: ignore[attr-defined]
        outer = ", ".join(map(self._copied, (parts.context, parts.size, parts.stride)))
        if differentiable and self._has_carrier(tensor):
            layout = self._inputs.gradient_layout(tuple(map(variable_of, carrying(tensor))))
            return f"{self.constant(outer_tensor)}({unflatten}, {{{inner}}}, {outer}, {self.constant(layout)})"
        return f"{unflatten}({{{inner}}}, {outer})"

    def _has_carrier(self, tensor: torch.Tensor) -> bool:
        """Whether gradients go through an inner tensor."""
        return any(variable_of(part) in self._inputs.carriers for part in carrying(tensor))

    def _part(self, part: Any, *, differentiable: bool) -> str:
        if not isinstance(part, torch.Tensor):
            return self._copied(part)
        if differentiable and has_torch_dispatch(type(part)):
            return self._outer(part, differentiable=True)
        variable = variable_of(part) if differentiable else None
        carrier = None if variable is None else self._inputs.carriers.get(variable)
        return self.expression(part) if carrier is None else self._output(carrier)

    def _copied(self, value: Any) -> str:
        """A context for each call: new lists, tuples and dictionaries with the same items."""
        kind = type(value)
        if kind in (list, tuple):
            items = "".join(f"{self._copied(item)}, " for item in value)
            return f"[{items}]" if kind is list else f"({items})"
        if kind is dict:
            return f"{{{''.join(f'{self._copied(key)}: {self._copied(item)}, ' for key, item in value.items())}}}"
        return repr(value) if kind in _SPELLED else self.constant(value)

    def _output(self, proxy: Proxy) -> str:
        position = self._positions.get(proxy.name)
        if position is None:
            position = self._positions[proxy.name] = len(self._outputs)
            self._outputs.append(proxy)
        return f"o{position}"

    def _fresh(self, value: Any) -> str:
        """Build an object that the program made."""
        kind = type(value)
        if kind is tuple:
            items = "".join(f"{self.expression(item)}, " for item in value)
            return self.assign(value, f"({items.rstrip()})" if value else "()")
        if kind is list:
            name = self.assign(value, "[]")
            self.lines.extend(f"{name}.append({self.expression(item)})" for item in value)
            return name
        if kind is dict:
            name = self.assign(value, "{}")
            self.lines.extend(f"{name}[{self.expression(k)}] = {self.expression(v)}" for k, v in value.items())
            return name
        if kind is slice:
            return self.assign(
                value, f"slice({', '.join(map(self.expression, (value.start, value.stop, value.step)))})"
            )
        if kind in (set, frozenset) or isinstance(value, torch.Size):
            items = "".join(f"{self.expression(item)}, " for item in value)
            return self.assign(value, f"{self.constant(kind)}(({items}))")
        if kind is types.FunctionType:
            return FunctionReconstructor(self, self._observer, self._inputs.made_objects).function(value)
        if kind is types.MethodType:
            return FunctionReconstructor(self, self._observer, self._inputs.made_objects).method(value)
        if isinstance(value, torch.Generator):
            self._observer.generators.handed_out(value)
            return self._output(self._inputs.object(value))
        for made, described in _MADE_BY_EAGER.items():
            if isinstance(value, made):
                raise EagerCallNeeded(f"the program returns or stores a {described} that it makes")
        if isinstance(value, types.BuiltinFunctionType) and not is_method_of_value(value):
            return self.constant(value)
        return self._reduced(value)

    def _reference(self, reference: weakref.ref[Any]) -> str:
        """A weak reference to what the reference refers to."""
        referent = reference()
        if referent is None:
            return self.constant(reference)
        return self.assign(reference, f"{self.constant(weakref.ref)}({self.expression(referent)})")

    def _uncopied(self, value: Any, error: TypeError) -> str:
        """An object that cannot be copied: of use in this run alone."""
        if isinstance(value, types.GeneratorType):
            rebuilt = reconstruct_generator(self, value)
            if rebuilt is not None:
                return rebuilt
        if type(value) is weakref.ref:
            return self._reference(value)
        if holds_traced_tensor(value):
            raise _cannot_be_reconstructed(value, error) from error
        self._once.append(type(value).__qualname__)
        return self.constant(value)

    def _reduced(self, value: Any) -> str:
        """Any other object, by the protocol that ``copy`` and ``pickle`` use."""
        try:
            reduced = value.__reduce_ex__(4)
        except TypeError as error:
            return self._uncopied(value, error)
        if isinstance(reduced, str):
            if isinstance(getattr(value, "__wrapped__", None), types.FunctionType) and import_path(value) is None:
                raise _cannot_be_reconstructed(value, "it has a state of its own")
            return self.constant(value)
        make, arguments, state, items, pairs = (*reduced, None, None, None)[:5]
        if make is copyreg.__newobj__:  # type: ignore[attr-defined]
            make, arguments = arguments[0].__new__, arguments
        call = ", ".join(self.expression(argument) for argument in arguments)
        name = self.assign(value, f"{self.constant(make)}({call})")
        if state is not None:
            self.lines.append(f"{self.constant(_set_state)}({name}, {self.expression(state)})")
        for item in items or ():
            self.lines.append(f"{name}.append({self.expression(item)})")
        for key, item in pairs or ():
            self.lines.append(f"{name}[{self.expression(key)}] = {self.expression(item)}")
        return name


def _cannot_be_reconstructed(value: Any, reason: object) -> UnsupportedError:
    return UnsupportedError(
        f"the program returns or stores a {type(value).__qualname__}, which cannot be rebuilt: {reason}",
        advice=("return tensors in tuples, lists, dicts, dataclasses or other copyable objects",),
    )


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
