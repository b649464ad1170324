"""What the tests of a suite say of what they find."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

from thunder_core.testing import ConformanceFailure
from thunder_core.testing.conformance.case import Case
from thunder_core.testing.conformance.failure import NotApplicable


def failures_of(cases: Iterable[Case], pattern: str) -> Iterator[str]:
    """The messages of the tests with such ids."""
    for case in cases:
        if fnmatchcase(case.id, pattern):
            try:
                case.check()
            except ConformanceFailure as failure:
                yield str(failure)
            except NotApplicable:
                continue
