"""Puts another compiler in the place of ``torch.compile``, and of what its tests use beside it."""

from __future__ import annotations

import functools
import unittest
from collections.abc import Callable
from typing import Any

import torch
import torch._dynamo
import torch._dynamo.eval_frame
import torch._dynamo.test_case
import torch._dynamo.testing
import torch._dynamo.utils
from torch.testing._internal import common_utils

from tests.pytorch_programs.count import Count, Counter, Counts, Unknown

Compile = Callable[[Any], Any]
_COUNTERS = (
    "AotEagerAndRecordGraphs",
    "CompileCounter",
    "CompileCounterWithBackend",
    "EagerAndRecordGraphs",
    "InductorAndRecordGraphs",
)


class Replacement:
    """Replaces ``torch.compile`` in this process, for good, before test files are imported.

    Attributes:
        compiled: how many programs were given to it.
    """

    def __init__(self, compile: Compile) -> None:
        self.compiled = 0
        self._compile = compile
        torch.compile = self.compile
        for module in (torch._dynamo, torch._dynamo.eval_frame, torch._dynamo.testing):
            for name in ("optimize", "optimize_assert"):
                if hasattr(module, name):
                    setattr(module, name, self.optimize)
        _without_questions_to_dynamo()

    def compile(self, model: Any = None, *, disable: bool = False, **options: Any) -> Any:
        """In place of ``torch.compile``; its options say nothing about results."""
        if model is None:
            return functools.partial(self.compile, disable=disable)
        if disable:
            return model
        self.compiled += 1
        return self._compile(model)

    def optimize(self, *arguments: Any, disable: bool = False, **options: Any) -> Any:
        """In place of ``torch._dynamo.optimize`` and ``optimize_assert``."""
        return functools.partial(self.compile, disable=disable)


def _without_questions_to_dynamo() -> None:
    """Counters of Dynamo have every number, and assertions about texts that it writes hold."""
    for name in _COUNTERS:
        if hasattr(torch._dynamo.testing, name):
            setattr(torch._dynamo.testing, name, Counter)
    torch._dynamo.utils.counters = Counts()
    torch._dynamo.testing.normalize_gm = lambda text: Unknown()
    for case in (unittest.TestCase, common_utils.TestCase):
        for name in ("assertEqual", "assertNotEqual"):
            setattr(case, name, _unless_counted(getattr(case, name)))
    for name in ("assertExpectedInline", "assertExpectedRaisesInline", "assertExpected"):
        setattr(common_utils.TestCase, name, lambda *arguments, **options: None)


def _unless_counted(check: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(check)
    def checked(case: unittest.TestCase, first: Any, second: Any, *arguments: Any, **options: Any) -> None:
        if not isinstance(first, Count | Unknown) and not isinstance(second, Count | Unknown):
            check(case, first, second, *arguments, **options)

    return checked
