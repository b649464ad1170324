"""Rows of the table of operators."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


class Kind(enum.Enum):
    """What an operator does, as far as regions are chosen by it."""

    COMPUTES = enum.auto()
    MOVES = enum.auto()  # elements to other places: nothing is computed
    INDEXES = enum.auto()  # reads elements at positions that are data


@dataclass(frozen=True, slots=True)
class Row:
    """One operator that nvFuser runs.

    Attributes:
        operator: of ``torch.ops``, or a torch function that is taken before it is lowered.
        build: writes it down: called with the `Definition`, then with the operator's arguments, in which values stand
            for tensors. Returns the value of each result. Values are converted to the dtype of the result afterwards.
        check: called with the operator's arguments, in which proxies stand for tensors. Returns why nvFuser does not
            run this call, or None.
        kind: see there.
        option: name of the option that allows it; empty: it is always allowed.
    """

    operator: Callable[..., Any]
    build: Callable[..., Any]
    check: Callable[..., str | None] | None = None
    kind: Kind = Kind.COMPUTES
    option: str = ""
