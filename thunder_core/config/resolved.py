"""A complete configuration: documents laid over each other, with specifications and options for all that they name."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion
from pydantic import ValidationError

from thunder_core.config.declared_sizes import DeclaredSizes
from thunder_core.config.document import Document
from thunder_core.config.entry import Entry, find, of_core
from thunder_core.config.model import ThunderConfig, parse
from thunder_core.config.problems import Problem, Trail
from thunder_core.config.sentences import sentences
from thunder_core.errors import PluginError, is_strict
from thunder_core.plugins.host import host
from thunder_core.plugins.importing import FAILURES, failure
from thunder_core.plugins.specs import ExecutorSpec, FrontEndSpec, TransformSpec
from thunder_core.plugins.states import defects
from thunder_core.plugins.table import Offered

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


Spec = TypeVar("Spec", ExecutorSpec, TransformSpec)


@dataclass(frozen=True)
class Part:
    """An executor or a transform that a configuration names.

    Attributes:
        entry: with all its options, those that were not given as well.
        offered, options: where it is, and its options; None for Python objects, and for what is left out.
        left_out: why it is left out, although it is named; else empty.
        trail: its place in the configuration; empty for what runs by default.
    """

    entry: Entry
    offered: Offered[ExecutorSpec] | Offered[TransformSpec] | None = None
    options: Any = None
    left_out: str = ""
    trail: Trail = ()

    @property
    def name(self) -> str:
        """Of the executor or the transform, without its plugin's."""
        return self.entry.name if self.offered is None else self.offered.spec.name

    @property
    def enabled(self) -> bool:
        """Whether its options do not switch it off."""
        return self.entry.options.get("enabled") is not False


@dataclass(frozen=True)
class Resolved:
    """Everything that a configuration names.

    Attributes:
        config: complete: presets, defaults, and all options of all its parts are in it.
        origins: for places in ``config`` as the documents have it, the document that says so and the place there.
        executors, transforms: in order.
        front_end: None where there is none of that name.
        problems: what is wrong with the documents, and with what they name.
    """

    config: ThunderConfig
    origins: Origins
    executors: tuple[Part, ...] = ()
    transforms: tuple[Part, ...] = ()
    front_end: Offered[FrontEndSpec] | None = None
    problems: tuple[Problem, ...] = ()

    def problem(self, trail: Trail, text: str, advice: tuple[str, ...] = ()) -> Problem:
        """A problem at a place of the configuration, as a problem of the document that the place comes from."""
        start = trail
        while start and start not in self.origins:
            start = start[:-1]
        document, origin = self.origins.get(start) or (Document(self.config), ())
        return document.problem((*origin, *trail[len(start) :]), text, advice)


def resolved(documents: Sequence[Document]) -> Resolved:
    """Lay the documents over each other, the first below, and find all that they name.

    Imports nothing of it, apart from the plugins' specifications.
    """
    merged = Resolved(*merge(documents))
    finder = _Finder(merged, [problem for document in documents for problem in document.problems])
    for index, requirement in enumerate(merged.config.requires):
        # here: few configurations require anything

        why = unmet(requirement)
        if why:
            finder.problem(("requires", index), why)
    executors = list(finder.parts("executors", ExecutorSpec))
    transforms = _with_defaults(list(finder.parts("transforms", TransformSpec)))
    complete = {name: getattr(merged.config, name) for name in ThunderConfig.model_fields}
    if merged.config.executors is not None:  # else the device decides, when a program is compiled
        complete["executors"] = tuple([part.entry for part in executors])
    complete["transforms"] = tuple([part.entry for part in transforms])
    front_end = finder.front_end()
    if isinstance(merged.config.dynamic, DeclaredSizes) and front_end is not None and front_end.spec.name != "run":
        finder.problem(("dynamic",), f"the front end {front_end.spec.name!r} takes no declarations of sizes")
    return Resolved(
        parse(complete), merged.origins, tuple(executors), tuple(transforms), front_end, tuple(finder.problems)
    )


def _with_defaults(transforms: list[Part]) -> list[Part]:
    """The transforms that run by default, as the configuration changes them, and then the others."""
    parts = {}
    for offered in of_core(TransformSpec):
        if offered.spec.default:
            options = offered.spec.options()
            parts[offered.spec.name] = Part(_complete(Entry(offered.spec.name), options), offered, options)
    return list((parts | {part.name: part for part in transforms}).values())


