"""How the batteries compile programs, by name; picklable, so that they can be sent to worker processes.

The environment variable THUNDER_TEST_SUBJECT chooses one. ``eager`` compiles nothing: what a battery says about it, it
says about itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import thunder

Compile = Callable[..., Any]


def eager(function: Any, **options: Any) -> Any:
    """No compilation at all."""
    return function


def reference(function: Any, **options: Any) -> Any:
    """The reference executor alone."""
    return thunder.jit(function, executors=[], **options)


def default(function: Any, **options: Any) -> Any:
    """The best that is installed."""
    return thunder.jit(function, **options)


def aggressive(function: Any, **options: Any) -> Any:
    """The reference executor; training computes again what it can."""
    return thunder.jit(function, executors=[], recompute="aggressive", **options)


def budget(function: Any, **options: Any) -> Any:
    """The reference executor; training computes as much again as halves what it saves."""
    return thunder.jit(function, executors=[], recompute={"budget": 0.5}, **options)


SUBJECTS: dict[str, Compile] = {
    subject.__name__: subject for subject in (eager, reference, default, aggressive, budget)
}
SUBJECT = SUBJECTS[os.environ.get("THUNDER_TEST_SUBJECT", "reference")]


def hit_counter(compile: Compile) -> Callable[[Any], int] | None:
    """What counts the cache hits of callables made by ``compile``; None if nothing does."""
    return None if compile is eager else thunder.cache_hits
