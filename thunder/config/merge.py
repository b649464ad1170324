"""Merge documents to one configuration, which knows the document of each value."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any, Final

from thunder.config.document import Document
from thunder.config.entry import EXTENDED, LISTS, Entry
from thunder.config.model import ThunderConfig, parse
from thunder.config.problems import Trail

Origins = dict[Trail, tuple[Document, Trail]]
"""For places in a configuration: the document of the value, and the place there."""
_Items = list[tuple[Any, Origins]]
"""Items of a list, with the origins of each item and of its options."""
_NOT_INHERITED: Final = ("optional", "when")
"""Options on whether an entry is used. They hold for the document that has the entry: a later one that names the part
wants it used."""


def merge(documents: Iterable[Document]) -> tuple[ThunderConfig, Origins]:
    """Merge documents, later ones over earlier ones.

    An option of a later document replaces that of an earlier one, and so do the lists ``executors`` and
    ``tensor_classes``. Transforms are merged by name, with or without the plugin's: a later document changes single
    options of transforms, and adds others. Requirements are added.

    In a list, ``...`` is the place of the items of the earlier documents that the list does not name. It remains in
    ``executors`` if no earlier document has this list: the device then decides.

    Returns:
        The configuration, without ``extends``, and the origins of its options, of the items of its lists, and of the
        options of these.
    """
    values: dict[str, Any] = {}
    origins: Origins = {}
    lists: dict[str, _Items] = {name: [] for name in ("requires", *LISTS)}
    lists["executors"].append((EXTENDED, {}))
    for document in documents:
        for name in ThunderConfig.model_fields:
            if name == "extends" or name not in document.config.model_fields_set:
                continue
            value = getattr(document.config, name)
            if value is None:
                continue
            values[name] = value
            origins[name,] = (document, document.trail(name))
            if name == "requires":
                _require(lists[name], value, document)
            elif name in lists:
                _add(lists[name], name, value, document)
    if [value for value, _ in lists["executors"]] == [EXTENDED]:
        values.pop("executors", None)
    for name in lists.keys() & values.keys():
        values[name] = tuple([value for value, _ in lists[name]])
        for index, (_, inner) in enumerate(lists[name]):
            origins.update({(name, index, *trail): origin for trail, origin in inner.items()})
    return parse(values), origins


def _require(items: _Items, values: tuple[str, ...], document: Document) -> None:
    """Add the requirements of a document to those of earlier documents."""
    for position, value in enumerate(values):
        index = next((index for index, (below, _) in enumerate(items) if below == value), len(items))
        items[index : index + 1] = [(value, {(): (document, document.trail("requires", position))})]


def _add(items: _Items, name: str, values: tuple[Entry, ...], document: Document) -> None:
    """Add the entries of a list in a document to the items of earlier documents, or replace these."""
    replaces, extends = LISTS[name].replaces, EXTENDED in values
    if replaces and not extends:
        items.clear()
    own: dict[int, tuple[Any, Origins]] = {}  # by position among the items; new ones follow them
    start = 0  # of the extended list, among these
    for position, value in enumerate(values):
        if value == EXTENDED:
            start = len(own)
            continue
        index = _index(value, items, own)
        below = None if index is None or replaces else items[index]
        own[len(items) + position if index is None else index] = _item(value, below, document, (name, position))
    if extends:
        others = [item for index, item in enumerate(items) if index not in own]
        named = list(own.values())
        items[:] = [*named[:start], *others, *named[start:]]
        return
    added = [item for index, item in own.items() if index >= len(items)]
    items[:] = [*[own.get(index, item) for index, item in enumerate(items)], *added]


def _item(
    value: Entry, below: tuple[Any, Origins] | None, document: Document, place: tuple[str, int]
) -> tuple[Entry, Origins]:
    """An entry with the options of the item that it changes, and the origins of the entry and of its options."""
    start = document.trail(*place)
    origins: Origins = {(): (document, start)}
    for option in value.options:
        origins[value.name, option] = (document, (*start, value.name, option))
    if below is None or not _changes(value, below[0]):
        return value, origins
    inherited = {(value.name, *trail[1:]): origin for trail, origin in below[1].items() if trail}
    return _changed(below[0], value), {**inherited, **origins}


def _index(value: Entry, items: _Items, own: Container[int]) -> int | None:
    """The position of the item with the name of an entry, or of the same transform by another name; None without one.

    Args:
        own: positions that other entries of the document have: a transform with two names there is a mistake.
    """
    others = [(index, below) for index, (below, _) in enumerate(items) if index not in own]
    same = [index for index, below in others if below.name == value.name]
    return next(iter(same or [index for index, below in others if below.item == value.item]), None)


def _changes(entry: Entry, below: Entry) -> bool:
    """Whether an entry changes the options of an earlier one instead of replacing it: both name the same transform."""
    same = entry.name == below.name or entry.item in (entry.name, below.name)
    return same and entry.given is None and below.given is None


def _changed(below: Entry, entry: Entry) -> Entry:
    """The entry with those options of the earlier one that it does not change.

    It does not inherit the options in `_NOT_INHERITED`.
    """
    options = {name: value for name, value in below.options.items() if name not in _NOT_INHERITED}
    return entry.with_options({**options, **entry.options})
