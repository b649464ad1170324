"""The garbage collector while a program is compiled."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from thunder_core.forking import in_child

_BY_PYTHON: Final = 1000
"""More objects than Python freezes when it starts (375 in 3.12, none in 3.11 and 3.13), and far fewer than users do."""
_YOUNG: Final = 50_000
"""New objects before the collector looks at them, instead of Python's 700 to 2,000."""
_NEVER: Final = 2**31 - 1
"""Collections of younger objects before all objects are looked at, instead of Python's 10."""

_restore: Final[dict[int, Callable[[], None]]] = {}
"""By thread, what ends its context."""


@contextmanager
def postponed_collections(*, imports: bool = False) -> Iterator[None]:
    """A context in which the garbage collector leaves existing objects alone, and collects new ones less often.

    A compilation creates many long-lived objects, which triggers repeated full collections. Scanning the million
    objects of PyTorch and of the user took a sixth of the first step of a model whose regions are on disk; new objects
    took a twentieth of the acquisition of a model. A threshold that the user or the program has raised or set to zero
    remains unchanged. The objects are not frozen for a compilation: whether the user has frozen some can only be told
    by counting these, which takes 0.1 s for half a million.

    Args:
        imports: the new objects are those of imported modules, which live as long as the process: nothing is collected
            meanwhile, and they join the oldest objects, unless the user has frozen objects.
    """
    if _restore:  # a compilation around this one, or of another thread
        yield
        return
    thresholds = gc.get_threshold()
    young, middle, old = thresholds
    raised = (0 if imports else _YOUNG, middle, _NEVER if old else 0) if 0 < young < _YOUNG else thresholds
    gc.set_threshold(*raised)

    def restore() -> None:
        if gc.get_threshold() == raised:
            gc.set_threshold(*thresholds)
        if imports and gc.get_freeze_count() <= _BY_PYTHON:
            gc.freeze()
            gc.unfreeze()

    thread = threading.get_ident()
    _restore[thread] = restore
    try:
        yield
    finally:
        del _restore[thread]
        restore()


@in_child
def _restore_in_child() -> None:
    for thread in _restore.keys() - {threading.get_ident()}:
        _restore.pop(thread)()
