"""Installed distributions that offer plugins, from their metadata.

Nothing is imported. `importlib.metadata.entry_points` is not used: it parses the entry points of every distribution,
while here most are put aside because their text does not hold the name of the group.
"""

from __future__ import annotations

import importlib.metadata
import re
from dataclasses import dataclass
from email.message import Message
from email.parser import HeaderParser
from typing import Final

GROUP: Final = "thunder.plugins"
API_GROUP: Final = "thunder.plugin_api"
CORE: Final = "thunder-core"
"""The distribution that this file belongs to."""


@dataclass(frozen=True, slots=True)
class PluginDistribution:
    """A distribution with entry points in the group ``thunder.plugins``.

    Attributes:
        name, version: as its metadata has them.
        requirements: its lines ``Requires-Dist``.
        extras: the names of its extras.
        plugins: for each plugin where its object is, ``module:attribute``.
        interfaces: for each plugin the number of the interface that it was written for, as text.
    """

    name: str
    version: str
    requirements: tuple[str, ...]
    extras: frozenset[str]
    plugins: dict[str, str]
    interfaces: dict[str, str]


def plugin_distributions() -> list[PluginDistribution]:
    """All of them. Of a distribution that is found twice (editable and installed) the one that Python imports from.

    A folder without a name in its metadata is no installed distribution, as for pip.
    """
    found: dict[str, PluginDistribution | None] = {}
    for candidate in importlib.metadata.distributions():
        if GROUP not in (candidate.read_text("entry_points.txt") or ""):
            continue
        name = _headers(candidate).get("Name")
        if name and normalized(name) not in found:
            found[normalized(name)] = _effective(name)
    return [distribution for distribution in found.values() if distribution is not None and distribution.plugins]


def normalized(name: str) -> str:
    """A distribution's name in the form in which names are compared."""
    return re.sub(r"[-_.]+", "-", name).lower()


def version_of(distribution: str) -> str | None:
    """The version that is installed; None if there is none."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def core_version() -> str:
    """The version of the core; empty where it runs from a checkout without being installed."""
    return version_of(CORE) or ""


def _effective(name: str) -> PluginDistribution | None:
    """The distribution that counts of those with this name: the first on the path, whether it has plugins or not."""
    try:
        distribution = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return None  # what an interrupted pip left behind, under another folder name
    headers = _headers(distribution)
    groups = _groups(distribution.read_text("entry_points.txt") or "")
    return PluginDistribution(
        headers["Name"],
        headers["Version"] or "",
        _requirements(distribution, headers),
        frozenset(headers.get_all("Provides-Extra", ())),
        groups.get(GROUP, {}),
        groups.get(API_GROUP, {}),
    )


def _headers(distribution: importlib.metadata.Distribution) -> Message:
    """The metadata without the description, which is by far the larger part and would be parsed with it."""
    text = distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or ""
    return HeaderParser().parsestr(text.replace("\r\n", "\n").partition("\n\n")[0])


def _requirements(distribution: importlib.metadata.Distribution, headers: Message) -> tuple[str, ...]:
    lines = headers.get_all("Requires-Dist")
    if lines is None and distribution.read_text("METADATA") is None:
        return tuple(distribution.requires or ())  # setuptools' older form keeps them in a file of their own
    return tuple(lines or ())


def _groups(text: str) -> dict[str, dict[str, str]]:
    """The content of ``entry_points.txt``: names and values by group."""
    groups: dict[str, dict[str, str]] = {}
    group: dict[str, str] = {}
    for line in map(str.strip, text.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            group = groups.setdefault(line[1:-1].strip(), {})
        elif line and not line.startswith(("#", ";")):
            name, _, value = line.partition("=")
            group[name.strip()] = value.strip()
    return groups
