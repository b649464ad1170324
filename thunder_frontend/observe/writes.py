"""The writes of a program to Python objects: finding them, generating code that repeats them, and undoing them."""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from thunder_core.checks.check import Check
from thunder_core.checks.conditions import EMPTY_SLOT, not_in_dict
from thunder_core.checks.own_lookups import has_own_lookup
from thunder_core.checks.plain import is_plain
from thunder_core.checks.source import (
    AttributeSource,
    ClosureSource,
    ConstantSource,
    ContextSource,
    Names,
    Source,
    is_argument,
)
from thunder_core.checks.stored_attributes import MISSING, namespace_of, slot_names
from thunder_core.checks.stored_content import is_overridden, replace_content, same_entries, same_items
from thunder_frontend.observe.code_names import CodeNames
from thunder_frontend.observe.contents import CONTAINERS, WHOLE, Change, NodeKind, Table, forget_cached_methods
from thunder_frontend.observe.heap import Heap
from thunder_frontend.observe.node import Node
from thunder_frontend.observe.outside_code import OutsideCode


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
    """The differences between the recorded and the current contents of all nodes and other state.

    What code may have assigned without a difference is guarded: for another value the assignment is a write.
    """
    writes: list[Write] = []
    for node in (*heap.distinct_nodes(), *heap.variables.values()):
        _guard_assigned(heap, node)
    for node in heap.distinct_nodes():
        changes = list(_writes(heap, node))
        writes.extend(changes)
        heap.distinct.wrote_arguments |= bool(changes) and is_argument(node.source)
    for variables in heap.variables.values():
        writes.extend(_writes(heap, variables))
    writes.extend(_of_context(heap))
    for name, after in heap.environment.changes():
        writes.append(Write(name, WriteKind.DELETE if after is None else WriteKind.SET, after))
    return tuple(writes)


def has_changes(heap: Heap) -> bool:
    """Whether `find_writes` would find any; adds no guards."""
    nodes = (*heap.distinct_nodes(), *heap.variables.values())
    changed = any(_changes(heap, table, node, recorded) for node in nodes for table, recorded in node.contents())
    return changed or any(heap.environment.changes()) or any(_of_context(heap))


def _of_context(heap: Heap) -> Iterator[Write]:
    """The writes of context variables."""
    for variable, value in heap.context.items():
        known = (heap.context_before.get(variable, MISSING), heap.context_of_others.get(variable, MISSING))
        if not any(value is other for other in known):
            yield Write(ContextSource(ConstantSource(variable, variable.name)), WriteKind.SET, value)


ANY_NAMES: Final = CodeNames((), (), shallow=False)
"""Names of code that may read whatever it is given, and what that holds."""


def change_read_by(heap: Heap, code: Collection[CodeNames]) -> Source | None:
    """The path of a change of an object or variable that code may read; None if there is none.

    As for guards, code may read the names in it from all objects that it reaches.

    Args:
        code: what `thunder_frontend.observe.observer.Observer.noting_code` gives.
    """
    keys = {names.key for names in code} | {names.of_lookup.key for names in code if names.of_lookup is not None}
    readers = {node: [names for names in node.followed.values() if names.key in keys] for node in heap.distinct_nodes()}
    reads_any = ANY_NAMES in code or any(own and has_own_lookup(type(node.object)) for node, own in readers.items())
    for node, own in readers.items():
        for table, recorded in node.contents() if own or reads_any else ():
            for change in _changes(heap, table, node, recorded):
                if table.has_items or reads_any or any(names.reads(change.key) for names in own):
                    return table.path(node.object, node.source, change.key)
    return _changed_variable(heap, lambda name: any(names.reads_variable(name) for names in code))


def _changed_variable(heap: Heap, is_read: Callable[[str], bool]) -> Source | None:
    """The path of a change of a variable whose name is read."""
    changes: list[tuple[Source, str]] = []
    for node in heap.variables.values():
        for path, change in node.changes():
            changes.append((path, path.name if isinstance(path, ClosureSource) else change.key))
    for variable, _ in heap.environment.changes():
        changes += [(variable, "environ"), (variable, "getenv")]
    changes += [(write.target, "get") for write in _of_context(heap)]
    return next((path for path, name in changes if is_read(name)), None)


def change_seen_by(heap: Heap, code: OutsideCode) -> Source | None:
    """The path of a change of an object or variable that code may read; None if there is none."""
    for node in heap.distinct_nodes():
        for table, recorded in node.contents() if code.reaches(node.object) else ():
            for change in _changes(heap, table, node, recorded):
                if table.has_items or code.reads(change.key):
                    return table.path(node.object, node.source, change.key)
    return _changed_variable(heap, code.reads_variable)


