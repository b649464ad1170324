"""How a test went with Thunder."""

from __future__ import annotations

import pathlib
import re
import traceback
import unittest
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Final

import torch

import thunder_core
from thunder_core.errors import LeakedTensorError, ThunderError

_CORE = str(pathlib.Path(thunder_core.__file__).parent)
_TORCH = str(pathlib.Path(torch.__file__).parent)
_ASSERTING = (
    str(pathlib.Path(unittest.__file__).parent),
    *[str(pathlib.Path(_TORCH, *parts)) for parts in (("testing",), ("_dynamo", "test_case"), ("_dynamo", "testing"))],
    str(pathlib.Path(__file__).parent),
)
"""Where assertions are raised that tests make."""
_ABOUT_DYNAMO = re.compile(
    r"\bcnts?\b|counter|frame_count|op_count|graph|dynamo|guard|\blogs?\b|backend|recompil", re.IGNORECASE
)


KINDS: Final = {
    "passed": "it passed",
    "skipped": "it was skipped, or is expected to fail",
    "refused": "one of Thunder's errors",
    "leak": "a LeakedTensorError",
    "wrong": "an assertion of the test failed",
    "error": "another exception, with frames of Thunder",
    "harness": "an assertion about Dynamo, or an exception without frames of Thunder",
    "time": "it took too long",
    "crash": "the process ended itself",
}


@dataclass(frozen=True)
class Outcome:
    """Attributes:
    kind: see `KINDS`.
    reason: the exception, and where it was raised.
    compiled: how many programs the test compiled.
    """

    kind: str
    reason: str = ""
    compiled: int = 0

    as_dict = asdict


def of_exception(error: BaseException) -> Outcome:
    """Sort the exception with which a test ended."""
    refusal = next((each for each in _with_causes(error) if isinstance(each, ThunderError)), None)
    frames = traceback.extract_tb(error.__traceback__)
    reason = f"{type(refusal or error).__name__}: {str(refusal or error)[:600]}"
    reason += "".join(f"\n  {frame.filename}:{frame.lineno} in {frame.name}: {frame.line}" for frame in frames[-6:])
    if refusal is not None:
        return Outcome("leak" if isinstance(refusal, LeakedTensorError) else "refused", reason)
    in_core = any(frame.filename.startswith(_CORE) for frame in frames)
    if in_core:
        return Outcome("error", reason)
    asserting = [frame for frame in frames if not frame.filename.startswith(_ASSERTING)][-1:]
    of_torch = any(frame.filename.startswith(_TORCH) for frame in asserting)
    about_dynamo = any(_ABOUT_DYNAMO.search(frame.line or "") for frame in asserting)
    wrong = isinstance(error, AssertionError) and not of_torch and not about_dynamo
    return Outcome("wrong" if wrong else "harness", reason)


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    following: BaseException | None = error
    while following is not None and id(following) not in seen:
        seen.add(id(following))
        yield following
        following = following.__cause__ or following.__context__


class Recorded(unittest.TestResult):
    """Keeps the outcome of the last test."""

    outcome = Outcome("passed")

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self.outcome = Outcome("passed")

    def _failed(self, test, error) -> None:
        if self.outcome.kind == "passed":
            self.outcome = of_exception(error[1])

    def addError(self, test, err) -> None:
        self._failed(test, err)

    addFailure = addError

    def addSubTest(self, test, subtest, err) -> None:
        if err is not None:
            self._failed(test, err)

    def addSkip(self, test, reason: str) -> None:
        self.outcome = Outcome("skipped", reason)

    def addExpectedFailure(self, test, err) -> None:
        self.outcome = Outcome("skipped", "expected to fail")

    def addUnexpectedSuccess(self, test) -> None:
        self.outcome = Outcome("skipped", "expected to fail")
