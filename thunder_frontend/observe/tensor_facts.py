"""Properties of tensors, such as ``is_leaf``, that a program reads and that `TensorGuard` does not compare."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any, Final

import torch

from thunder_core.checks.check import Check, Comparison, Condition, compiled_reader
from thunder_core.checks.conditions import IDENTITY
from thunder_core.checks.guard import Guard
from thunder_core.checks.source import Source
from thunder_core.checks.tensor_guard import TensorGuard
from thunder_core.pytorch_internals import (
    DisableTorchFunction,
    identity_property,
    is_view,
    version_property,
    view_base_getter,
)

_Tensor: Any = torch.Tensor  # its properties are descriptors, which the stubs do not say
_DIFFERS: Final = Comparison("{actual} != {expected}")
"""Without a dispatch key, since some of these expressions are valid only for tensors that passed all other checks."""


def _fact(expression: str) -> Condition:
    """A condition on a bool or a number that is a property of a tensor."""
    name = expression.removeprefix("{value}")

    def message(value: Any, expected: Any) -> str:
        return f"{name}: expected {expected}, got {read(condition, value)}"

    code = f"({expression})" if " " in expression else expression
    condition = Condition("fact", code, _DIFFERS, message, lambda expected: f"{name} is {expected}")
    return condition


def read(fact: Condition, tensor: torch.Tensor) -> Any:
    """The value of a property, without PyTorch's warning for ``grad`` of tensors that are not leaves."""
    with DisableTorchFunction(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return compiled_reader(fact)(tensor)


_ADDRESS = _fact("{value}.data_ptr()")
_STORAGE = (_fact("{value}.untyped_storage().data_ptr()"), _fact("{value}.untyped_storage().nbytes()"))
_GRADIENT = _fact("{value}.grad is None")
_LEAF = _fact("{value}.is_leaf")
_INFERENCE = _fact("{value}.is_inference()")
_FACTS: dict[Callable[..., Any], tuple[Condition, ...]] = {
    _Tensor.is_leaf.__get__: (_LEAF,),
    _Tensor.retains_grad.__get__: (_fact("{value}.retains_grad"),),
    _Tensor.output_nr.__get__: (_fact("{value}.output_nr"),),
    _Tensor.grad_fn.__get__: (_fact("{value}.grad_fn is None"),),
    _Tensor.grad.__get__: (_GRADIENT,),
    _Tensor._backward_hooks.__get__: (_fact("{value}._backward_hooks is None"),),
    _Tensor._post_accumulate_grad_hooks.__get__: (_fact("{value}._post_accumulate_grad_hooks is None"),),
    _Tensor.storage_offset: (_fact("{value}.storage_offset()"),),
    _Tensor.is_shared: (_fact("{value}.is_shared()"),),
    _Tensor.is_pinned: (_fact("{value}.is_pinned()"),),
    view_base_getter: (_fact("{value}._base is None"),),
    is_view: (_fact("{value}._is_view()"),),
    _Tensor.is_inference: (_INFERENCE,),
    torch.is_inference: (_INFERENCE,),
    _Tensor.data_ptr: (_ADDRESS,),
    identity_property.__get__: (_fact("{value}._cdata"),),
    _Tensor.is_set_to: (_ADDRESS,),
    _Tensor.__deepcopy__: (_GRADIENT, _LEAF, _STORAGE[1]),
    version_property.__get__: (_fact("{value}._version"),),
    _Tensor.untyped_storage: _STORAGE,
    _Tensor.storage: _STORAGE,
}
_OF_CLASS_OR_IDENTITY = frozenset({torch.is_tensor, _Tensor.__hash__, _Tensor.__dir__})


class TensorFacts:
    """Records the properties of tensors that the program reads, with their values at the first read."""

    def __init__(self, on_hash: Callable[[torch.Tensor], None]) -> None:
        self._on_hash = on_hash
        self._read: dict[int, tuple[torch.Tensor, dict[Condition, Any]]] = {}

    def note(self, function: Callable[..., Any], tensor: torch.Tensor) -> None:
        """The program called ``function``, which reads metadata of a tensor."""
        if function is _Tensor.__hash__:
            self._on_hash(tensor)
        if function in _OF_CLASS_OR_IDENTITY:
            return
        facts = self._read.setdefault(id(tensor), (tensor, {}))[1]
        for fact in _FACTS.get(function, ()):
            if fact not in facts:
                facts[fact] = read(fact, tensor)

    def guards(self, inputs: set[int], find: Callable[[torch.Tensor], Source | None]) -> Iterator[Guard]:
        """The guards of these properties.

        Args:
            inputs: ids of tensors that are inputs of the program, whose metadata other guards check.
            find: returns the path to a tensor; None for constants of the program.
        """
        inputs = set(inputs)
        for key, (tensor, facts) in self._read.items():
            source = find(tensor)
            if source is None:
                continue
            if key not in inputs:
                yield Check(source, IDENTITY, tensor) if tensor.is_nested else TensorGuard.of(source, tensor)
            for fact, expected in facts.items():
                yield Check(source, fact, expected)
        self._read.clear()
