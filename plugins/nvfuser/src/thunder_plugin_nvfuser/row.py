"""Rows of the table of operators."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


class Kind(enum.Enum):
    """The kind of an operator, for the selection of regions."""

    COMPUTES = enum.auto()
    MOVES = enum.auto()  # moves elements, without computation
    INDEXES = enum.auto()  # indexes by tensors


@dataclass(frozen=True, slots=True)
class Row:
    """An operator that nvFuser supports.

    Attributes:
        operator: an operator of ``torch.ops``, or a torch function that is not lowered.
        build: writes the operator: called with the `Definition` and the operator's arguments, with values in place of
            tensors. Returns the value of each result, which is then cast to the dtype of the result.
        check: called with the operator's arguments, with proxies in place of tensors. Returns the reason for declining
            the call, or None.
        kind: the kind of the operator.
        option: name of the option that enables it; empty if it is always enabled.
    """

    operator: Callable[..., Any]
    build: Callable[..., Any]
    check: Callable[..., str | None] | None = None
    kind: Kind = Kind.COMPUTES
    option: str = ""
