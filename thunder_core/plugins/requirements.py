"""Check requirements: those of plugins, from their metadata, and those of configurations. Nothing is imported."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Iterator
from functools import cache
from typing import Final, NamedTuple

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from thunder_core._version import __version__
from thunder_core.plugins.distributions import CORE, Installed, PluginDistribution, normalized
from thunder_core.plugins.first_party import install_command, projects_needed_by
from thunder_core.plugins.states import PluginState

LIBRARY_EXTRA: Final = "lib"
"""The extra with the vendor's library. Of extras ``lib-...`` one suffices: some libraries have a distribution for each
version of CUDA."""
_FIRST_PARTY: Final = "thunder-plugin-"
_EXTRA: Final = re.compile(r"""extra\s*==\s*["']([^"']*)["']""")


class Obstacle(NamedTuple):
    """Why a plugin cannot be used: its state, a sentence, and the command that repairs it, or a page that says how."""

    state: PluginState
    why: str
    advice: str


def unmet_requirement(distribution: PluginDistribution, installed: Installed) -> Obstacle | None:
    """An unmet requirement for Thunder, or in the extra ``lib``; None if there is none."""
    try:
        return (
            _core_conflict(distribution, installed.version(CORE) or __version__)
            or _missing_project(distribution, installed)
            or _library_problem(distribution, installed)
        )
    except InvalidRequirement as error:
        why = f"its metadata has a requirement that cannot be read: {' '.join(str(error).split())}"
        return Obstacle(PluginState.FAILED, why, upgrade(distribution.name))


def upgrade(distribution: str) -> str:
    """The command for a newer version."""
    return f"pip install --upgrade {distribution}"


@cache
def _parsed(line: str) -> Requirement:
    return Requirement(line)


def _core_conflict(distribution: PluginDistribution, version: str) -> Obstacle | None:
    """The conflict with this version of the core; None if the plugin supports it."""
    for line in distribution.requirements:
        requirement = _parsed(line) if normalized(line).startswith(CORE) else None
        if requirement is None or normalized(requirement.name) != CORE or not _applies(requirement, ""):
            continue
        if not requirement.specifier.contains(version, prereleases=True):
            newer = _requires_newer(requirement.specifier, Version(version))
            advice = f"pip install '{CORE}{requirement.specifier}'" if newer else upgrade(distribution.name)
            return Obstacle(PluginState.VERSION_CONFLICT, _conflict(requirement, version), advice)
    return None


def _missing_project(distribution: PluginDistribution, installed: Installed) -> Obstacle | None:
    """The first absent project of Thunder's repository that a plugin of it requires.

    pip does not find these in a registry, and an editable plugin may require more than was installed with it.
    """
    own = normalized(distribution.name).removeprefix(_FIRST_PARTY)
    for line in distribution.requirements if projects_needed_by(own) else ():
        requirement = _parsed(line)
        if _applies(requirement, "") and installed.version(requirement.name) is None:
            why = f"it needs {requirement}, which is not installed"
            return Obstacle(PluginState.LIBRARY_MISSING, why, install_command(own))
    return None


def _library_problem(distribution: PluginDistribution, installed: Installed) -> Obstacle | None:
    """The missing libraries of the extra ``lib``, and, if there are extras ``lib-...``, of all of these."""
    problem = _extra_problem(distribution, LIBRARY_EXTRA, installed)
    alternatives = sorted(extra for extra in distribution.extras if normalized(extra).startswith(f"{LIBRARY_EXTRA}-"))
    obstacles = [_extra_problem(distribution, normalized(extra), installed) for extra in alternatives]
    found = [obstacle for obstacle in obstacles if obstacle is not None]
    if problem is not None or len(found) < len(alternatives) or not found:
        return problem
    conflict = next((obstacle for obstacle in found if obstacle.state is PluginState.VERSION_CONFLICT), None)
    if conflict is not None:
        return conflict
    names = [needed.name for extra in alternatives for needed in _of_extra(distribution, extra, frozenset())]
    why = f"it needs one of {', '.join(names)}, and none of them is installed"
    extras = f"{distribution.name}[EXTRA]"
    return Obstacle(PluginState.LIBRARY_MISSING, why, f"pip install '{extras}' with one of {', '.join(alternatives)}")


def _extra_problem(distribution: PluginDistribution, extra: str, installed: Installed) -> Obstacle | None:
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
        advice = _library_page(distribution) or f"pip install '{distribution.name}[{extra}]'"
        return Obstacle(PluginState.LIBRARY_MISSING, why, advice)
    if conflicts:
        why = "; ".join(_conflict(requirement, version) for requirement, version in conflicts)
        wanted = " ".join(f"'{requirement.name}{requirement.specifier}'" for requirement, _ in conflicts)
        return Obstacle(PluginState.VERSION_CONFLICT, why, _library_page(distribution) or f"pip install {wanted}")
    return None


def _library_page(distribution: PluginDistribution) -> str:
    """The page about a library that is in no registry."""
    return f"see {distribution.library}" if distribution.library else ""


def _of_extra(distribution: PluginDistribution, extra: str, followed: frozenset[str]) -> Iterator[Requirement]:
    """The requirements of an extra, and of the extras of the same distribution that it refers to."""
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


def _requires_newer(specifier: SpecifierSet, version: Version) -> bool:
    """Whether the installed version is below what is required, rather than above."""
    lower = [part for part in specifier if part.operator in (">", ">=", "~=", "==")]
    return any(version <= Version(part.version.removesuffix(".*")) for part in lower if not part.contains(version))


def _conflict(requirement: Requirement, version: str) -> str:
    return f"it needs {requirement.name}{requirement.specifier}, and {requirement.name} {version} is installed"


def unmet(text: str) -> str | None:
    """Why a requirement (PEP 508) of a configuration is not met, and the command that repairs it; None if it is met.

    A requirement whose marker does not hold is met. The requirements of its extras are checked too.
    """
    requirement = Requirement(text)
    if not _applies(requirement, ""):
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
    """The first unmet requirement of an extra, apart from extras that it refers to."""
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
    return _applies(requirement, extra) and not _applies(requirement, "")


def _without_marker(requirement: Requirement) -> str:
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    return f"{requirement.name}{extras}{requirement.specifier}"
