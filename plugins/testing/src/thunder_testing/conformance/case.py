"""A test of a suite, and the conversion of suites to pytest tests."""

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
        check: runs the test. Raises `ConformanceFailure` if it fails, `NotApplicable` if there is nothing to test.
        skip: the reason for skipping it; empty if it runs.
    """

    id: str
    check: Callable[[], None]
    skip: str = ""

    def run(self) -> None:
        """Run the test in pytest."""
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
    """The cases, with the skip reasons of the patterns that match their ids.

    Raises ConformanceError for a pattern that matches no id, which is a mistake.
    """
    skipped = []
    used: set[str] = set()
    for case in cases:
        matching = [pattern for pattern in skip if fnmatchcase(case.id, pattern)]
        used.update(matching)
        skipped.append(replace(case, skip=skip[matching[0]]) if matching else case)
    for pattern in skip:
        if pattern not in used:
            raise ConformanceError(
                f"skip={{{pattern!r}: ...}} matches none of the {len(cases)} tests of the suite",
                advice=("run pytest --collect-only to see their ids", "remove the pattern"),
            )
    return skipped


def as_test(cases: Sequence[Case], what: str) -> Callable[..., None]:
    """A function with one parameter set per case, to be assigned to a name that pytest collects."""
    import pytest

    @pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in cases])
    def test(case: Any) -> None:
        __tracebackhide__ = True
        case.run()

    test.__doc__ = what
    suite: Callable[..., None] = test
    return suite
