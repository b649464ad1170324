"""What the tests of a suite say of what they find."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Any

import torch

from thunder_core.executors import Executor
from thunder_testing import ConformanceFailure
from thunder_testing.conformance.case import Case
from thunder_testing.conformance.failure import NotApplicable
from thunder_testing.conformance.suite import executor_cases


def failures(executor: Executor, pattern: str, **options: Any) -> Iterator[str]:
    """The messages of the tests of an executor with such ids."""
    options = {"dtypes": (torch.float32,), "limit": 8, **options}
    return failures_of(executor_cases(executor, **options), pattern)


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