def _complete(entry: Entry, options: Any) -> Entry:
    return entry.with_options(options.model_dump(mode="json", by_alias=True))


@dataclass
class _Finder:
    merged: Resolved
    problems: list[Problem]

    def problem(self, trail: Trail, text: str, advice: tuple[str, ...] = ()) -> None:
        self.problems.append(self.merged.problem(trail, text, advice))

    def front_end(self) -> Offered[FrontEndSpec] | None:
        try:
            return find(FrontEndSpec, self.merged.config.front_end)
        except PluginError as error:
            self.problem(("front_end",), error.problem, error.advice)
            return None

    def parts(self, name: str, kind: type[Spec]) -> Iterator[Part]:
        """The parts that a list names; those with a problem are not among them."""
        seen: dict[str, str] = {}
        for index, entry in enumerate(getattr(self.merged.config, name) or ()):
            part = (
                Part(entry, trail=(name, index)) if entry.given is not None else self._named(entry, kind, (name, index))
            )
            if part is None:
                continue
            first = seen.setdefault(part.name, entry.name)
            if first == entry.name:
                yield part
            else:
                self.problem((name, index), f"{entry.name!r} is there twice: as {first!r} before")

    def _named(self, entry: Entry, kind: type[Spec], trail: Trail) -> Part | None:
        try:
            offered = find(kind, entry.name)
        except PluginError as error:
            without_library = host().without_library(kind, entry.name)
            if without_library is not None and self._options(entry, without_library, trail) is None:
                if entry.options.get("optional") is not True:
                    self.problem(trail, error.problem, error.advice)
                return None
            if entry.options.get("optional") is True and not (is_strict() and defects(host().records)):
                return Part(entry, left_out=error.problem, trail=trail)
            self.problem(trail, error.problem, error.advice)
            return None
        options = self._options(entry, offered, trail)
        return None if options is None else Part(_complete(entry, options), offered, options, trail=trail)

    def _options(self, entry: Entry, offered: Offered[Any], trail: Trail) -> Any:
        """The options as the specification has them; None, with problems, if they are not accepted."""
        try:
            return offered.spec.options.model_validate_json(entry.text, strict=True)
        except ValidationError as invalid:
            start: Trail = (*trail, entry.name)
            for inner, text in sentences(invalid, offered.spec.options, entry.options):
                self.problem(start + inner, text)
            return None
        except FAILURES as error:  # of a validator that the plugin wrote
            why = failure(error, offered.spec.options.__module__)
            self.problem(trail, f"the {offered.plugin.title} could not check these options: {why}")
            return None


def unmet(text: str) -> str | None:
    """What is missing for a requirement (PEP 508), and the command that repairs it; None if nothing is.

    A marker that does not hold here makes the requirement void. Of extras, what they need is checked as well.
    """
    requirement = Requirement(text)
    if requirement.marker is not None and not requirement.marker.evaluate():
        return None
    why = _missing(requirement) or _missing_of_extras(requirement)
    return why and f"{why}; run: pip install '{_without_marker(requirement)}'"


def _missing(requirement: Requirement) -> str | None:
    try:
        version = importlib.metadata.version(requirement.name)
    except importlib.metadata.PackageNotFoundError:
        return f"{requirement.name} is not installed"
    try:
        fits = requirement.specifier.contains(version, prereleases=True)
    except InvalidVersion:
        fits = False
    return None if fits else f"{requirement.name} {version} is installed, not {requirement.specifier}"


def _missing_of_extras(requirement: Requirement) -> str | None:
    """What the extras need, of what they do not take from other extras."""
    for extra in sorted(requirement.extras):
        metadata = importlib.metadata.metadata(requirement.name)
        if extra not in (metadata.get_all("Provides-Extra") or ()):
            return f"{requirement.name} has no extra {extra!r}"
        for line in metadata.get_all("Requires-Dist") or ():
            try:
                needed = Requirement(line)
            except InvalidRequirement:
                return f"{requirement.name} has a requirement that cannot be read, {line!r}"
            if _belongs_to(needed, extra) and (why := _missing(needed)):
                return f"for {requirement.name}[{extra}], {why}"
    return None


def _belongs_to(requirement: Requirement, extra: str) -> bool:
    marker = requirement.marker
    return marker is not None and marker.evaluate({"extra": extra}) and not marker.evaluate({"extra": ""})


def _without_marker(requirement: Requirement) -> str:
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    return f"{requirement.name}{extras}{requirement.specifier}"
