"""The tensor that the user's program handles while it is being recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch

from thunder_core.errors import LeakedTensorError
from thunder_core.pytorch_internals import make_wrapper_subclass

if TYPE_CHECKING:
    from thunder_core.acquire.variable import Variable


class TracedTensor(torch.Tensor):
    """A `torch.Tensor` without storage: it stands for the result of a recorded call.

    ``isinstance``, operators, methods and properties work because the recorder's torch-function mode answers them. Once
    acquisition is over there is no mode, and any use of a traced tensor that escaped raises `LeakedTensorError`.

    Attributes:
        variable: what is known about it.
        user_class: the class of the tensor that it stands for; see `subclasses.traced_class`.
    """

    variable: Variable
    user_class: ClassVar[type[torch.Tensor]] = torch.Tensor

    @staticmethod
    def __new__(cls, variable: Variable) -> TracedTensor:
        proxy = variable.proxy
        if proxy.layout is not torch.strided:
            # a wrapper cannot have a sparse layout; the mode answers questions about it from the proxy and the fake
            tensor: TracedTensor = make_wrapper_subclass(cls, proxy.shape, dtype=proxy.dtype, device=proxy.device)
            tensor.variable = variable
            return tensor
        tensor = make_wrapper_subclass(cls, proxy.shape, strides=proxy.stride, dtype=proxy.dtype, device=proxy.device)
        tensor.variable = variable
        return tensor

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Nothing is left to do: `__new__` sets the variable. Constructors of users' classes call it as they like."""

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


def describe(tensor: TracedTensor) -> str:
    """A short text in place of the values, which do not exist."""
    proxy = tensor.variable.proxy
    shape = ", ".join(map(str, proxy.shape))
    return f"TracedTensor({proxy.name}: {str(proxy.dtype).removeprefix('torch.')}[{shape}], {proxy.device})"


def _leaked(args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> LeakedTensorError:
    from thunder_core.ir.tree import iterate_leaves

    leaves = iterate_leaves((args, kwargs or {}))
    tensor = next(leaf for leaf in leaves if isinstance(leaf, TracedTensor))
    return LeakedTensorError(
        f"{describe(tensor)} is used after the program that made it was recorded; it never had a value",
        location=tensor.variable.location,
        advice=("return the tensor from the compiled function instead of keeping it elsewhere",),
    )
