"""Resolve the names in a configuration to specifications of plugins, and complete their options."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from thunder.config.declared_sizes import DeclaredSizes
from thunder.config.document import Document
from thunder.config.entry import EXTENDED, LISTS, Entry, PartSpec
from thunder.config.merge import Origins, merge
from thunder.config.model import ThunderConfig, parse
from thunder.config.problems import Problem, Trail, sentences
from thunder_core.errors import PluginError, is_strict
from thunder_core.plugins.host import host
from thunder_core.plugins.importing import FAILURES, failure
from thunder_core.plugins.lookup import find, find_without_library
from thunder_core.plugins.requirements import unmet
from thunder_core.plugins.specs import FrontEndSpec
from thunder_core.plugins.states import Offered, defects


@dataclass(frozen=True)
class Part:
    """An executor, a transform, a support of tensor classes or a table of interceptions of a configuration.

    Attributes:
        entry: its entry, with all options, the defaults too.
        offered, options: its specification and options; None for a Python object, for a part that is left out, and for
            ``...`` among executors, the place of those that the device decides.
        left_out: why it is left out; empty if it is not.
        advice: what to do about that.
        trail: its place in the configuration.
    """

    entry: Entry
    offered: Offered[PartSpec] | None = None
    options: Any = None
    left_out: str = ""
    advice: tuple[str, ...] = ()
    trail: Trail = ()

    @property
    def name(self) -> str:
        """The name without the plugin's."""
        return self.entry.name if self.offered is None else self.offered.spec.name

    @property
    def enabled(self) -> bool:
        """Whether its options do not disable it."""
        return self.entry.options.get("enabled") is not False


@dataclass(frozen=True)
class ResolvedConfig:
    """A configuration with resolved names.

    Attributes:
        config: the complete configuration, with presets, defaults, and all options of all parts.
        origins: for places in the merged documents, the document of the value and the place there.
        parts: for each list its parts, in order.
        front_end: its specification; None if there is none of that name.
        problems: the problems of the documents, and of the names in them.
    """

    config: ThunderConfig
    origins: Origins
    parts: Mapping[str, tuple[Part, ...]] = field(default_factory=dict)
    front_end: Offered[FrontEndSpec] | None = None
    problems: tuple[Problem, ...] = ()

    def problem(self, trail: Trail, text: str, advice: tuple[str, ...] = ()) -> Problem:
        """A problem at a place of the configuration, as a problem of the document that the place comes from."""
        start = trail
        while start and start not in self.origins:
            start = start[:-1]
        document, origin = self.origins.get(start) or (Document(self.config), ())
        return document.problem((*origin, *trail[len(start) :]), text, advice)


def resolve(documents: Sequence[Document]) -> ResolvedConfig:
    """Merge documents, later ones over earlier ones, and resolve all names in them.

    Imports the specifications of the plugins that are named, and nothing else of them.
    """
    merged = ResolvedConfig(*merge(documents))
    resolver = _Resolver(merged, [problem for document in documents for problem in document.problems])
    for index, requirement in enumerate(merged.config.requires):
        why = unmet(requirement)
        if why:
            resolver.problem(("requires", index), why)
    parts = {name: tuple(resolver.parts(name)) for name in LISTS}
    complete = {name: getattr(merged.config, name) for name in ThunderConfig.model_fields}
    complete |= {name: tuple([part.entry for part in found]) for name, found in parts.items()}
    if merged.config.executors is None:  # the device decides, when a program is compiled
        complete["executors"] = None
    front_end = resolver.front_end()
    if isinstance(merged.config.dynamic, DeclaredSizes) and front_end is not None and front_end.spec.name != "run":
        resolver.problem(("dynamic",), f"the front end {front_end.spec.name!r} takes no declarations of sizes")
    if merged.config.cache == "no caching" and merged.config.allow_recompiles is not True:
        resolver.problem(("allow_recompiles",), "contradicts cache: no caching, with which each call compiles")
    return ResolvedConfig(parse(complete), merged.origins, parts, front_end, tuple(resolver.problems))


def _complete(entry: Entry, options: Any) -> Entry:
    return entry.with_options(options.model_dump(mode="json", by_alias=True))


@dataclass
class _Resolver:
    merged: ResolvedConfig
    problems: list[Problem]

    def problem(self, trail: Trail, text: str, advice: tuple[str, ...] = ()) -> None:
        self.problems.append(self.merged.problem(trail, text, advice))

    def front_end(self) -> Offered[FrontEndSpec] | None:
        try:
            return find(FrontEndSpec, self.merged.config.front_end)
        except PluginError as error:
            self.problem(("front_end",), error.problem, error.advice)
            return None

    def parts(self, name: str) -> Iterator[Part]:
        """The parts of a list, without those that have a problem."""
        seen: dict[str, str] = {}
        for index, entry in enumerate(getattr(self.merged.config, name) or ()):
            trail: Trail = (name, index)
            plain = entry.given is not None or entry == EXTENDED
            part = Part(entry, trail=trail) if plain else self._part(entry, LISTS[name].spec, trail)
            if part is None:
                continue
            first = seen.setdefault(part.name, entry.name)
            if first == entry.name:
                yield part
            else:
                self.problem(trail, f"{entry.name!r} is listed twice, first as {first!r}")

    def _part(self, entry: Entry, kind: type[PartSpec], trail: Trail) -> Part | None:
        optional = entry.options.get("optional") is True
        try:
            offered: Offered[PartSpec] = find(kind, entry.name)
        except PluginError as error:
            without_library = find_without_library(kind, entry.name)
            valid = without_library is None or self._options(entry, without_library, trail) is not None
            if not optional or (valid and is_strict() and defects(host().records)):
                self.problem(trail, error.problem, error.advice)
                return None
            return Part(entry, left_out=error.problem, advice=error.advice, trail=trail) if valid else None
        options = self._options(entry, offered, trail)
        return None if options is None else Part(_complete(entry, options), offered, options, trail=trail)

    def _options(self, entry: Entry, offered: Offered[PartSpec], trail: Trail) -> Any:
        """The options by their model; None if they are not valid, which is then a problem."""
        try:
            return offered.spec.options.model_validate_json(entry.text, strict=True)
        except ValidationError as invalid:
            for inner, text in sentences(invalid, offered.spec.options, entry.options):
                self.problem((*trail, entry.name, *inner), text)
            return None
        except FAILURES as error:  # of a validator of the plugin
            why = failure(error, offered.spec.options.__module__)
            self.problem(trail, f"the {offered.plugin.title} failed to check these options: {why}")
            return None
