"""What is known of disabled functions (`thunder_frontend.record.disabled_functions`): what they return."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from types import MethodType
from typing import Any, Final

import torch

from thunder_core.checks import resets
from thunder_core.ir.context import current_context
from thunder_core.ir.tree import iterate_leaves, map_leaves, tensors_in
from thunder_core.pytorch_internals import storage_identity
from thunder_core.tracing.outcome import Result, Slot
from thunder_frontend.record.traced_tensor import variable_of

_PLAIN: Final = frozenset({type(None), bool, int, float, complex, str, torch.dtype, torch.device})
_MOST_KNOWN: Final = 4096  # functions with the metadata of their arguments; then all are forgotten
_MOST_KEYS: Final = 8  # of one function

Key = tuple[Any, ...]


@dataclass(frozen=True)
class Returned:
    """What a function returns for the arguments of a key.

    Attributes:
        structure: the result with a `Slot` for each tensor.
        results: the tensors.
    """

    structure: Any
    results: tuple[Result, ...]

    def difference(self, result: Any, sizes: tuple[Any, ...], arguments: list[torch.Tensor]) -> str | None:
        """How another result differs; None if it does not.

        Args:
            sizes: shape and stride of each tensor, in this run.
        """
        tensors = tensors_in(result)
        count = iter(range(len(tensors)))
        structure = map_leaves(lambda leaf: Slot(next(count)) if isinstance(leaf, torch.Tensor) else leaf, result)
        if not _equal(structure, self.structure):
            return "returns other objects than before"
        for tensor, expected, (shape, stride) in zip(tensors, self.results, sizes, strict=True):
            if expected.same_as >= 0:
                if tensor is not arguments[expected.same_as]:
                    return "does not return its argument, as before"
                continue
            found = (tuple(tensor.shape), tensor.dtype, tensor.device, tensor.requires_grad, tensor.layout)
            wanted = (tuple(shape), expected.dtype, expected.device, expected.requires_grad, expected.layout)
            if found != wanted:
                return f"returns a tensor of {_text(*found)} instead of {_text(*wanted)}"
            if tensor.layout is torch.strided and tensor.numel() and not _same_strides(tensor, stride):
                return f"returns a tensor with strides {tensor.stride()} instead of {tuple(stride)}"
        return None


def _equal(one: Any, other: Any) -> bool:
    """Whether two nested results without tensors are equal, with equal classes of their parts."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(_equal(one[key], other[key]) for key in one)
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(_equal, one, other))
    return bool(one == other) or (one != one and other != other)


def _same_strides(tensor: torch.Tensor, stride: tuple[int, ...]) -> bool:
    pairs = zip(tensor.shape, tensor.stride(), stride, strict=True)
    return all(found == wanted for size, found, wanted in pairs if size != 1)


def _text(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device, grad: bool, layout: torch.layout) -> str:
    return f"shape {shape}, {dtype}, on {device}{', with gradient' if grad else ''}"


@dataclass(eq=False)
class Known:
    """What calls of a function in eager PyTorch have shown.

    Attributes:
        references: to the objects of the key.
        returned: what the function returns.
        unfit: why it cannot be one op; empty if it can.
        verified: whether it has left all that a program reads as it was.
        changes: how often it has not.
    """

    references: tuple[weakref.ref[Any], ...]
    returned: Returned | None = None
    unfit: str = ""
    verified: bool = False
    changes: int = 0


_known: Final[dict[Key, Known]] = {}
resets.call_at_reset(_known.clear)


def known_of(key: Key, function: Any) -> Known:
    """What is known of a function for a key."""
    objects, known = identities(function), _known.get(key)
    if known is not None and [id(reference()) for reference in known.references] == list(map(id, objects)):
        return known
    if len(_known) >= _MOST_KNOWN:
        _known.clear()
    try:
        known = _known[key] = Known(tuple(map(weakref.ref, objects)))
    except TypeError:  # an object of the key has no weak references, and may be another one in the next call
        known = Known((), unfit="is an object without weak references")
    return known


def identities(function: Any) -> list[Any]:
    """The objects that make up a function: bound methods are new objects at each access."""
    if isinstance(function, MethodType):
        return [*identities(function.__func__), function.__self__]
    return [function]


def key_of(function: Any, args: Any, kwargs: Any) -> Key:
    """The function, the metadata of its arguments, and PyTorch's modes."""
    leaves = list(map(_describe, iterate_leaves((args, kwargs))))
    structure = map_leaves(lambda leaf: None, (args, tuple(kwargs.items())))
    return (*map(id, identities(function)), current_context(), repr(structure), *leaves)


def _describe(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        variable = variable_of(leaf)
        if variable is not None:
            proxy = variable.proxy
            return proxy.shape, proxy.stride, proxy.dtype, proxy.device, proxy.requires_grad
        strides = leaf.stride() if leaf.layout is torch.strided else ()
        return tuple(leaf.shape), strides, leaf.dtype, leaf.device, leaf.requires_grad
    if type(leaf) in (float, complex):
        return type(leaf)
    return (type(leaf), leaf) if type(leaf) in _PLAIN else (type(leaf), id(leaf))


def name_of(function: Any) -> str:
    """The name of a function for traces and messages; for the call of a module that of its class."""
    owner = getattr(function, "__self__", None)
    if isinstance(owner, torch.nn.Module) and not isinstance(function, torch.nn.Module):
        name = str(getattr(function, "__name__", ""))
        return type(owner).__qualname__ if name.endswith("_call_impl") else f"{type(owner).__qualname__}.{name}"
    return str(getattr(function, "__qualname__", type(function).__qualname__))


def reason_of(function: Any, reason: str) -> str:
    """A reason to run a program eagerly, with the name of the function."""
    return f"{name_of(function)}, which torch.compiler.disable marks, {reason}"


def is_called_in_new_ways(function: Any) -> bool:
    """Whether no key of a function is likely to recur: it has been called with too many."""
    ids = tuple(map(id, identities(function)))
    return sum(key[: len(ids)] == ids for key in _known) > _MOST_KEYS


def describe_result(result: Any, given: list[torch.Tensor]) -> Returned | str:
    """What a function has returned; a text with the reason why an op cannot return it.

    Args:
        given: the tensors among its arguments.
    """
    results: list[Result] = []
    storages = {storage_identity(tensor.untyped_storage()) for tensor in given if _is_dense(tensor)}
    for leaf in iterate_leaves(result):
        if not isinstance(leaf, torch.Tensor):
            if type(leaf) not in _PLAIN:
                return f"returns an object of type {type(leaf).__qualname__}"
            continue
        same_as = next((index for index, tensor in enumerate(given) if tensor is leaf), -1)
        if same_as < 0 and not (_is_dense(leaf) and type(leaf) is torch.Tensor):
            return f"returns a {type(leaf).__qualname__} that is no plain dense tensor"
        if same_as < 0:
            storage = storage_identity(leaf.untyped_storage())
            if storage in storages:
                return "returns tensors that share memory with each other, or with its arguments"
            storages.add(storage)
        stride = leaf.stride() if _is_dense(leaf) else ()
        metadata = (tuple(leaf.shape), stride, 0, leaf.dtype, leaf.device, leaf.requires_grad, leaf.layout)
        results.append(Result(same_as, -1, -1, *metadata))
    count = iter(range(len(results)))
    return Returned(
        map_leaves(lambda leaf: Slot(next(count)) if isinstance(leaf, torch.Tensor) else leaf, result), tuple(results)
    )


def _is_dense(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and not (tensor.is_quantized or tensor.is_nested or tensor.is_mkldnn)
