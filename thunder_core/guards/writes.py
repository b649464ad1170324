"""The writes of a program to Python objects: finding them, generating code that repeats them, and undoing them."""

from __future__ import annotations

import collections
import enum
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from thunder_core.guards.heap import Heap
from thunder_core.guards.node import (
    CONTAINERS,
    MISSING,
    MODULE_DICTIONARIES,
    Node,
    NodeKind,
    content_of,
    namespace_of,
    own_attributes,
    slot_names,
)
from thunder_core.guards.plain import is_plain
from thunder_core.guards.source import (
    ConstantSource,
    ContextSource,
    DirectAttributeSource,
    Names,
    Source,
    StoredAttributeSource,
    is_argument,
    item_source,
)
from thunder_core.guards.stored_content import entries, is_overridden, replace_content, same_items, stored_items

_BARE_CONTAINERS = frozenset({list, dict, tuple, set, frozenset, collections.deque, collections.OrderedDict})


class WriteKind(enum.Enum):
    """The operation of a write."""

    SET = "assign to the path"
    DELETE = "delete the path"
    EXTEND = "append the items of the value to the list"
    REPLACE = "give the container the content of the value"


@dataclass(frozen=True)
class Write:
    """One write.

    Attributes:
        target: the path that is assigned or deleted, or that of the container whose content changes.
        kind: the operation.
        value: the new value; for EXTEND the new items, for REPLACE the new content. May contain traced tensors.
    """

    target: Source
    kind: WriteKind
    value: Any = field(default=None, repr=False)

    @property
    def place(self) -> Source | None:
        """The path to the changed object before all writes; None if the target is a root."""
        return self.target.parent if self.kind in (WriteKind.SET, WriteKind.DELETE) else self.target

    def statements(self, value: str, names: Names) -> list[str]:
        """Python statements for the write, where ``value`` is Python for the value.

        If there are several writes, ``names`` must have a variable for the `place` of each, assigned before the first
        write, since a write may change the path of another.
        """
        if self.kind is WriteKind.SET:
            return [self.target.assignment(names, value)]
        if self.kind is WriteKind.DELETE:
            return [self.target.deletion(names)]
        path = self.target.expression(names)
        if self.kind is WriteKind.EXTEND:
            return [f"{path}.extend({value})"]
        return [f"{names.constant(replace_content, 'replace_content')}({path}, {value})"]


def find_writes(heap: Heap) -> tuple[Write, ...]:
    """The differences between the recorded and the current contents of all nodes and other state."""
    writes: list[Write] = []
    for node in heap.distinct_nodes():
        changes = list(_changes(heap, node))
        writes.extend(changes)
        heap.distinct.wrote_arguments |= any(is_argument(write.target) for write in changes)
    for path, before in heap.stored_globals.values():
        writes.extend(_change(path, before, path.namespace.get(path.name, MISSING)))
    for closure, cell, before in heap.stored_cells.values():
        writes.extend(_change(closure, before, content_of(cell)))
    for variable, value in heap.context.items():
        known = (heap.context_before.get(variable, MISSING), heap.context_of_others.get(variable, MISSING))
        if not any(value is other for other in known):
            writes.append(Write(ContextSource(ConstantSource(variable, variable.name)), WriteKind.SET, value))
    for name, after in heap.environment.changes():
        writes.append(Write(name, WriteKind.DELETE if after is None else WriteKind.SET, after))
    return tuple(writes)


def same_writes(writes: Sequence[Write], others: Sequence[Write]) -> bool:
    """Whether writes are the same: their values are the same objects, equal plain values, or have the same items."""
    targets, others_targets = ([(write.kind, write.target.describe()) for write in some] for some in (writes, others))
    return targets == others_targets and all(
        _is_same(one.value, other.value) for one, other in zip(writes, others, strict=True)
    )


