"""Snapshots of arbitrary Python values as flat entries, for comparison of two program runs.

An entry is a leaf or a container, with the path to it (``result[0].logits``). Entries hold the objects themselves, so
that identity and shared storages can be compared. An object that is reachable by several paths is visited once.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import types
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from thunder_core.pytorch_internals import storage_identity

_MODULE_INTERNALS = frozenset(vars(torch.nn.Module())) - {"_parameters", "_buffers", "_modules", "training"}
_OPAQUE_TYPES = (
    type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.CodeType, enum.Enum,
    torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Generator, torch.Size,
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Entry:
    """A value of a snapshot and its path."""

    path: str
    value: Any

    @property
    def has_identity(self) -> bool:
        """Whether the identity of the object is observable, because it is mutable."""
        return isinstance(self.value, torch.Tensor | list | dict) or (
            hasattr(self.value, "__dict__") and not isinstance(self.value, _OPAQUE_TYPES)
        )


def snapshot(**roots: Any) -> dict[str, Entry]:
    """The entries of all ``roots`` by path, parents before children."""
    seen: set[int] = set()
    return {entry.path: entry for name, root in roots.items() for entry in _walk(root, name, seen)}


def storage_key(tensor: torch.Tensor) -> int | None:
    """A number that is equal for two live tensors exactly if they share memory; None without a plain storage."""
    if tensor.layout is not torch.strided:
        return None
    try:
        return int(storage_identity(tensor.untyped_storage()))
    except (NotImplementedError, RuntimeError):  # wrapper subclasses have no storage
        return None


def _walk(value: Any, path: str, seen: set[int]) -> Iterator[Entry]:
    entry = Entry(path, value)
    yield entry
    if entry.has_identity:
        if id(value) in seen:
            return
        seen.add(id(value))
    for suffix, child in _children(value):
        yield from _walk(child, path + suffix, seen)


def _children(value: Any) -> Iterator[tuple[str, Any]]:
    """The parts of ``value`` with the suffixes of their paths."""
    if isinstance(value, torch.Tensor):
        if (value.is_leaf or value.retains_grad) and value.grad is not None:
            yield ".grad", value.grad
        return
    if isinstance(value, types.MethodType):
        yield ".__self__", value.__self__
    if isinstance(value, functools.partial):
        yield from ((".func", value.func), (".args", value.args), (".keywords", value.keywords))
    if isinstance(value, _OPAQUE_TYPES):
        return
    if isinstance(value, tuple | list):
        for index, item in enumerate(value):
            yield f"[{index}]", item
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield f"[{key!r}]", item
    yield from ((f".{name}", item) for name, item in _attributes(value).items())


def _attributes(value: Any) -> Mapping[str, Any]:
    if isinstance(value, torch.nn.Module):
        return {name: item for name, item in vars(value).items() if name not in _MODULE_INTERNALS}
    if dataclasses.is_dataclass(value) and not hasattr(value, "__dict__"):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return getattr(value, "__dict__", {})
