"""A write to one tensor changes whether others require grad: those that are views of it, and the one that it is of."""

from __future__ import annotations

from typing import Final

import torch

from thunder_core.ir.symbol import Symbol, Tag


def rebased(tensor: torch.Tensor) -> torch.Tensor:
    """``tensor`` itself: an earlier line wrote to a tensor that shares its history, so that it requires grad now."""
    return tensor


REBASED: Final = Symbol("thunder_core.symbols.histories.rebased", rebased, tags=frozenset({Tag.SAME_OBJECT, Tag.SHAPE}))