def _is_same(value: Any, other: Any) -> bool:
    if value is other:
        return True
    if type(value) is not type(other):
        return False
    if isinstance(value, list | tuple):
        return same_items(value, other)
    if isinstance(value, dict):
        return same_items(tuple(value), tuple(other)) and same_items(tuple(value.values()), tuple(other.values()))
    if isinstance(value, set):
        return set(map(id, value)) == set(map(id, other))
    return is_plain(value) and bool(value == other)


def _change(target: Source, before: Any, now: Any) -> Iterator[Write]:
    if now is MISSING and before is not MISSING:
        yield Write(target, WriteKind.DELETE)
    elif now is not before:
        yield Write(target, WriteKind.SET, now)


def _changes(heap: Heap, node: Node) -> Iterator[Write]:
    value, kind = node.object, node.kind
    if kind is NodeKind.MODULE:
        own = value.__dict__
        yield from _changed_attributes(node)
        for before, dictionary in zip(node.content, MODULE_DICTIONARIES, strict=True):
            now = own.get(dictionary, {})
            if not isinstance(now, dict):  # a module of TorchScript, whose attributes are in C++
                continue

            def entry(name: str, dictionary: str = dictionary) -> Source:
                return StoredAttributeSource(node.source, name, dictionary)

            moved = _moved_keys(before, now)
            for key in moved:
                yield Write(entry(key), WriteKind.DELETE)
            still = {key: value for key, value in before.items() if key not in moved}
            yield from _changed_entries(still, now, entry)
        return
    if has_attributes(node):
        yield from _changed_attributes(node)
    if kind is NodeKind.DICTIONARY:
        yield from _changed_dictionary(heap, node)
    elif kind is NodeKind.SEQUENCE and not isinstance(value, tuple):
        yield from _changed_sequence(heap, node)
    elif kind is NodeKind.CLASS:
        for name in heap.stored_attributes:
            target, held = DirectAttributeSource(node.source, name, "type"), value.__dict__
            yield from _change(target, node.attributes.get(name, MISSING), held.get(name, MISSING))
    elif kind is NodeKind.SET and not isinstance(value, frozenset) and set(node.content) != value:
        yield Write(node.source, WriteKind.REPLACE, set(value))


def _changed_attributes(node: Node) -> Iterator[Write]:
    """The changes of slots and ``__dict__``, which are repeated without ``__setattr__`` of the class and properties."""
    slots = slot_names(type(node.object))

    def path(name: str) -> Source:
        step = DirectAttributeSource if name in slots else StoredAttributeSource
        return step(node.source, name)

    yield from _changed_entries(node.attributes, own_attributes(node.object), path, MODULE_DICTIONARIES)


def _changed_sequence(heap: Heap, node: Node) -> Iterator[Write]:
    before, now = node.content, stored_items(node.object)
    if same_items(before, now):
        return
    if (
        isinstance(node.object, list)
        and not is_overridden(node.object)
        and len(now) > len(before)
        and same_items(before, now[: len(before)])
    ):
        yield Write(node.source, WriteKind.EXTEND, list(now[len(before) :]))
    else:
        heap.objects.guard_container(node)  # the new content contains items of the old one
        yield Write(node.source, WriteKind.REPLACE, list(now))


def has_attributes(node: Node) -> bool:
    """Whether the object of a node has instance attributes, as do instances of subclasses of containers."""
    if node.kind in CONTAINERS:
        return type(node.object) not in _BARE_CONTAINERS
    return node.kind is NodeKind.OBJECT or node.kind is NodeKind.FUNCTION


def _changed_dictionary(heap: Heap, node: Node) -> Iterator[Write]:
    before, now = node.content, dict(entries(node.object))
    # keys that are not plain are reconstructed in each run, like values
    if not all(is_plain(key) for key in now if key not in before) or _moved_keys(before, now):
        heap.objects.read_dictionary(node)  # the new content contains items of the old one
        yield Write(node.source, WriteKind.REPLACE, now)
    else:
        yield from _changed_entries(before, now, lambda key: item_source(node.object, node.source, key))


