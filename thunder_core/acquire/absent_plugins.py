"""Advice on plugins that the configuration names and that are not installed, for refusals of what they would record."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

_advice: Final[ContextVar[tuple[tuple[str, str], ...]]] = ContextVar("advice on absent plugins", default=())


@contextmanager
def without_plugins(advice: tuple[tuple[str, str], ...]) -> Iterator[None]:
    """Have refusals of calls that plugins can record say what to install, in this context.

    Args:
        advice: sentences, each with its subject. For each plugin with interceptions that the configuration names and
            that cannot be used they are the reason, and the command that installs it. The subject is the calls that
            the plugin records, ``communication`` for example; empty if they are unknown.
    """
    token = _advice.set(advice)
    try:
        yield
    finally:
        _advice.reset(token)


def advice_on_plugins(subject: str) -> tuple[str, ...]:
    """The advice of the current context on a subject, with that whose subject is unknown."""
    return tuple([text for about, text in _advice.get() if about in (subject, "")])
