"""The tensor that the user's program handles while it is recorded, and the recorder's state of it."""

from __future__ import annotations

import gc
import types
import weakref
from collections.abc import Callable, Container, Iterator
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final

import torch

from thunder_core.errors import LeakedTensorError
from thunder_core.ir.location import SourceLocation
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.size import on_fakes
from thunder_core.ir.tree import tensors_in
from thunder_core.pytorch_internals import is_functorch_wrapped_tensor, make_wrapper_subclass

if TYPE_CHECKING:
    from thunder_core.pytorch_internals import FakeTensor

MetadataKey = tuple[Any, ...]


class Variable:
    """A mutable binding from a tensor object to the proxy of its current value.

    Attributes:
        proxy: the current name and metadata.
        fake: the fake tensor with the same metadata, or None until it is needed. That of an input is created when it is
            read: the parameters of all layers but one need none, as equal calls are inferred once.
        base: the variable whose storage ``fake`` must share when it is created; None for a separate storage.
        detached: ``fake`` is not a view to autograd, although it shares the storage of ``base``.
        constant: the value depends on no input and on no random state.
        bits: its lazy conjugation and negation, see `thunder_core.tracing.fake_tensors.lazy_bits`.
        location: the user's line that created it, for messages.
    """

    __slots__ = ("_create_fake", "_fake", "base", "bits", "constant", "detached", "key", "location", "proxy")

    def __init__(
        self,
        proxy: TensorProxy,
        *,
        fake: FakeTensor | None = None,
        create_fake: Callable[[], FakeTensor] | None = None,
        base: Variable | None = None,
        constant: bool = False,
        detached: bool = False,
        bits: tuple[bool, bool] = (False, False),
        location: SourceLocation | None = None,
    ) -> None:
        self.proxy = proxy
        self._fake = fake
        self._create_fake = create_fake
        self.base = base
        self.constant = constant
        self.detached = detached
        self.location = location
        self.bits = bits
        self.key = metadata_key(proxy, bits)

    @property
    def fake(self) -> FakeTensor | None:
        if self._create_fake is not None:
            self.fake = self._create_fake()
        return self._fake

    @fake.setter
    def fake(self, fake: FakeTensor | None) -> None:
        self._fake, self._create_fake = fake, None


def metadata_key(proxy: TensorProxy, bits: tuple[bool, bool]) -> MetadataKey:
    """Everything about a tensor that may decide the metadata of a call's results."""
    geometry = (proxy.shape, proxy.stride, proxy.offset)
    return (*geometry, proxy.dtype, proxy.device, proxy.requires_grad, proxy.layout, bits)


class TracedTensor(torch.Tensor):
    """A `torch.Tensor` without storage that represents the result of a recorded call.

    While the program is recorded its class is that of the tensor that it represents, `torch.Tensor` or a user's class,
    so that ``type(x) is torch.Tensor`` holds as in eager; `is_traced` distinguishes it from other tensors. Operators,
    methods and properties work because the recorder's torch-function mode handles them. After acquisition there is no
    mode: remaining traced tensors get this class, and any use of them raises `LeakedTensorError`.

    Attributes:
        variable: its variable.
    """

    variable: Variable

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in _DESCRIBES:
            return describe(args[0])
        raise _leaked(args, kwargs)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # the stub describes the disabled implementation
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        raise _leaked(args, kwargs)


_DESCRIBES = frozenset({torch.Tensor.__repr__, torch.Tensor.__format__})
MOST_OBJECTS: Final = 10_000
_known: dict[int, tuple[weakref.ref[torch.Tensor], Variable]] = {}


