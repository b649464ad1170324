"""Python's garbage collector while a program is compiled."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_BY_PYTHON: Final = 1000
"""More objects than Python freezes when it starts (375 in 3.12, none in 3.11 and 3.13), and far fewer than users do."""


@contextmanager
def frozen_heap() -> Iterator[None]:
    """What is there already is not looked at by the garbage collector; what is made from here on is.

    Compiling makes many objects that live on, and so has the collector walk through everything, again and again: the
    million objects of PyTorch and of the user took a sixth of the first step of a model whose regions are on disk.
    Objects that the user has frozen stay so.
    """
    if gc.get_freeze_count() > _BY_PYTHON:  # by the user, or by a compilation around this one
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
