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
    lists: dict[str, dict[Any, tuple[Any, Origins]]] = {"requires": {}, "executors": {}, "transforms": {}}
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
        found = list(lists[name].values())
        values[name] = tuple([value for value, _ in found])
        for index, (_, inner) in enumerate(found):
            origins.update({(name, index, *trail): origin for trail, origin in inner.items()})
    return parse(values), origins


def _add(items: dict[Any, tuple[Any, Origins]], name: str, values: tuple[Any, ...], document: Document) -> None:
    """Add the values that a document gives for a list to those of the ones below, or put them in their place.

    Entries have the key ``item``, and if that is there twice in one document, the second has another.
    """
    if name == "executors":
        items.clear()
    here: set[str] = set()
    for position, value in enumerate(values):
        start = document.trail(name, position)
        origins: Origins = {(): (document, start)}
        if not isinstance(value, Entry):
            items[value] = (value, origins)
            continue
        for option in value.options:
            origins[value.name, option] = (document, (*start, value.name, option))
        key = value.item if value.item not in here else (value.name, position)
        here.add(value.item)
        below = items.get(key)
        if below is not None and _changes(value, below[0]):
            entry, places = below
            inherited = {(value.name, *trail[1:]): origin for trail, origin in places.items() if trail}
            value, origins = _changed(entry, value), {**inherited, **origins}
        items[key] = (value, origins)


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
