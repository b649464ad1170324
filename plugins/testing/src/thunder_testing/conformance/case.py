"""One test of a suite, and how suites become tests that pytest collects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from thunder_testing.conformance.failure import ConformanceError


@dataclass(frozen=True, eq=False)
class Case:
    """One test.

    Attributes:
        id: unique in its suite, and the same in every process.
        check: runs it. Raises `ConformanceFailure` if it fails, `NotApplicable` if there is nothing to test.
        skip: why it does not run; empty if it does.
    """

    id: str
    check: Callable[[], None]
    skip: str = ""

    def run(self) -> None:
        """The test, for pytest."""
        __tracebackhide__ = True
        import pytest

        from thunder_testing.conformance.failure import NotApplicable

        if self.skip:
            pytest.skip(self.skip)
        try:
            self.check()
        except NotApplicable as reason:
            pytest.skip(str(reason))


def with_skips(cases: Sequence[Case], skip: Mapping[str, str]) -> list[Case]:
    """The cases with the reasons of the patterns that their ids match.

    Raises ConformanceError for a pattern that no id matches: it would skip nothing and hide a mistake.
    """
    found = []
    used: set[str] = set()
    for case in cases:
        matching = [pattern for pattern in skip if fnmatchcase(case.id, pattern)]
        used.update(matching)
        found.append(replace(case, skip=skip[matching[0]]) if matching else case)
    for pattern in skip:
        if pattern not in used:
            raise ConformanceError(
                f"skip={{{pattern!r}: ...}} matches none of the {len(cases)} tests of the suite",
                advice=("run pytest --collect-only to see their ids", "remove the pattern"),
            )
    return found


def as_test(cases: Sequence[Case], what: str) -> Callable[..., None]:
    """A function with one parameter set for each case, to be assigned to a name that pytest collects."""
    import pytest

    @pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in cases])
    def test(case: Any) -> None:
        __tracebackhide__ = True
        case.run()

    test.__doc__ = what
    made: Callable[..., None] = test
    return made
