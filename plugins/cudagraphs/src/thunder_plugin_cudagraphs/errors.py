"""What goes wrong in a capture, for this package alone: programs then run without a graph."""

from __future__ import annotations


class CannotBeCaptured(RuntimeError):
    """A captured program has results that cannot be made again."""
