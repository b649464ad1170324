"""Python's garbage collector while a program is compiled."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_BY_PYTHON: Final = 1000
"""More objects than Python freezes when it starts (375 in 3.12, none in 3.11 and 3.13), and far fewer than users do."""
_YOUNG: Final = 50_000
"""New objects before the collector looks at them, instead of Python's 700 to 2,000."""


@contextmanager
def frozen_heap() -> Iterator[None]:
    """Keep the garbage collector off the objects that exist already, and have it look at new ones more rarely.

    Compiling makes many objects that live on, and so has the collector walk through everything, again and again: the
    million objects of PyTorch and of the user took a sixth of the first step of a model whose regions are on disk, and
    new ones a twentieth of the acquisition of a model. Objects that the user has frozen stay so, and so does a
    threshold that the user, or the program, has set higher or to zero.
    """
    if gc.get_freeze_count() > _BY_PYTHON:  # by the user, or by a compilation around this one
        yield
        return
    gc.freeze()
    young, *older = gc.get_threshold()
    raised = (_YOUNG, *older) if 0 < young < _YOUNG else (young, *older)
    gc.set_threshold(*raised)
    try:
        yield
    finally:
        if gc.get_threshold() == raised:
            gc.set_threshold(young, *older)
        gc.unfreeze()
