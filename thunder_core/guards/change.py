"""What differs between a call and what a cache entry expects."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Change:
    """The first reason why an entry does not serve a call.

    Attributes:
        place: what changed: ``module.scale``.
        text: how, with the place: ``module.scale: expected 2, got 3``.
        remedy: how to change the program so that it is not compiled again for this.
    """

    place: str
    text: str
    remedy: str
