"""The tensor that the user's program handles while it is being recorded."""

from __future__ import annotations

import gc
import types
import weakref
from functools import cache, partial
from typing import Any, Final

import torch

from thunder_core.acquire.variable import Variable
from thunder_core.errors import LeakedTensorError
from thunder_core.ir.size import on_fakes
from thunder_core.pytorch_internals import make_wrapper_subclass


class TracedTensor(torch.Tensor):
    """A `torch.Tensor` without storage: it stands for the result of a recorded call.

    While the program is recorded its class is that of the tensor that it stands for, `torch.Tensor` or a class of the
    user's, so that ``type(x) is torch.Tensor`` answers as in eager; `is_traced` tells it from others. Operators,
    methods and properties work because the recorder's torch-function mode answers them. Once acquisition is over there
    is no mode. Tensors that are left then get this class, and any use of them raises `LeakedTensorError`.

    Attributes:
        left: what was known about it.
    """

    left: Variable

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
_MOST_OBJECTS: Final = 10_000
_known: dict[int, tuple[weakref.ref[torch.Tensor], Variable]] = {}


def make_traced(variable: Variable, kind: type[torch.Tensor] = torch.Tensor) -> torch.Tensor:
    """A new traced tensor that stands for a tensor of the class ``kind``."""
    proxy = variable.proxy
    # a wrapper cannot have a sparse layout; the mode answers questions about it from the proxy and the fake
    shape, strides = on_fakes(proxy.shape), on_fakes(proxy.stride)
    # with symbols PyTorch would compute the size of its memory, which nobody sees
    memory = None if shape is proxy.shape and strides is proxy.stride else 0
    tensor: torch.Tensor = make_wrapper_subclass(
        _wrapper(kind),
        shape,
        strides if proxy.layout is torch.strided else None,
        dtype=proxy.dtype,
        device=proxy.device,
        storage_size=memory,
    )
    tensor.__class__ = kind
    key = id(tensor)
    # removed by a callback in C: a function's frame would be observed as one of the program
    _known[key] = weakref.ref(tensor, partial(_known.pop, key)), variable
    return tensor


def variable_of(value: Any) -> Variable | None:
    """What is known about a traced tensor; None for anything else."""
    known = _known.get(id(value))
    return known[1] if known is not None and known[0]() is value else None


def is_traced(value: Any) -> bool:
    """Whether ``value`` is a traced tensor."""
    return variable_of(value) is not None


def holds_traced_tensor(value: Any) -> bool:
    """Whether a traced tensor can be reached from ``value``, as far as the garbage collector knows."""
    pending, seen = [value], {id(value)}
    while pending and len(seen) < _MOST_OBJECTS:
        for held in gc.get_referents(pending.pop()):
            if is_traced(held):
                return True
            if (
                id(held) not in seen
                and not isinstance(held, types.ModuleType | type | types.CodeType)
                and not _is_namespace(held)
            ):
                seen.add(id(held))
                pending.append(held)
    return False


def _is_namespace(value: Any) -> bool:
    return type(value) is dict and "__builtins__" in value


def leave(tensor: torch.Tensor) -> None:
    """The program that made a traced tensor was recorded: nobody may use the tensor from here on."""
    variable = variable_of(tensor)
    if variable is not None:
        del _known[id(tensor)]
        tensor.__class__ = _wrapper(type(tensor))
        tensor.__dict__["left"] = variable


@cache
def _wrapper(kind: type[torch.Tensor]) -> type[TracedTensor]:
    """The class of traced tensors before and after they are of the class ``kind``: objects of both look alike in C."""
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
    return variable_of(tensor) or tensor.__dict__["left"]


def _leaked(args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> LeakedTensorError:
    from thunder_core.ir.tree import iterate_leaves

    leaves = iterate_leaves((args, kwargs or {}))
    tensor = next(leaf for leaf in leaves if isinstance(leaf, TracedTensor))
    return LeakedTensorError(
        f"{describe(tensor)} is used after the program that made it was recorded; it never had a value",
        location=_variable(tensor).location,
        advice=("return the tensor from the compiled function instead of keeping it elsewhere",),
    )
