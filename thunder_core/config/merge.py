"""Layers laid over each other: a later one overrides what is below it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from thunder_core.config.document import Document
from thunder_core.config.entry import Entry
from thunder_core.config.layers import Layer
from thunder_core.config.model import ThunderConfig, parse
from thunder_core.config.problems import Problem, Trail

Origins = dict[Trail, tuple[Document, Trail]]
"""For places in something: the document that says so, and the place there."""


@dataclass(frozen=True)
class Merged:
    """What all layers say together.

    Attributes:
        config: without what it extends: that is in it.
        origins: of its options, of the items of its lists, and of the options of these.
        problems: of all layers.
    """

    config: ThunderConfig
    origins: Mapping[Trail, tuple[Document, Trail]]
    problems: tuple[Problem, ...]

    def problem(self, trail: Trail, text: str, advice: tuple[str, ...] = ()) -> Problem:
        """A problem at a place of the configuration, told as one of the document that the place comes from."""
        start = trail
        while start and start not in self.origins:
            start = start[:-1]
        document, origin = self.origins.get(start, (Document({}), ()))
        return document.problem((*origin, *trail[len(start) :]), text, advice)


def merge(layers: Iterable[Layer]) -> Merged:
    """Lay the layers over each other, the first below.

    An option of a later layer takes the place of those below, the list of executors as well. Transforms are merged by
    name: a later layer changes single options of those that are there, and adds others. Requirements add up.
    """
    values: dict[str, Any] = {}
    origins: Origins = {}
    lists: dict[str, dict[str, tuple[Any, Origins]]] = {"requires": {}, "executors": {}, "transforms": {}}
    problems: list[Problem] = []
    for layer in layers:
        problems += layer.problems
        for name in ThunderConfig.model_fields:
            if name == "extends" or name not in layer.config.model_fields_set:
                continue
            value = getattr(layer.config, name)
            if value is None:
                continue
            values[name] = value
            origins[name,] = (layer.document, layer.trail(name))
            if name in lists:
                _add(lists[name], name, value, layer)
    for name in lists.keys() & values.keys():
        found = list(lists[name].values())
        values[name] = tuple([value for value, _ in found])
        for index, (_, inner) in enumerate(found):
            origins.update({(name, index, *trail): origin for trail, origin in inner.items()})
    return Merged(parse(values), origins, tuple(problems))


def _add(items: dict[str, tuple[Any, Origins]], name: str, values: tuple[Any, ...], layer: Layer) -> None:
    """Add the values that a layer gives for a list to those of the layers below, or put them in their place."""
    if name == "executors":
        items.clear()
    for position, value in enumerate(values):
        start = layer.trail(name, position)
        origins: Origins = {(): (layer.document, start)}
        if not isinstance(value, Entry):
            items[value] = (value, origins)
            continue
        for option in value.options:
            origins[value.name, option] = (layer.document, (*start, value.name, option))
        below = items.get(value.name)
        if below is not None and below[0].given is None and value.given is None:
            value, origins = _changed(below[0], value), {**below[1], **origins}
        items[value.name] = (value, origins)


def _changed(below: Entry, entry: Entry) -> Entry:
    """The entry with the options of the one below that it does not change."""
    return entry.with_options({**below.options, **entry.options})
