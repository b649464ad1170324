"""Take back what a program wrote to the Python objects that were met."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from thunder_core.guards.dynamic_reads import MISSING
from thunder_core.guards.heap import Heap
from thunder_core.guards.node import MODULE_DICTIONARIES, Node, NodeKind, own_attributes, slot_names
from thunder_core.guards.stored_content import entries, replace_content, stored_items
from thunder_core.guards.writes import keeps_attributes, same_items


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
            if name in own:
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
    own = getattr(value, "__dict__", None)
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