def _changed_entries(
    before: dict[Any, Any], now: dict[Any, Any], path: Any, skipped: tuple[str, ...] = ()
) -> Iterator[Write]:
    for key, value in now.items():
        if before.get(key, MISSING) is not value and key not in skipped:
            yield Write(path(key), WriteKind.SET, value)
    for key in before:
        if key not in now:
            yield Write(path(key), WriteKind.DELETE)


def _moved_keys(before: dict[Any, Any], now: dict[Any, Any]) -> list[Any]:
    """The keys of ``before`` that must be deleted and assigned again to get the order of ``now``."""
    common, order = [key for key in before if key in now], list(now)
    # a set compares keys as a dictionary does: tensors by identity
    first = next((index for index, key in enumerate(common) if order[index] not in {key}), len(common))
    return common[first:]


# ---------------------------------------------------------------- undoing writes


def undo_writes(heap: Heap) -> None:
    """Restore the recorded contents of all nodes and other state."""
    for node in heap.distinct_nodes():
        _restore(node)
        if node.kind is NodeKind.CLASS:
            _restore_class(node, heap.stored_attributes)
    for variable, before in heap.stored_globals.values():
        if before is MISSING:
            variable.namespace.pop(variable.name, None)
        else:
            variable.namespace[variable.name] = before
    for _, cell, before in heap.stored_cells.values():
        cell.cell_contents = before
    heap.environment.undo()
    heap.context = heap.context_before


def _restore(node: Node) -> None:
    value, kind = node.object, node.kind
    if kind is NodeKind.MODULE:
        own = value.__dict__
        for before, name in zip(node.content, MODULE_DICTIONARIES, strict=True):
            if isinstance(own.get(name), dict):
                _restore_dictionary(own[name], before)
        _restore_attributes(node, {name: own[name] for name in MODULE_DICTIONARIES if name in own})
        return
    if has_attributes(node):
        _restore_attributes(node, {})
    if kind is NodeKind.DICTIONARY:
        if not _same_entries(value, node.content):
            replace_content(value, node.content)
    elif kind is NodeKind.SEQUENCE and not isinstance(value, tuple):
        if not same_items(node.content, stored_items(value)):
            replace_content(value, node.content)
    elif kind is NodeKind.SET and not isinstance(value, frozenset) and set(node.content) != value:
        replace_content(value, node.content)


def _restore_slot(value: Any, name: str, before: Any) -> None:
    now = getattr(value, name, MISSING)
    if now is before:
        return
    if before is MISSING:
        object.__delattr__(value, name)
    else:
        object.__setattr__(value, name, before)


def _restore_attributes(node: Node, others: dict[str, Any]) -> None:
    """Restore slots and ``__dict__``, in which ``others`` remain as they are."""
    slots = slot_names(type(node.object))
    for name in slots:
        _restore_slot(node.object, name, node.attributes.get(name, MISSING))
    own = namespace_of(node.object)
    if own is not None:
        stored = {name: before for name, before in node.attributes.items() if name not in slots}
        _restore_dictionary(own, {**stored, **others}, ordered=False)


def _same_entries(now: dict[Any, Any], before: dict[Any, Any]) -> bool:
    items = list(entries(now))
    return [key for key, _ in items] == list(before) and all(item is before[key] for key, item in items)


def _restore_dictionary(now: dict[Any, Any], before: dict[Any, Any], *, ordered: bool = True) -> None:
    """Restore single items if possible, since other threads may read the dictionary."""
    if ordered and list(now) != list(before):
        now.clear()
        now.update(before)
        return
    for key in [key for key in now if key not in before]:
        del now[key]
    for key, value in before.items():
        if now.get(key, MISSING) is not value:
            now[key] = value


def _restore_class(node: Node, names: Iterable[str]) -> None:
    now = node.object.__dict__
    for name in names:
        before, after = node.attributes.get(name, MISSING), now.get(name, MISSING)
        if before is MISSING and after is not MISSING:
            type.__delattr__(node.object, name)
        elif before is not after:
            type.__setattr__(node.object, name, before)
