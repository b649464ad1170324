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

_thaw: Final[dict[int, Callable[[], None]]] = {}
"""By thread, what ends its context."""


@contextmanager
def frozen_heap(*, imports: bool = False) -> Iterator[None]:
    """A context that excludes existing objects from garbage collection, and collects new ones less often.

    A compilation creates many long-lived objects, which triggers repeated full collections. Scanning the million
    objects of PyTorch and of the user took a sixth of the first step of a model whose regions are on disk; new objects
    took a twentieth of the acquisition of a model. Objects that the user has frozen remain frozen, and no others are
    then frozen; a threshold that the user or the program has raised or set to zero remains unchanged.

    Args:
        imports: the new objects are those of imported modules, which live as long as the process: nothing is collected
            meanwhile, and they join the oldest objects.
    """
    if _thaw:  # a compilation around this one, or of another thread
        yield
        return
    freezes = gc.get_freeze_count() <= _BY_PYTHON
    if freezes:
        gc.freeze()
    young, *older = gc.get_threshold()
    raised = (0 if imports else _YOUNG, *older) if 0 < young < _YOUNG else (young, *older)
    gc.set_threshold(*raised)

    def thaw() -> None:
        if gc.get_threshold() == raised:
            gc.set_threshold(young, *older)
        if freezes and imports:
            gc.freeze()
        if freezes:
            gc.unfreeze()

    thread = threading.get_ident()
    _thaw[thread] = thaw
    try:
        yield
    finally:
        del _thaw[thread]
        thaw()


@in_child
def _thaw_in_child() -> None:
    for thread in _thaw.keys() - {threading.get_ident()}:
        _thaw.pop(thread)()
