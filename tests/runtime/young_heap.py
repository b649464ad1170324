"""A heap of few objects, for tests that collect garbage or count objects."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def young_heap() -> Iterator[None]:
    """A context, or a decorator, that excludes existing objects from garbage collection and from ``gc.get_objects()``.

    A full collection takes a second among the objects of all tests, and milliseconds without them. These remain
    excluded afterwards, for the tests that follow.
    """
    gc.freeze()
    yield
