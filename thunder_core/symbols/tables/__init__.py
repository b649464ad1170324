"""The tables of PyTorch's operations: rows by area, one file each. Plugins add those of other operations."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Final

from thunder_core.symbols.row import Row

AREAS: Final = (
    "python",
    "unary",
    "binary",
    "reductions",
    "matmul",
    "shape",
    "indexing",
    "creation",
    "conversion",
    "activations",
    "layers",
    "losses",
    "random",
    "fft",
    "linear_algebra",
)
"""Modules of this package, each with a list ``ROWS``."""


def all_rows() -> Iterator[Row]:
    """The rows of every table."""
    for area in AREAS:
        yield from import_module(f"{__name__}.{area}").ROWS
