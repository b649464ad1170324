"""What a program asked of tensors that existed before it ran, whether or not it computed with them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch

from thunder_core.guards.guard import Guard
from thunder_core.guards.identity_guards import IdentityGuard
from thunder_core.guards.source import Names, Source
from thunder_core.guards.tensor_guard import TensorGuard
from thunder_core.pytorch_internals import (
    DisableTorchFunction,
    identity_property,
    is_view,
    tensor_identity,
    version_of,
    version_property,
)

_Tensor: Any = torch.Tensor  # its properties are descriptors, which the stubs do not say


@dataclass(frozen=True, slots=True)
class Fact:
    """Something about a tensor that a `TensorGuard` does not compare: a bool or a number.

    Attributes:
        expression: what to ask, as Python with a place for the tensor.
        answer: the same as a function.
    """

    expression: str
    answer: Callable[[Any], Any] = field(compare=False)

    def of(self, tensor: torch.Tensor) -> Any:
        """The tensor's own answer, without PyTorch's remark that ``grad`` of what is no leaf is not kept."""
        with DisableTorchFunction(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self.answer(tensor)


_ADDRESS = Fact("{}.data_ptr()", lambda tensor: tensor.data_ptr())
_STORAGE = (
    Fact("{}.untyped_storage().data_ptr()", lambda tensor: tensor.untyped_storage().data_ptr()),
    Fact("{}.untyped_storage().nbytes()", lambda tensor: tensor.untyped_storage().nbytes()),
)
_GRADIENT = Fact("({}.grad is None)", lambda tensor: tensor.grad is None)
_LEAF = Fact("{}.is_leaf", lambda tensor: tensor.is_leaf)
_INFERENCE = Fact("{}.is_inference()", lambda tensor: tensor.is_inference())
_FACTS: dict[Callable[..., Any], tuple[Fact, ...]] = {
    _Tensor.is_leaf.__get__: (_LEAF,),
    _Tensor.retains_grad.__get__: (Fact("{}.retains_grad", lambda tensor: tensor.retains_grad),),
    _Tensor.output_nr.__get__: (Fact("{}.output_nr", lambda tensor: tensor.output_nr),),
    _Tensor.grad_fn.__get__: (Fact("({}.grad_fn is None)", lambda tensor: tensor.grad_fn is None),),
    _Tensor.grad.__get__: (_GRADIENT,),
    _Tensor.storage_offset: (Fact("{}.storage_offset()", lambda tensor: tensor.storage_offset()),),
    _Tensor.is_shared: (Fact("{}.is_shared()", lambda tensor: tensor.is_shared()),),
    _Tensor.is_pinned: (Fact("{}.is_pinned()", lambda tensor: tensor.is_pinned()),),
    is_view: (Fact("{}._is_view()", lambda tensor: is_view(tensor)),),
    _Tensor.is_inference: (_INFERENCE,),
    torch.is_inference: (_INFERENCE,),
    _Tensor.data_ptr: (_ADDRESS,),
    identity_property.__get__: (Fact("{}._cdata", tensor_identity),),
    _Tensor.is_set_to: (_ADDRESS,),
    _Tensor.__deepcopy__: (_GRADIENT, _LEAF, _STORAGE[1]),
    version_property.__get__: (Fact("{}._version", version_of),),
    _Tensor.untyped_storage: _STORAGE,
    _Tensor.storage: _STORAGE,
}
_OF_CLASS_OR_IDENTITY = frozenset({torch.is_tensor, _Tensor.__hash__, _Tensor.__dir__})


@dataclass(frozen=True, slots=True)
class FactGuard(Guard):
    """One thing that the program asked of a tensor."""

    fact: Fact
    expected: Any
    kind: ClassVar[str] = "fact"

    def summary(self) -> str:
        return f"{self.fact.expression.format(self.source.describe())} is {self.expected}"

    def holds(self, value: Any) -> bool:
        return bool(self.fact.of(value) == self.expected)

    def reason(self, value: Any) -> str:
        text = self.fact.expression.format(self.source.describe())
        return f"{text}: expected {self.expected}, got {self.fact.of(value)}"

    def failure(self, value: str, names: Names) -> str:
        return f"{self.fact.expression.format(value)} != {self.expected!r}"


class TensorFacts:
    """Notes questions while the program runs."""

    def __init__(self, on_hash: Callable[[torch.Tensor], None]) -> None:
        self._on_hash = on_hash
        self._asked: dict[int, tuple[torch.Tensor, dict[Fact, Any]]] = {}

    def note(self, function: Callable[..., Any], tensor: torch.Tensor) -> None:
        """The program called ``function``, which reads no elements, with a tensor that it may not have made."""
        if function is _Tensor.__hash__:
            self._on_hash(tensor)
        if function in _OF_CLASS_OR_IDENTITY:
            return
        facts = self._asked.setdefault(id(tensor), (tensor, {}))[1]
        for fact in _FACTS.get(function, ()):
            if fact not in facts:
                facts[fact] = fact.of(tensor)

    def guards(self, inputs: set[int], find: Callable[[torch.Tensor], Source | None]) -> Iterator[Guard]:
        """What must stay as it was.

        Args:
            inputs: ids of tensors that are inputs of the program: their metadata is guarded anyway.
            find: gives the path to a tensor; what has none is a constant of the program.
        """
        inputs = set(inputs)
        for key, (tensor, facts) in self._asked.items():
            source = find(tensor)
            if source is None:
                continue
            if key not in inputs:
                yield IdentityGuard(source, tensor) if tensor.is_nested else TensorGuard.of(source, tensor)
            for fact, expected in facts.items():
                yield FactGuard(source, fact, expected)
        self._asked.clear()
