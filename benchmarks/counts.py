"""Numbers on the command line."""

from __future__ import annotations

from argparse import ArgumentTypeError


def positive(text: str) -> int:
    """A count of what there must be one of.

    Raises:
        ArgumentTypeError: it is no whole number, or less than 1.
    """
    return _at_least(1, text)


def natural(text: str) -> int:
    """A count of what there may be none of.

    Raises:
        ArgumentTypeError: it is no whole number, or less than 0.
    """
    return _at_least(0, text)


def _at_least(least: int, text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least:
        raise ArgumentTypeError(f"must be a whole number of at least {least}, not {text!r}")
    return value
