"""What a program wrote to the Python objects that it was given, and how to take it back."""

from __future__ import annotations

import collections
import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from thunder_core.guards.heap import Heap
from thunder_core.guards.node import (
    MISSING,
    MODULE_DICTIONARIES,
    Node,
    NodeKind,
    namespace_of,
    own_attributes,
    slot_names,
)
from thunder_core.guards.plain import is_plain
from thunder_core.guards.source import ConstantSource, Names, Source, is_argument
from thunder_core.guards.steps import (
    AttributeSource,
    BufferSource,
    ContextSource,
    InstanceAttributeSource,
    ParameterSource,
    SubmoduleSource,
    item_source,
)
from thunder_core.guards.stored_content import entries, is_overridden, replace_content, stored_items

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
    """

    target: Source
    kind: WriteKind
    value: Any = field(default=None, repr=False)

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


def find_writes(heap: Heap) -> tuple[Write, ...]:
    """Compare every met object with what it held when it was first met."""
    writes: list[Write] = []
    for node in heap.distinct_nodes():
        for target, kind, value in _changes(heap, node):
            writes.append(Write(target, kind, value))
            heap.distinct.wrote_arguments |= is_argument(target)
        if node.kind is NodeKind.CLASS:
            writes.extend(_class_writes(node, heap.stored_attributes))
    for path, before in heap.stored_globals.values():
        now = path.namespace.get(path.name, MISSING)
        if now is not before and not (now is MISSING and before is MISSING):
            kind = WriteKind.DELETE if now is MISSING else WriteKind.SET
            writes.append(Write(path, kind, None if now is MISSING else now))
    for closure, cell, before in heap.stored_cells.values():
        if cell.cell_contents is not before:
            writes.append(Write(closure, WriteKind.SET, cell.cell_contents))
    for variable, value in heap.context.items():
        known = (heap.context_before.get(variable, MISSING), heap.context_of_others.get(variable, MISSING))
        if not any(value is other for other in known):
            writes.append(Write(ContextSource(ConstantSource(variable, variable.name)), WriteKind.SET, value))
    for name, after in heap.environment.changes():
        writes.append(Write(name, WriteKind.DELETE if after is None else WriteKind.SET, after))
    return tuple(writes)


def _changes(heap: Heap, node: Node) -> Iterator[tuple[Source, WriteKind, Any]]:
    value, kind = node.object, node.kind
    if kind is NodeKind.MODULE:
        own = value.__dict__
        slots = slot_names(type(value))

        def path(name: str) -> Source:
            step = AttributeSource if name in slots else InstanceAttributeSource
            return step(node.source, name)

        yield from _changed_entries(node.attributes, own_attributes(value), path, MODULE_DICTIONARIES)
        for before, name, step in zip(node.content, MODULE_DICTIONARIES, _STEPS, strict=True):
            now = own.get(name, {})
            if not isinstance(now, dict):  # of a module in TorchScript, whose attributes C++ holds
                continue
            moved = _moved_keys(before, now)
            for key in moved:
                yield step(node.source, key), WriteKind.DELETE, None
            still = {key: value for key, value in before.items() if key not in moved}
            yield from _changed_entries(still, now, lambda key, step=step: step(node.source, key))
        return
    if keeps_attributes(node):
        now = own_attributes(value)
        yield from _changed_entries(node.attributes, now, lambda name: AttributeSource(node.source, name))
    if kind is NodeKind.DICTIONARY:
        yield from _changed_dictionary(heap, node)
    elif kind is NodeKind.SEQUENCE and not isinstance(value, tuple):
        yield from _changed_sequence(heap, node)
    elif kind is NodeKind.SET and not isinstance(value, frozenset) and set(node.content) != value:
        yield node.source, WriteKind.REPLACE, set(value)


def _changed_sequence(heap: Heap, node: Node) -> Iterator[tuple[Source, WriteKind, Any]]:
    before, now = node.content, stored_items(node.object)
    if same_items(before, now):
        return
    if (
        isinstance(node.object, list)
        and not is_overridden(node.object)
        and len(now) > len(before)
        and same_items(before, now[: len(before)])
    ):
        yield node.source, WriteKind.EXTEND, list(now[len(before) :])
    else:
        heap.objects.guard_container(node)  # the new content has parts of the old one
        yield node.source, WriteKind.REPLACE, list(now)


def _class_writes(node: Node, names: Iterable[str]) -> Iterator[Write]:
    now = node.object.__dict__
    for name in names:
        before, after = node.attributes.get(name, MISSING), now.get(name, MISSING)
        if before is not after:
            kind = WriteKind.DELETE if after is MISSING else WriteKind.SET
            yield Write(AttributeSource(node.source, name), kind, None if after is MISSING else after)


def keeps_attributes(node: Node) -> bool:
    """True for objects with attributes of their own, classes derived from containers included."""
    if node.kind in _CONTAINERS:
        return type(node.object) not in _BARE_CONTAINERS
    return node.kind is NodeKind.OBJECT or node.kind is NodeKind.FUNCTION


def _changed_dictionary(heap: Heap, node: Node) -> Iterator[tuple[Source, WriteKind, Any]]:
    before, now = node.content, dict(entries(node.object))
    named = all(is_plain(key) for key in now if key not in before)  # other keys are rebuilt in each run, as values are
    if not named or _moved_keys(before, now):
        heap.objects.read_dictionary(node)  # the new content has parts of the old one
        yield node.source, WriteKind.REPLACE, now
    else:
        yield from _changed_entries(before, now, lambda key: item_source(node.object, node.source, key))


def _changed_entries(
    before: dict[Any, Any], now: dict[Any, Any], path: Any, skipped: tuple[str, ...] = ()
) -> Iterator[tuple[Source, WriteKind, Any]]:
    for key, value in now.items():
        if before.get(key, MISSING) is not value and key not in skipped:
            yield path(key), WriteKind.SET, value
    for key in before:
        if key not in now:
            yield path(key), WriteKind.DELETE, None


def _moved_keys(before: dict[Any, Any], now: dict[Any, Any]) -> list[Any]:
    """Keys that have to be deleted and assigned again for those of ``before`` to be in the order of ``now``."""
    kept, found = [key for key in before if key in now], list(now)
    # membership compares as dictionaries do: tensors, which may be keys, by identity
    first = next((index for index, key in enumerate(kept) if found[index] not in {key}), len(kept))
    return kept[first:]


def same_items(left: Any, right: Any) -> bool:
    """True when two sequences hold the very same objects."""
    return len(left) == len(right) and all(one is other for one, other in zip(left, right, strict=True))


# ---------------------------------------------------------------- taking writes back


def undo_writes(heap: Heap) -> None:
    """Give every met object back what it held when it was first met."""
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
        slots = slot_names(type(value))
        for name in slots:
            _restore_slot(value, name, node.attributes.get(name, MISSING))
        kept = {name: own[name] for name in MODULE_DICTIONARIES if name in own}
        held = {name: before for name, before in node.attributes.items() if name not in slots}
        _restore_dictionary(own, {**held, **kept}, ordered=False)
        return
    if keeps_attributes(node):
        _restore_attributes(node)
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


def _restore_attributes(node: Node) -> None:
    value = node.object
    own = namespace_of(value)
    for name, now in own_attributes(value).items():
        if name not in node.attributes:
            if own is not None and name in own:
                del own[name]
            else:
                object.__delattr__(value, name)
        elif node.attributes[name] is not now and (own is None or name not in own):
            object.__setattr__(value, name, node.attributes[name])
    if own is not None:
        for name, before in node.attributes.items():
            if own.get(name, MISSING) is not before and (name in own or not hasattr(type(value), name)):
                own[name] = before


def _same_entries(now: dict[Any, Any], before: dict[Any, Any]) -> bool:
    items = list(entries(now))
    return [key for key, _ in items] == list(before) and all(item is before[key] for key, item in items)


def _restore_dictionary(now: dict[Any, Any], before: dict[Any, Any], *, ordered: bool = True) -> None:
    """Entry by entry when possible: other threads may be reading."""
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
            delattr(node.object, name)
        elif before is not after:
            setattr(node.object, name, before)
