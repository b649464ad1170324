"""A call that is tested."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ParamSpec, TypeVar

import torch
from torch.overrides import handle_torch_function

from thunder_core.ir.tree import iterate_leaves, map_leaves
from thunder_core.symbols.recording import is_recording
from thunder_testing.copying import copy_together

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


@dataclass(frozen=True, eq=False)
class Call:
    """A function and its arguments.

    Attributes:
        what: description of the origin, such as "sample 3 of OpInfo's softmax, transposed".
        function: the called function: a spelling of the operation, or a program.
        args, kwargs: nested containers of tensors and other values. They are not written to: tests use copies.
        given: whether the author of the executor supplied the call.
    """

    what: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    given: bool = False

    def tensors(self) -> list[torch.Tensor]:
        """The tensors in order, without duplicates."""
        tensors_by_id = {
            id(leaf): leaf for leaf in iterate_leaves((self.args, self.kwargs)) if isinstance(leaf, torch.Tensor)
        }
        return list(tensors_by_id.values())

    def differentiable(self) -> list[int]:
        """Positions among `tensors` of those that can require grad."""
        return [index for index, tensor in enumerate(self.tensors()) if can_require_grad(tensor)]

    def map_tensors(self, function: Callable[[torch.Tensor], torch.Tensor], what: str = "") -> Call:
        """Replace each tensor, and equal objects by equal ones; ``what`` is added to the description."""
        copies: dict[int, torch.Tensor] = {}

        def value(leaf: Any) -> Any:
            if not isinstance(leaf, torch.Tensor):
                return leaf
            if id(leaf) not in copies:
                copies[id(leaf)] = function(leaf)
            return copies[id(leaf)]

        return self._with(map_leaves(value, self.args), map_leaves(value, self.kwargs), what)

    def with_tensors(self, tensors: list[torch.Tensor], what: str = "") -> Call:
        """The call with these tensors in place of `tensors`."""
        new = {id(old): tensor for old, tensor in zip(self.tensors(), tensors, strict=True)}
        return self.map_tensors(lambda tensor: new[id(tensor)], what)

    def copy(self, requiring: Iterator[int] | tuple[int, ...] = ()) -> Call:
        """A call with copies of the tensors, which have the same strides, offsets and sharing.

        Args:
            requiring: positions among `tensors` of those that are leaves that require grad in the copy; no others do.
        """
        args, kwargs = copy_together(self.args, self.kwargs)
        wanted = frozenset(requiring)
        copied = replace(self, args=args, kwargs=kwargs)
        for index, tensor in enumerate(copied.tensors()):
            tensor.requires_grad_(index in wanted)
        return copied

    def _with(self, args: tuple[Any, ...], kwargs: dict[str, Any], what: str) -> Call:
        return Call(f"{self.what}, {what}" if what else self.what, self.function, args, kwargs)


def recorded_whole(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """A function that calls ``function`` as one operation of traces, unlike plain calls. Its attribute ``whole`` is the
    function.
    """

    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        return handle_torch_function(function, (), *args, **kwargs) if is_recording() else function(*args, **kwargs)

    call.whole = function  # type: ignore[attr-defined]
    return call


def can_require_grad(tensor: torch.Tensor) -> bool:
    """Whether the dtype is floating-point or complex."""
    return tensor.is_floating_point() or tensor.is_complex()


def describe(value: Any) -> str:
    """A short description of a value: ``f32[3, 4] strides[1, 3]`` for tensors, ``repr`` for others."""
    if isinstance(value, torch.Tensor):
        return describe_tensor(value)
    if isinstance(value, tuple):
        return f"({', '.join(map(describe, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, list):
        return f"[{', '.join(map(describe, value))}]"
    return repr(value)


def describe_tensor(tensor: torch.Tensor) -> str:
    """Dtype and shape; strides and offset unless it is contiguous, and whether it requires grad."""
    text = f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
    if tensor.layout is not torch.strided:
        text += f" {str(tensor.layout).removeprefix('torch.')}"
    elif not tensor.is_contiguous() or tensor.storage_offset():
        text += f" strides{list(tensor.stride())} offset {tensor.storage_offset()}"
    return (
        text
        + (" on " + str(tensor.device) if tensor.device.type != "cpu" else "")
        + (" requires grad" if tensor.requires_grad else "")
    )


def describe_call(call: Call) -> str:
    """The arguments as in the parentheses of a call."""
    named = [f"{name}={describe(value)}" for name, value in call.kwargs.items()]
    return ", ".join([*map(describe, call.args), *named])
