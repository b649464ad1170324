"""The versions of PyTorch that Thunder is tested with; defined only here."""

from __future__ import annotations

from typing import Final

from thunder_core.private_names import release

SUITES: Final = ("2.11.0", "2.13.0", "2.15.0")
"""Versions that the suites of tests run on."""

FIRST_CALLS: Final = ("2.12.1", "2.14.1")
"""Versions that small programs were compiled and trained with."""


def tested_versions() -> str:
    """One sentence about all of them."""
    return (
        f"The test suites run with PyTorch {_joined(SUITES)}; import, first calls, gradients, checkpoints and "
        f"autograd.Function were tried with {_joined(FIRST_CALLS)}."
    )


def how_tested(version: str) -> str:
    """The part of a sentence that says how the installed version was tested; it follows the version."""
    if release(version) in map(release, SUITES):
        return "which the test suites use"
    if release(version) in map(release, FIRST_CALLS):
        return "which was tested with small programs"
    newest = max(release(one) for one in (*SUITES, *FIRST_CALLS))
    age = "newer than all versions that" if release(version) > newest else "which is not among the versions that"
    return f"{age} Thunder is tested with: {', '.join(sorted((*SUITES, *FIRST_CALLS), key=release))}"


def _joined(versions: tuple[str, ...]) -> str:
    return " and ".join(filter(None, (", ".join(versions[:-1]), versions[-1])))
