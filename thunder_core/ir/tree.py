"""Walk the nested arguments and outputs of bound symbols.

Containers are exactly tuple, list, dict, torch.Size, slice and namedtuple; everything else is a leaf. This is much
faster than a registry-based pytree and sufficient: acquisition converts all other containers to these. The functions
fill lists because nested generators take several times as long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from thunder_core.ir.proxy import PROXY_TYPES, Proxy, TensorProxy
from thunder_core.ir.size import SizeExpr

_NO_SIZE = frozenset({int, float, bool, str, type(None), torch.dtype, torch.device, type(Ellipsis), *PROXY_TYPES})
_LITERALS = frozenset({int, float, bool, str, type(None), torch.dtype, torch.device, type(Ellipsis)})


def map_leaves(function: Callable[[Any], Any], value: Any) -> Any:
    """``value`` with each leaf replaced by ``function(leaf)``; containers are rebuilt with their type."""
    kind = type(value)
    if kind is tuple:
        return tuple([map_leaves(function, item) for item in value])
    if kind is list:
        return [map_leaves(function, item) for item in value]
    if kind is dict:
        return {key: map_leaves(function, item) for key, item in value.items()}
    if kind is torch.Size:
        sizes = [map_leaves(function, item) for item in value]
        return torch.Size(sizes) if all(isinstance(size, int | torch.SymInt) for size in sizes) else tuple(sizes)
    if kind is slice:
        return slice(
            map_leaves(function, value.start), map_leaves(function, value.stop), map_leaves(function, value.step)
        )
    if isinstance(value, tuple):
        return with_items(value, [map_leaves(function, item) for item in value])
    return function(value)


def takes_items(kind: type[tuple[Any, ...]]) -> bool:
    """Whether a call of a class of tuples creates one from its items: as arguments for a named tuple, else as one."""
    if kind.__init__ is not object.__init__:
        return False
    base = next(base for base in kind.__mro__ if "__new__" in vars(base))
    return base is tuple or "_make" in vars(base) or hasattr(base, "n_sequence_fields")  # named tuples, those of C


def with_items(value: tuple[Any, ...], items: Iterable[Any]) -> Any:
    """A tuple of the class of ``value`` with these items and the attributes of ``value``, without calls of its class.

    The class may have a ``__new__`` that takes or checks other arguments, such as that of ``PackedSequence``.
    """
    kind = type(value)
    if hasattr(kind, "n_sequence_fields"):  # a structseq of C, as those of torch.return_types: takes one sequence
        return kind(items)
    copy = tuple.__new__(kind, items)
    if getattr(value, "__dict__", None):
        vars(copy).update(vars(value))
    return copy


def iterate_leaves(value: Any) -> Iterator[Any]:
    """The leaves of ``value``, left to right."""
    found: list[Any] = []
    _collect_leaves((value,), found)
    return iter(found)


def _collect_leaves(values: Iterable[Any], found: list[Any]) -> None:
    for item in values:
        kind = type(item)
        if kind is TensorProxy or kind in _LITERALS:
            found.append(item)
        elif isinstance(item, tuple | list):
            _collect_leaves(item, found)
        elif isinstance(item, dict):
            _collect_leaves(item.values(), found)
        elif isinstance(item, slice):
            _collect_leaves((item.start, item.stop, item.step), found)
        else:
            found.append(item)


def tensors_in(value: Any) -> list[torch.Tensor]:
    """The tensors among the leaves of ``value``, left to right, with repetitions."""
    return [leaf for leaf in iterate_leaves(value) if isinstance(leaf, torch.Tensor)]


def iterate_proxies(value: Any) -> Iterator[Proxy]:
    """The proxies in ``value``, left to right, with repetitions."""
    return iter(list_proxies((value,)))


def list_proxies(values: Iterable[Any]) -> list[Proxy]:
    """The proxies in the values, left to right, with repetitions."""
    found: list[Proxy] = []
    _collect(values, found)
    return found


def _collect(values: Iterable[Any], found: list[Proxy]) -> None:
    for item in values:
        kind = type(item)
        if kind is TensorProxy:
            found.append(item)
        elif kind in _LITERALS:
            continue
        elif kind is tuple or kind is list:
            _collect(item, found)
        elif kind in PROXY_TYPES:
            found.append(item)
        elif kind is slice:
            _collect((item.start, item.stop, item.step), found)
        elif kind is dict:
            _collect(item.values(), found)
        elif isinstance(item, tuple | list | dict | slice):
            found += [leaf for leaf in iterate_leaves(item) if isinstance(leaf, PROXY_TYPES)]


def list_sizes(values: Iterable[Any], found: list[SizeExpr] | None = None) -> list[SizeExpr]:
    """The varying sizes among the leaves of the values, appended to ``found``; sizes of proxies are not included."""
    found = [] if found is None else found
    for item in values:
        kind = type(item)
        if kind in _NO_SIZE:
            continue
        if kind is SizeExpr:
            found.append(item)
        elif kind is slice:
            list_sizes((item.start, item.stop, item.step), found)
        elif isinstance(item, dict):
            list_sizes(item.values(), found)
        elif isinstance(item, tuple | list):
            list_sizes(item, found)
    return found


def leaves(value: Any) -> tuple[Any, ...]:
    """The leaves of ``value``, left to right; printed programs call it for outputs that an assignment cannot unpack."""
    return tuple(iterate_leaves(value))