def read_changed_by(heap: Heap, code: OutsideCode) -> Source | None:
    """The path of an object or variable that the program has read and that code may change; None if there is none."""
    storing = [names for names in code.names if names.stores]
    if not storing:
        return None
    stores_items = any(names.stores_items for names in storing)
    stores_computed = any(names.stores_computed for names in storing)
    attributes = set[str]().union(*[names.stored_attributes for names in storing])
    for node in heap.distinct_nodes():
        if not code.reaches(node.object):
            continue
        if node.kind in CONTAINERS or node.kind is NodeKind.BUFFER:
            if stores_items and (node.reached or node.guarded_keys):
                return node.source
        elif stores_computed and node.guarded:
            return node.source
        for name in sorted(node.guarded & attributes):
            return AttributeSource(node.source, name)
    for namespace, name, path in heap.variables_read:
        if any(name in names.stored_globals for names in storing) and code.has_globals(namespace):
            return path
    cells = {id(cell) for cell in code.stored_cells()}
    for node in heap.distinct_nodes():
        for index, cell in enumerate(node.object.__closure__ or ()) if node.kind is NodeKind.FUNCTION else ():
            if id(cell) in cells:
                return ClosureSource(node.source, index, node.object.__code__.co_freevars[index])
    return None


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
        return same_entries(value, other)
    if isinstance(value, set):
        return set(map(id, value)) == set(map(id, other))
    return is_plain(value) and bool(value == other)


def _change(target: Source, before: Any, now: Any) -> Iterator[Write]:
    if now is MISSING and before is not MISSING:
        yield Write(target, WriteKind.DELETE)
    elif now is not before:
        yield Write(target, WriteKind.SET, now)


def _changes(heap: Heap, table: Table, node: Node, recorded: Any, *, back: bool = False) -> list[Change]:
    """The changes of a table of a node since the first visit, or those ``back`` to it."""
    names = heap.stored_attributes if table.by_name else None
    return list(table.changes(node.object, recorded, names, back=back))


def _writes(heap: Heap, node: Node) -> Iterator[Write]:
    for table, recorded in node.contents():
        changes = _changes(heap, table, node, recorded)
        # keys that are not plain are reconstructed in each run, like values
        if any(change.key is WHOLE or (change.before is MISSING and not is_plain(change.key)) for change in changes):
            yield _replacement(heap, node, table)
            continue
        for change in changes:
            target = table.path(node.object, node.source, change.key)
            if change.before is MISSING and recorded.get(change.key, MISSING) is change.now:
                _guard_moved(heap, node, table, change, target)
            yield from _change(target, change.before, change.now)


def _guard_moved(heap: Heap, node: Node, table: Table, change: Change, path: Source) -> None:
    """Guard an object whose position in a dictionary the program has changed, perhaps without reading it."""
    guarded = node.guarded_keys if table.has_items else node.guarded
    if change.key not in guarded:
        guarded.add(change.key)
        heap.visit(change.now, path, by_key=True)


def _guard_assigned(heap: Heap, node: Node) -> None:
    """Guard the attributes and variables that executed code may have assigned, and that are unchanged."""
    for table, recorded in node.contents():
        for name in sorted(_assigned_names(node, table, recorded) - node.guarded):
            before = recorded.get(name, MISSING)
            if table.get(node.object, name) is not before:
                continue
            node.guarded.add(name)
            if before is not MISSING:
                heap.visit(before, table.path(node.object, node.source, name), by_key=True)
            elif name in slot_names(type(node.object)):
                heap.guards.append(Check(node.source, EMPTY_SLOT, name))
            elif namespace_of(node.object) is not None:
                heap.guards.append(not_in_dict(node.source, name))


def _assigned_names(node: Node, table: Table, recorded: dict[str, Any]) -> set[str]:
    """The names in a table that code which has reached the object may assign, with missing ones that it may delete."""
    if table.partial:
        return set(recorded)
    if table.has_items:
        return set()
    reached = node.followed.values()
    names = {name for code in reached for name in code.stored_attributes if name in recorded}
    if table is node.kind.tables[0] and node.kind in (NodeKind.MODULE, NodeKind.OBJECT, NodeKind.OPAQUE):
        names |= {name for code in reached for name in code.deleted_attributes}
        if any(code.assigns_by_key for code in reached):
            names |= recorded.keys()
    return names


def _replacement(heap: Heap, node: Node, table: Table) -> Write:
    before, now = node.content, table.read(node.object)
    extends = isinstance(node.object, list) and not is_overridden(node.object) and len(now) > len(before)
    if extends and same_items(before, now[: len(before)]):
        return Write(node.source, WriteKind.EXTEND, list(now[len(before) :]))
    heap.objects.guard_content(node)  # the new content contains items of the old one
    return Write(node.source, WriteKind.REPLACE, table.content_class(now))


def undo_writes(heap: Heap) -> None:
    """Restore the recorded contents of all nodes and other state."""
    for node in (*heap.distinct_nodes(), *heap.variables.values()):
        for table, recorded in node.contents():
            for change in _changes(heap, table, node, recorded, back=True):
                table.put(node.object, change.key, change.now)
        forget_cached_methods(node.object)
    heap.environment.undo()
    heap.context = heap.context_before
