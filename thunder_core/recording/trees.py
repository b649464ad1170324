"""Nested arguments and results of a program: the paths to their leaves, guards on structure, and reconstruction."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch

from thunder_core.checks.check import Check
from thunder_core.checks.conditions import EQUALITY, LENGTH, TYPE, VALUE, identity_check, keys_check
from thunder_core.checks.guard import Guard
from thunder_core.checks.plain import is_plain, literal
from thunder_core.checks.source import CreatedSource, ItemSource, Source
from thunder_core.contract import Reconstruction
from thunder_core.errors import UnsupportedError
from thunder_core.ir.proxy import Proxy
from thunder_core.pytorch_internals import tree_flatten, tree_unflatten

_DICTIONARIES: Final = frozenset({dict, OrderedDict})


@dataclass(frozen=True, eq=False)
class Leaf:
    """A leaf of the arguments of a call: its path, and its value in the recorded call."""

    source: Source
    value: Any


def argument_tree(value: Any, source: Source, guards: list[Guard]) -> Any:
    """``value`` with a `Leaf` in place of each leaf of PyTorch's pytrees (`torch.utils._pytree`).

    Args:
        value: nested containers: tuples, lists, dictionaries, and instances of classes that are registered as pytrees.
        source: the path to it.
        guards: guards on the structure are appended, under which each path leads to the same leaf in another call. The
            values of the leaves are not guarded: the runtime guards the metadata of tensors that become inputs, and
            `leaf_guard` guards the rest.

    Returns:
        A tree of the same structure.
    """
    items, spec = _one_level(value)
    kind = type(value)
    if len(items) == 1 and items[0] is value:
        return Leaf(source, value)
    guards.append(Check(source, TYPE, kind))
    if kind in _DICTIONARIES:
        guards.append(keys_check(source, tuple(value)))
        sources: list[Source] = [ItemSource(source, key) for key in value]
    elif kind is list or issubclass(kind, tuple):
        guards.append(Check(source, LENGTH, len(items)))
        sources = [ItemSource(source, index) for index in range(len(items))]
    else:
        structure = CreatedSource(_context, (source,), f"{source.describe()}_structure")
        guards.append(Check(structure, EQUALITY, _copy_of(spec.context, source)))
        created = CreatedSource(_items, (source,), f"{source.describe()}_items")
        guards.append(Check(created, LENGTH, len(items)))
        sources = [ItemSource(created, index) for index in range(len(items))]
    return tree_unflatten([argument_tree(item, path, guards) for item, path in zip(items, sources, strict=True)], spec)


def leaf_guard(leaf: Leaf) -> Guard:
    """The guard under which a leaf that is no input has the same value in another call.

    Plain data is compared by type and value, any other object by identity.
    """
    return Check(leaf.source, VALUE, leaf.value) if is_plain(leaf.value) else identity_check(leaf.source, leaf.value)


def _copy_of(context: Any, source: Source) -> Any:
    """A copy of what a class says about its structure, which the program may change later in place."""
    try:
        return copy.deepcopy(context)
    except Exception as error:
        raise UnsupportedError(
            f"{source.describe()} is a container whose structure, {type(context).__qualname__}, cannot be copied "
            f"to compare later calls with it: {error}",
            advice=("pass its tensors as arguments", "return plain data as the context when the class is flattened"),
        ) from error


def _one_level(value: Any) -> tuple[list[Any], Any]:
    """The items of a pytree without those of its items, and its structure."""
    return tree_flatten(value, is_leaf=lambda inner: inner is not value)  # type: ignore[no-any-return]


def _items(value: Any) -> list[Any]:
    return _one_level(value)[0]


def _context(value: Any) -> Any:
    return _one_level(value)[1].context


class Results:
    """The flat outputs of a trace for the nested result of a program, and Python that nests them again.

    Args:
        proxy: returns the current value of a tensor.

    Attributes:
        outputs: the outputs, without repetitions.
    """

    def __init__(self, proxy: Callable[[torch.Tensor], Proxy]) -> None:
        self.outputs: list[Proxy] = []
        self._proxy = proxy
        self._places: dict[int, int] = {}
        self._namespace: dict[str, Any] = {}

    def reconstruction(self, result: Any) -> Reconstruction:
        """How a run creates ``result`` from its outputs: new containers, and the recorded objects at other leaves."""
        expression = self._expression(result)
        return Reconstruction((), expression, self._namespace)

    def _expression(self, value: Any) -> str:
        kind = type(value)
        if isinstance(value, torch.Tensor):
            return self._output(value)
        if kind is tuple:
            return f"({''.join([f'{self._expression(item)}, ' for item in value])})"
        if kind is list:
            return f"[{', '.join(map(self._expression, value))}]"
        if kind is dict:
            return "{" + ", ".join([f"{self._constant(k)}: {self._expression(v)}" for k, v in value.items()]) + "}"
        items, spec = _one_level(value)
        if len(items) == 1 and items[0] is value:
            return self._constant(value)
        inner = ", ".join(map(self._expression, items))
        return f"{self._named(tree_unflatten, 'unflatten')}([{inner}], {self._named(spec, 'structure')})"

    def _output(self, tensor: torch.Tensor) -> str:
        place = self._places.get(id(tensor))
        if place is None:
            place = self._places[id(tensor)] = len(self.outputs)
            self.outputs.append(self._proxy(tensor))
        return f"o{place}"

    def _constant(self, value: Any) -> str:
        return (literal(value) if is_plain(value) else None) or self._named(value, "constant")

    def _named(self, value: Any, stem: str) -> str:
        known = next((name for name, other in self._namespace.items() if other is value), None)
        if known is None:
            known = f"{stem}_{len(self._namespace)}"
            self._namespace[known] = value
        return known
