"""What a program wrote to the Python objects that it was given, and how to take it back."""

from __future__ import annotations

import collections
import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from thunder_core.guards.frame_reads import MISSING
from thunder_core.guards.heap import Heap
from thunder_core.guards.node import MODULE_DICTIONARIES, Node, NodeKind, entries, own_attributes
from thunder_core.guards.source import GlobalSource, Names, Source, is_argument
from thunder_core.guards.steps import (
    AttributeSource,
    BufferSource,
    ClosureSource,
    InstanceAttributeSource,
    ItemSource,
    ParameterSource,
    SubmoduleSource,
)

_BARE_CONTAINERS = frozenset({list, dict, tuple, set, frozenset, collections.deque, collections.OrderedDict})
_CONTAINERS = (NodeKind.DICTIONARY, NodeKind.SEQUENCE, NodeKind.SET)
_STEPS = (ParameterSource, BufferSource, SubmoduleSource)


class WriteKind(enum.Enum):
    """What is done to the target."""

    SET = "assign to the path"
    DELETE = "delete the path"
    EXTEND = "append the items of the value to the list"
    REPLACE = "give the container the content of the value"


@dataclass(frozen=True)
class Write:
    """One change.

    Attributes:
        target: the path that is assigned or deleted, or the container that is changed.
        kind: what is done.
        value: the new value; for EXTEND the new items, for REPLACE the whole content. May contain traced tensors.
        leak: the target is reached from a global or a closure variable and is no part of a module.
    """

    target: Source
    kind: WriteKind
    value: Any = field(default=None, repr=False)
    leak: bool = False

    @property
    def place(self) -> Source | None:
        """The path to the object that is changed, as it is before any write; None where that is no object of a path."""
        return self.target.parent if self.kind in (WriteKind.SET, WriteKind.DELETE) else self.target

    def statements(self, value: str, names: Names) -> list[str]:
        """Python that does it; ``value`` is an expression of the (rebuilt) value.

        Where there are several writes, ``names`` must have a variable for the `place` of each: what one changes may be
        reached by the path of another, which means the object that was there before the program ran.
        """
        if self.kind is WriteKind.SET:
            return [self.target.assignment(names, value)]
        if self.kind is WriteKind.DELETE:
            return [self.target.deletion(names)]
        path = self.target.expression(names)
        if self.kind is WriteKind.EXTEND:
            return [f"{path}.extend({value})"]
        return [f"{names.constant(replace_content, 'replace_content')}({path}, {value})"]


def replace_content(container: Any, content: Any) -> None:
    """Make ``container`` hold ``content``, by the methods of the builtin class under it."""
    if isinstance(container, list):
        list.__setitem__(container, slice(None), content)
    elif isinstance(container, collections.OrderedDict):
        collections.OrderedDict.clear(container)
        for key, item in content.items():
            collections.OrderedDict.__setitem__(container, key, item)
    elif isinstance(container, dict):
        dict.clear(container)
        dict.update(container, content)
    elif isinstance(container, set):
        set.clear(container)
        set.update(container, content)
    else:
        container.clear()
        container.extend(content)


def find_writes(heap: Heap) -> tuple[Write, ...]:
    """Compare every met object with what it held when it was first met."""
    writes: list[Write] = []
    for node in tuple(heap.nodes.values()):
        leak = _is_outside(heap, node)
        for target, kind, value in _changes(node):
            writes.append(Write(target, kind, value, leak))
            heap.wrote_arguments |= is_argument(target)
        if node.kind is NodeKind.CLASS:
            writes.extend(_class_writes(node, heap.stored_attributes))
    for variable, before in heap.stored_globals.values():
        now = variable.namespace.get(variable.name, MISSING)
        if now is not before and not (now is MISSING and before is MISSING):
            kind = WriteKind.DELETE if now is MISSING else WriteKind.SET
            writes.append(Write(variable, kind, None if now is MISSING else now, leak=True))
    for closure, cell, before in heap.stored_cells.values():
        if cell.cell_contents is not before:
            writes.append(Write(closure, WriteKind.SET, cell.cell_contents, leak=True))
    return tuple(writes)


