"""Whether what a plugin needs is installed, from metadata."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from thunder_core.plugins.distributions import CORE, PluginDistribution, core_version, normalized, version_of
from thunder_core.plugins.states import PluginState

LIBRARY_EXTRA: Final = "lib"
"""The extra that a plugin declares the vendor's library in."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Why a plugin cannot be used: its state, one sentence, and the command that repairs it."""

    state: PluginState
    why: str
    advice: str


def unmet_requirement(distribution: PluginDistribution) -> Finding | None:
    """What the distribution needs of Thunder or in its extra ``lib`` and does not find; None if there is nothing."""
    try:
        own = [Requirement(line) for line in distribution.requirements if _may_matter(line)]
    except InvalidRequirement as error:
        why = f"its metadata has a requirement that cannot be read: {' '.join(str(error).split())}"
        return Finding(PluginState.FAILED, why, upgrade(distribution.name))
    return _core_conflict(distribution, own) or _library_problem(distribution, own)


def upgrade(distribution: str) -> str:
    """The command for a newer version."""
    return f"pip install --upgrade {distribution}"


def _may_matter(line: str) -> bool:
    """Whether a requirement could be one of an extra, or of Thunder; parsing costs more than asking this."""
    return "extra" in line or normalized(line).startswith(CORE)


def _core_conflict(distribution: PluginDistribution, requirements: list[Requirement]) -> Finding | None:
    version = core_version()
    for requirement in requirements:
        if normalized(requirement.name) != CORE or not version or not _applies(requirement, ""):
            continue
        if not requirement.specifier.contains(version, prereleases=True):
            newer = _asks_for_newer(requirement.specifier, Version(version))
            advice = f"pip install '{CORE}{requirement.specifier}'" if newer else upgrade(distribution.name)
            return Finding(PluginState.VERSION_CONFLICT, _conflict(requirement, version), advice)
    return None


def _library_problem(distribution: PluginDistribution, requirements: list[Requirement]) -> Finding | None:
    conflicts: list[tuple[Requirement, str]] = []
    missing: list[Requirement] = []
    for requirement in _of_extra(distribution.name, requirements, LIBRARY_EXTRA, frozenset()):
        version = version_of(requirement.name)
        if version is None:
            missing.append(requirement)
        elif not _fits(requirement.specifier, version):
            conflicts.append((requirement, version))
    if missing:
        names = " and ".join(requirement.name for requirement in missing)
        why = f"it needs {names}, which {'is' if len(missing) == 1 else 'are'} not installed"
        return Finding(PluginState.LIBRARY_MISSING, why, f"pip install '{distribution.name}[{LIBRARY_EXTRA}]'")
    if conflicts:
        why = "; ".join(_conflict(requirement, version) for requirement, version in conflicts)
        wanted = " ".join(f"'{requirement.name}{requirement.specifier}'" for requirement, _ in conflicts)
        return Finding(PluginState.VERSION_CONFLICT, why, f"pip install {wanted}")
    return None


def _of_extra(own: str, requirements: list[Requirement], extra: str, followed: frozenset[str]) -> Iterator[Requirement]:
    """What an extra asks for, with the extras of the same distribution that it refers to."""
    for requirement in requirements:
        if not _applies(requirement, extra) or _applies(requirement, ""):
            continue
        if normalized(requirement.name) != normalized(own):
            yield requirement
            continue
        for other in requirement.extras - followed - {extra}:
            yield from _of_extra(own, requirements, other, followed | {extra})


def _applies(requirement: Requirement, extra: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def _fits(specifier: SpecifierSet, version: str) -> bool:
    try:
        return specifier.contains(version, prereleases=True)
    except InvalidVersion:  # of a library that counts in its own way; whether it fits shows when it is imported
        return True


def _asks_for_newer(specifier: SpecifierSet, version: Version) -> bool:
    """Whether the installed version is below what is asked for, rather than above."""
    lower = [part for part in specifier if part.operator in (">", ">=", "~=", "==")]
    return any(version <= Version(part.version.removesuffix(".*")) for part in lower if not part.contains(version))


def _conflict(requirement: Requirement, version: str) -> str:
    return f"it needs {requirement.name}{requirement.specifier}, and {requirement.name} {version} is installed"
