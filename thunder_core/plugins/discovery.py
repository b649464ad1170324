"""Which plugins are installed and which of them can be used, from metadata alone."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from thunder_core._version import __version__
from thunder_core.plugins.distributions import CORE, Installed, PluginDistribution, normalized
from thunder_core.plugins.first_party import install_command, projects_needed_by
from thunder_core.plugins.hookspecs import API
from thunder_core.plugins.selection import CORE_PLUGIN, VARIABLE, Selection, selection
from thunder_core.plugins.states import PluginRecord, PluginState

LIBRARY_EXTRA: Final = "lib"
"""The extra that a plugin declares the vendor's library in. Of extras that begin with it and a dash, one is enough:
for a library that is a distribution for each version of CUDA, say."""
_FIRST_PARTY: Final = "thunder-plugin-"
_EXTRA: Final = re.compile(r"""extra\s*==\s*["']([^"']*)["']""")


@dataclass(frozen=True, slots=True)
class Finding:
    """Why a plugin cannot be used: its state, one sentence, and the command that repairs it, or the page that does."""

    state: PluginState
    why: str
    advice: str


def unmet_requirement(distribution: PluginDistribution, installed: Installed) -> Finding | None:
    """What the distribution needs of Thunder or in its extra ``lib`` and does not find; None if there is nothing."""
    try:
        return (
            _core_conflict(distribution, installed.version(CORE) or __version__)
            or _missing(distribution, installed)
            or _library_problem(distribution, installed)
        )
    except InvalidRequirement as error:
        why = f"its metadata has a requirement that cannot be read: {' '.join(str(error).split())}"
        return Finding(PluginState.FAILED, why, upgrade(distribution.name))


def upgrade(distribution: str) -> str:
    """The command for a newer version."""
    return f"pip install --upgrade {distribution}"


@cache
def _parsed(line: str) -> Requirement:
    return Requirement(line)


def _core_conflict(distribution: PluginDistribution, version: str) -> Finding | None:
    """Whether the core, whose version this is, is none that the plugin works with."""
    for line in distribution.requirements:
        requirement = _parsed(line) if normalized(line).startswith(CORE) else None
        if requirement is None or normalized(requirement.name) != CORE or not _applies(requirement, ""):
            continue
        if not requirement.specifier.contains(version, prereleases=True):
            newer = _asks_for_newer(requirement.specifier, Version(version))
            advice = f"pip install '{CORE}{requirement.specifier}'" if newer else upgrade(distribution.name)
            return Finding(PluginState.VERSION_CONFLICT, _conflict(requirement, version), advice)
    return None


def _missing(distribution: PluginDistribution, installed: Installed) -> Finding | None:
    """Whether a project of Thunder's repository that one of its plugins requires is absent: pip does not find these in
    a registry, and an editable plugin may be newer than what was installed with it.
    """
    own = normalized(distribution.name).removeprefix(_FIRST_PARTY)
    for line in distribution.requirements if projects_needed_by(own) else ():
        requirement = _parsed(line)
        if _applies(requirement, "") and installed.version(requirement.name) is None:
            why = f"it needs {requirement}, which is not installed"
            return Finding(PluginState.LIBRARY_MISSING, why, install_command(own))
    return None


def _library_problem(distribution: PluginDistribution, installed: Installed) -> Finding | None:
    """What is missing of the extra ``lib``, and of one of the extras ``lib-...``, if there are such."""
    problem = _extra_problem(distribution, LIBRARY_EXTRA, installed)
    alternatives = sorted(extra for extra in distribution.extras if normalized(extra).startswith(f"{LIBRARY_EXTRA}-"))
    findings = [_extra_problem(distribution, normalized(extra), installed) for extra in alternatives]
    found = [finding for finding in findings if finding is not None]
    if problem is not None or len(found) < len(alternatives) or not found:
        return problem
    conflict = next((finding for finding in found if finding.state is PluginState.VERSION_CONFLICT), None)
    if conflict is not None:
        return conflict
    names = [needed.name for extra in alternatives for needed in _of_extra(distribution, extra, frozenset())]
    why = f"it needs one of {', '.join(names)}, and none of them is installed"
    extras = f"{distribution.name}[EXTRA]"
    return Finding(PluginState.LIBRARY_MISSING, why, f"pip install '{extras}' with one of {', '.join(alternatives)}")


def _extra_problem(distribution: PluginDistribution, extra: str, installed: Installed) -> Finding | None:
    conflicts: list[tuple[Requirement, str]] = []
    missing: list[Requirement] = []
    for requirement in _of_extra(distribution, extra, frozenset()):
        version = installed.version(requirement.name)
        if version is None:
            missing.append(requirement)
        elif not _fits(requirement.specifier, version):
            conflicts.append((requirement, version))
    if missing:
        names = " and ".join(requirement.name for requirement in missing)
        why = f"it needs {names}, which {'is' if len(missing) == 1 else 'are'} not installed"
        advice = _own_page(distribution) or f"pip install '{distribution.name}[{extra}]'"
        return Finding(PluginState.LIBRARY_MISSING, why, advice)
    if conflicts:
        why = "; ".join(_conflict(requirement, version) for requirement, version in conflicts)
        wanted = " ".join(f"'{requirement.name}{requirement.specifier}'" for requirement, _ in conflicts)
        return Finding(PluginState.VERSION_CONFLICT, why, _own_page(distribution) or f"pip install {wanted}")
    return None


def _own_page(distribution: PluginDistribution) -> str:
    """Where to look, of a library that is in no registry."""
    return f"see {distribution.library}" if distribution.library else ""


def _of_extra(distribution: PluginDistribution, extra: str, followed: frozenset[str]) -> Iterator[Requirement]:
    """What an extra requires, with the extras of the same distribution that it refers to."""
    for line in distribution.requirements:
        if extra not in map(normalized, _EXTRA.findall(line)):  # lines of other extras are not worth parsing
            continue
        requirement = _parsed(line)
        if not _applies(requirement, extra):
            continue
        if normalized(requirement.name) != normalized(distribution.name):
            yield requirement
            continue
        for other in set(map(normalized, requirement.extras)) - followed - {extra}:
            yield from _of_extra(distribution, other, followed | {extra})


def _applies(requirement: Requirement, extra: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def _fits(specifier: SpecifierSet, version: str) -> bool:
    try:
        return specifier.contains(version, prereleases=True)
    except InvalidVersion:  # of a library with other version numbers; whether it fits shows when it is imported
        return True


def _asks_for_newer(specifier: SpecifierSet, version: Version) -> bool:
    """Whether the installed version is below what is required, rather than above."""
    lower = [part for part in specifier if part.operator in (">", ">=", "~=", "==")]
    return any(version <= Version(part.version.removesuffix(".*")) for part in lower if not part.contains(version))


def _conflict(requirement: Requirement, version: str) -> str:
    return f"it needs {requirement.name}{requirement.specifier}, and {requirement.name} {version} is installed"


@dataclass(frozen=True, slots=True)
class Found:
    """A plugin.

    Attributes:
        record: what is known about it.
        target: where its object is: ``module:attribute``.
        has_library: whether its distribution has the extra ``lib``.
    """

    record: PluginRecord
    target: str
    has_library: bool = False


def discover() -> list[Found]:
    """The core, then the plugins by name. Two of one name are both listed, as a clash. Nothing is imported.

    Raises:
        PluginError: the environment variable ``THUNDER_PLUGINS`` is not valid.
    """
    installed = Installed()
    offers: dict[str, list[PluginDistribution]] = defaultdict(list)
    for distribution in installed.with_plugins():
        for name in distribution.plugins:
            offers[name].append(distribution)
    selected = selection({CORE_PLUGIN, *offers})
    core = PluginRecord(CORE_PLUGIN, CORE, installed.version(CORE) or __version__, PluginState.AVAILABLE)
    found = [Found(core, "thunder_core.plugins.builtin")]
    for name in sorted(offers):
        for distribution in offers[name]:
            finding = _finding(name, distribution, offers[name], selected, installed)
            record = PluginRecord(
                name,
                distribution.name,
                distribution.version,
                finding.state if finding else PluginState.AVAILABLE,
                finding.why if finding else "",
                finding.advice if finding else "",
            )
            found.append(Found(record, distribution.plugins[name], LIBRARY_EXTRA in distribution.extras))
    return found


def _finding(
    name: str,
    distribution: PluginDistribution,
    offering: list[PluginDistribution],
    selected: Selection,
    installed: Installed,
) -> Finding | None:
    """Why a plugin cannot be used; the first reason of those that hold."""
    clash = _clash(name, distribution, offering)
    blocked = "" if name == CORE_PLUGIN else selected.why_blocked(name)
    if blocked:
        return Finding(PluginState.BLOCKED, blocked, f"unset {VARIABLE}")
    return clash or _api_mismatch(name, distribution) or unmet_requirement(distribution, installed)


def _clash(name: str, distribution: PluginDistribution, offering: list[PluginDistribution]) -> Finding | None:
    remove = f"pip uninstall {distribution.name}"
    if name == CORE_PLUGIN:
        why = f"the name belongs to {CORE}, and {distribution.name} {distribution.version} offers a plugin called so"
        return Finding(PluginState.NAME_CLASH, why, remove)
    if len(offering) == 1:
        return None
    names = " and ".join(f"{other.name} {other.version}" for other in offering)
    return Finding(PluginState.NAME_CLASH, f"{names} offer plugins of this name", remove)


def _api_mismatch(name: str, distribution: PluginDistribution) -> Finding | None:
    declared = distribution.interfaces.get(name, "1")
    if declared == str(API):
        return None
    number = int(declared) if declared.isdecimal() else None
    what = f"number {number}" if number is not None else f"{declared!r}, which is no number,"
    why = f"it was written for {what} of the plugin interface, and this Thunder has number {API}"
    newer = number is not None and number > API
    return Finding(PluginState.API_MISMATCH, why, upgrade(CORE if newer else distribution.name))
