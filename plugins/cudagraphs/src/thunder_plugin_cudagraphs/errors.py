"""Errors of captures, internal to this package: the program then runs without a graph."""

from __future__ import annotations


class CannotBeCaptured(RuntimeError):
    """A captured program has results that cannot be reconstructed after a replay, or takes too much memory."""