def contains_tensor(value: Any, depth: int = 4) -> bool:
    """True when a tensor is found in the value's containers and attributes, to a depth."""
    if isinstance(value, torch.Tensor):
        return True
    if depth == 0 or isinstance(value, torch.nn.Module):
        return False
    if isinstance(value, dict):
        return any(contains_tensor(item, depth - 1) for item in value.values())
    if isinstance(value, list | tuple | set | frozenset | collections.deque):
        return any(contains_tensor(item, depth - 1) for item in value)
    own = getattr(value, "__dict__", None)
    return isinstance(own, dict) and any(contains_tensor(item, depth - 1) for item in own.values())


def _is_outside(heap: Heap, node: Node) -> bool:
    """Reached from a global or closure variable, with no module on the way."""
    source: Source | None = node.source
    while source is not None:
        if isinstance(source, GlobalSource | ClosureSource):
            return not _passes_module(heap, node.source)
        source = source.parent
    return False


def _passes_module(heap: Heap, source: Source) -> bool:
    """True when the path goes through a module."""
    modules = {id(node.source) for node in heap.nodes.values() if node.kind is NodeKind.MODULE}
    step: Source | None = source
    while step is not None:
        if id(step) in modules:
            return True
        step = step.parent
    return False


def _changes(node: Node) -> Iterator[tuple[Source, WriteKind, Any]]:
    value, kind = node.object, node.kind
    if kind is NodeKind.MODULE:
        own = value.__dict__
        yield from _changed_entries(
            node.attributes, own, lambda name: InstanceAttributeSource(node.source, name), MODULE_DICTIONARIES
        )
        for before, name, step in zip(node.content, MODULE_DICTIONARIES, _STEPS, strict=True):
            yield from _changed_entries(before, own.get(name, {}), lambda key, step=step: step(node.source, key))
        return
    if keeps_attributes(node):
        now = own_attributes(value)
        yield from _changed_entries(node.attributes, now, lambda name: AttributeSource(node.source, name))
    if kind is NodeKind.DICTIONARY:
        yield from _changed_dictionary(node)
    elif kind is NodeKind.SEQUENCE and not isinstance(value, tuple):
        yield from _changed_sequence(node)
    elif kind is NodeKind.SET and not isinstance(value, frozenset) and set(node.content) != value:
        yield node.source, WriteKind.REPLACE, set(value)


def _changed_sequence(node: Node) -> Iterator[tuple[Source, WriteKind, Any]]:
    before, now = node.content, tuple(node.object)
    if same_items(before, now):
        return
    if isinstance(node.object, list) and len(now) > len(before) and same_items(before, now[: len(before)]):
        yield node.source, WriteKind.EXTEND, list(now[len(before) :])
    else:
        yield node.source, WriteKind.REPLACE, list(now)


def _class_writes(node: Node, names: Iterable[str]) -> Iterator[Write]:
    now = node.object.__dict__
    for name in names:
        before, after = node.attributes.get(name, MISSING), now.get(name, MISSING)
        if before is not after:
            kind = WriteKind.DELETE if after is MISSING else WriteKind.SET
            yield Write(AttributeSource(node.source, name), kind, None if after is MISSING else after, leak=True)


def keeps_attributes(node: Node) -> bool:
    """True for objects with attributes of their own, classes derived from containers included."""
    if node.kind in _CONTAINERS:
        return type(node.object) not in _BARE_CONTAINERS
    return node.kind is NodeKind.OBJECT or node.kind is NodeKind.FUNCTION


def _changed_dictionary(node: Node) -> Iterator[tuple[Source, WriteKind, Any]]:
    before, now = node.content, dict(entries(node.object))
    kept = [key for key in before if key in now]
    if list(now)[: len(kept)] != kept:
        yield node.source, WriteKind.REPLACE, now
    else:
        yield from _changed_entries(before, now, lambda key: ItemSource(node.source, key))


def _changed_entries(
    before: dict[Any, Any], now: dict[Any, Any], path: Any, skipped: tuple[str, ...] = ()
) -> Iterator[tuple[Source, WriteKind, Any]]:
    for key, value in now.items():
        if before.get(key, MISSING) is not value and key not in skipped:
            yield path(key), WriteKind.SET, value
    for key in before:
        if key not in now:
            yield path(key), WriteKind.DELETE, None


def same_items(left: Any, right: Any) -> bool:
    """True when two sequences hold the very same objects."""
    return len(left) == len(right) and all(one is other for one, other in zip(left, right, strict=True))
