"""Layers: what each document says, and which documents a configuration consists of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

from pydantic import ValidationError

from thunder_core.config.document import Document
from thunder_core.config.model import ThunderConfig, advice_on, parse
from thunder_core.config.problems import Problem, Trail
from thunder_core.config.sentences import sentences
from thunder_core.config.sources import document_of
from thunder_core.errors import ConfigError

LISTS: Final = ("requires", "executors", "transforms")
"""The options whose items are judged one by one."""


@dataclass(frozen=True)
class Layer:
    """What one document says.

    Attributes:
        config: the part of it that is valid; the fields that were set are those that the document has.
        indices: of the items of each list, where they stand in the document.
        problems: what is wrong with the rest.
    """

    document: Document
    config: ThunderConfig
    indices: Mapping[str, tuple[int, ...]]
    problems: tuple[Problem, ...] = ()

    def trail(self, name: str, position: int | None = None) -> Trail:
        """Where an option, or the item at this position of its list, stands in the document."""
        return (name,) if position is None else (name, self.indices[name][position])


def layer_of(document: Document) -> Layer:
    """What the document says, without what is wrong with it."""
    values = dict(document.value)
    problems = list(document.problems)
    for name in [name for name, value in values.items() if value is None and name in ThunderConfig.model_fields]:
        del values[name]
        problems.append(document.problem((name,), "has no value; leave the line out for the default"))
    for name in [name for name in values if not isinstance(name, str)]:
        del values[name]
        problems.append(document.problem((), f"the name of an option must be text, not {name!r}"))
    kept = {name: tuple(range(len(values[name]))) for name in LISTS if isinstance(values.get(name), list | tuple)}
    try:
        config = parse(values)
    except ValidationError as error:
        found = list(sentences(error, ThunderConfig, values))
        problems += [document.problem(trail, text, advice_on(text)) for trail, text in found]
        wrong = {trail[: 2 if trail[0] in LISTS else 1] for trail, _ in found}
        values = {name: value for name, value in values.items() if (name,) not in wrong}
        for name in kept.keys() & values.keys():
            kept[name] = tuple(index for index in kept[name] if (name, index) not in wrong)
            values[name] = [values[name][index] for index in kept[name]]
        config = parse(values)
    return Layer(document, config, kept, tuple(problems))


def layer_of_config(config: ThunderConfig) -> Layer:
    """A configuration that was made in Python."""
    lists = {name: tuple(range(len(getattr(config, name) or ()))) for name in LISTS}
    return Layer(Document({}), config, lists)


def layers_of(config: Any) -> list[Layer]:
    """The layers that a configuration consists of, what it extends first.

    Raises:
        ConfigError: it is no configuration, or there is no such preset. Other problems are in the layers.
    """
    first = layer_of_config(config) if isinstance(config, ThunderConfig) else layer_of(document_of(config))
    layers = [first]
    while layers[0].config.extends is not None:
        layer = layers[0]
        base = _base(layer, [layer.document for layer in reversed(layers)])
        if isinstance(base, Problem):
            layers[0] = replace(layer, problems=(*layer.problems, base))
            break
        layers.insert(0, layer_of(base))
    return layers


def _base(layer: Layer, documents: list[Document]) -> Document | Problem:
    """What a layer extends."""
    document = layer.document
    try:
        base = document_of(layer.config.extends, document.folder)
    except ConfigError as error:
        return document.problem(("extends",), error.problem, error.advice)
    unread = [problem for problem in base.problems if problem.line is None]
    if unread:
        return document.problem(("extends",), f"{unread[0].file}: {unread[0].text}")
    known = [document.identity for document in documents]
    if base.identity in known:
        circle = [document.file or "" for document in documents[known.index(base.identity) :]]
        return document.problem(("extends",), f"is a circle: {' → '.join([*circle, base.file or ''])}")
    return base


@cache
def default_layers() -> tuple[Layer, ...]:
    """What all configurations extend in the end."""
    return tuple(layers_of("default"))
