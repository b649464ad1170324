"""Documents laid over each other: a later one overrides what is below it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from thunder_core.config.document import Document
from thunder_core.config.entry import Entry
from thunder_core.config.model import ThunderConfig, parse
from thunder_core.config.problems import Trail

Origins = dict[Trail, tuple[Document, Trail]]
"""For places in something: the document that says so, and the place there."""

_Items = list[tuple[Any, Origins]]
"""Items of a list, and where each of them and its options come from."""


def merge(documents: Iterable[Document]) -> tuple[ThunderConfig, Origins]:
    """Lay the documents over each other, the first below.

    An option of a later one takes the place of those below, the list of executors as well. Transforms are merged by
    name, with the plugin's or without: a later document changes single options of those that are there, and adds
    others. Requirements add up.

    Returns:
        What all documents say together, without what they extend: that is one of them. And the origins of its options,
        of the items of its lists, and of the options of these.
    """
    values: dict[str, Any] = {}
    origins: Origins = {}
    lists: dict[str, _Items] = {"requires": [], "executors": [], "transforms": []}
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
    """Add the values that a document gives for a list to those of the ones below, or put them in their place."""
    if name == "executors":
        items.clear()
    here: set[int] = set()
    for position, value in enumerate(values):
        start = document.trail(name, position)
        origins: Origins = {(): (document, start)}
        index = _index(value, items, here)
        here.add(index)
        if isinstance(value, Entry):
            for option in value.options:
                origins[value.name, option] = (document, (*start, value.name, option))
            if index < len(items) and _changes(value, items[index][0]):
                entry, places = items[index]
                inherited = {(value.name, *trail[1:]): origin for trail, origin in places.items() if trail}
                value, origins = _changed(entry, value), {**inherited, **origins}
        items[index : index + 1] = [(value, origins)]


def _index(value: Any, items: _Items, here: set[int]) -> int:
    """Where a value belongs: where it is already, or else where its transform has another name; else at the end.

    Args:
        here: indices of what the same document gives: there the same transform is a mistake, and stays one.
    """
    names = [_name(below) for below, _ in items]
    if _name(value) in names:
        return names.index(_name(value))
    for index, (below, _) in enumerate(items):
        if index not in here and isinstance(value, Entry) and below.item == value.item:
            return index
    return len(items)


def _name(value: Any) -> Any:
    return value.name if isinstance(value, Entry) else value


def _changes(entry: Entry, below: Entry) -> bool:
    """Whether an entry changes options of the one below, rather than taking its place: both name the same transform."""
    same = entry.name == below.name or entry.item in (entry.name, below.name)
    return same and entry.given is None and below.given is None


def _changed(below: Entry, entry: Entry) -> Entry:
    """The entry with the options of the one below that it does not change.

    ``optional`` is none of them: it says whether the name of that entry must be there.
    """
    options = {name: value for name, value in below.options.items() if name != "optional"}
    return entry.with_options({**options, **entry.options})
