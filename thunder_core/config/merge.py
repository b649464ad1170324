"""Merge documents to one configuration, which knows the document of each value."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from thunder_core.config.document import Document
from thunder_core.config.entry import LISTS, Entry
from thunder_core.config.model import ThunderConfig, parse
from thunder_core.config.problems import Trail

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

    Returns:
        The configuration, without ``extends``, and the origins of its options, of the items of its lists, and of the
        options of these.
    """
    values: dict[str, Any] = {}
    origins: Origins = {}
    lists: dict[str, _Items] = {name: [] for name in ("requires", *LISTS)}
    for document in documents:
        for name in ThunderConfig.model_fields:
            if name == "extends" or name not in document.config.model_fields_set:
                continue
            value = getattr(document.config, name)
            if value is None:
                continue
            values[name] = value
            origins[name,] = (document, document.trail(name))
            if name in lists:
                _add(lists[name], name, value, document)
    for name in lists.keys() & values.keys():
        values[name] = tuple([value for value, _ in lists[name]])
        for index, (_, inner) in enumerate(lists[name]):
            origins.update({(name, index, *trail): origin for trail, origin in inner.items()})
    return parse(values), origins


def _add(items: _Items, name: str, values: tuple[Any, ...], document: Document) -> None:
    """Add the values of a list in a document to the items of earlier documents, or replace these."""
    if name in LISTS and LISTS[name].replaces:
        items.clear()
    own: set[int] = set()
    for position, value in enumerate(values):
        start = document.trail(name, position)
        origins: Origins = {(): (document, start)}
        index = _index(value, items, own)
        own.add(index)
        if isinstance(value, Entry):
            for option in value.options:
                origins[value.name, option] = (document, (*start, value.name, option))
            if index < len(items) and _changes(value, items[index][0]):
                entry, places = items[index]
                inherited = {(value.name, *trail[1:]): origin for trail, origin in places.items() if trail}
                value, origins = _changed(entry, value), {**inherited, **origins}
        items[index : index + 1] = [(value, origins)]


def _index(value: Any, items: _Items, own: set[int]) -> int:
    """The position of a value: that of the item with its name, or of the same transform by another name; else the end.

    Args:
        own: positions of items of the same document, in which a transform with two names is a mistake.
    """
    names = [_name(below) for below, _ in items]
    if _name(value) in names:
        return names.index(_name(value))
    for index, (below, _) in enumerate(items):
        if index not in own and isinstance(value, Entry) and below.item == value.item:
            return index
    return len(items)


def _name(value: Any) -> Any:
    return value.name if isinstance(value, Entry) else value


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