def make_traced(variable: Variable, kind: type[torch.Tensor] = torch.Tensor) -> torch.Tensor:
    """A new traced tensor that represents a tensor of the class ``kind``."""
    proxy = variable.proxy
    # a wrapper cannot have a sparse layout; the mode reads the layout from the proxy and the fake
    shape, strides = on_fakes(proxy.shape), on_fakes(proxy.stride)
    # with symbolic sizes PyTorch would compute the size of its storage, which is never used
    memory = None if shape is proxy.shape and strides is proxy.stride else 0
    tensor: torch.Tensor = make_wrapper_subclass(
        _wrapper(kind),
        shape,
        strides if proxy.layout is torch.strided else None,
        on_fakes(proxy.offset) if proxy.layout is torch.strided else None,  # autograd reads it for writes to views
        dtype=proxy.dtype,
        device=proxy.device,
        storage_size=memory,
    )
    tensor.__class__ = kind
    key = id(tensor)
    # removed by a callback in C: the frame of a Python function would be observed as a frame of the program
    _known[key] = weakref.ref(tensor, partial(_known.pop, key)), variable
    return tensor


def variable_of(value: Any) -> Variable | None:
    """The variable of a traced tensor; None for any other value."""
    known = _known.get(id(value))
    return known[1] if known is not None and known[0]() is value else None


def is_traced(value: Any) -> bool:
    """Whether ``value`` is a traced tensor."""
    return variable_of(value) is not None


def holds_traced_tensor(value: Any) -> bool:
    """Whether a traced tensor is reachable from ``value`` by the garbage collector's references."""
    return any(map(is_traced, reachable(value, MOST_OBJECTS)))


def reachable(value: Any, most: int, *ignored: type, known: Container[int] = ()) -> Iterator[Any]:
    """What is reachable from ``value`` by the garbage collector's references, up to a number of objects.

    Modules of Python, classes, code and objects of the ``ignored`` classes are not searched, and objects whose ids are
    ``known`` are left out.
    """
    pending, seen = [value], {id(value)}
    while pending and len(seen) < most:
        for held in gc.get_referents(pending.pop()):
            if id(held) in known:
                continue
            yield held
            closed = isinstance(held, (types.ModuleType, type, types.CodeType, *ignored)) or _is_namespace(held)
            if id(held) not in seen and not closed:
                seen.add(id(held))
                pending.append(held)


def _is_namespace(value: Any) -> bool:
    return type(value) is dict and "__builtins__" in value


def invalidate(tensor: torch.Tensor) -> None:
    """Invalidate a traced tensor after its program was recorded: any later use raises `LeakedTensorError`."""
    variable = variable_of(tensor)
    if variable is not None:
        del _known[id(tensor)]
        tensor.__class__ = _wrapper(type(tensor))
        tensor.__dict__["variable"] = variable


@cache
def _wrapper(kind: type[torch.Tensor]) -> type[TracedTensor]:
    """The class of traced tensors before and after they are of the class ``kind``, with the same object layout in C."""
    if kind is torch.Tensor:
        return TracedTensor
    return types.new_class(
        kind.__name__, (TracedTensor, kind), {}, lambda body: body.update(__module__=kind.__module__)
    )


def describe(tensor: torch.Tensor) -> str:
    """A short text in place of the values, which do not exist."""
    proxy = _variable(tensor).proxy
    shape = ", ".join(map(str, proxy.shape))
    return f"TracedTensor({proxy.name}: {str(proxy.dtype).removeprefix('torch.')}[{shape}], {proxy.device})"


def _variable(tensor: torch.Tensor) -> Variable:
    return variable_of(tensor) or tensor.__dict__["variable"]


def _leaked(args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> LeakedTensorError:
    tensor = next(leaf for leaf in tensors_in((args, kwargs or {})) if isinstance(leaf, TracedTensor))
    return LeakedTensorError(
        f"{describe(tensor)} is used after the program that created it was recorded; it never had a value",
        location=_variable(tensor).location,
        advice=("return the tensor from the compiled function instead of keeping it elsewhere",),
    )


def is_transformed(value: Any) -> bool:
    """Whether a value is a tensor that a transformation of `torch.func` has wrapped."""
    return isinstance(value, torch.Tensor) and is_functorch_wrapped_tensor(value)


def any_transformed(values: tuple[Any, ...]) -> bool:
    """Whether a transformation of `torch.func` has wrapped one of the tensors among these values."""
    for value in values:  # noqa: SIM110 - a generator takes twice as long, and this is called for each op
        if isinstance(value, torch.Tensor) and is_functorch_wrapped_tensor(value):
            return True
    return False
