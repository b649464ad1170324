"""Whether the distributions that a configuration requires are installed."""

from __future__ import annotations

import importlib.metadata

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion


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
