"""``torch.compiler.reset()`` and ``torch._dynamo.reset()``, after which programs are compiled again.

PyTorch resets the backends that Dynamo has used, a dictionary that it empties then. A compilation adds an entry to it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Final, Protocol


class Forgets(Protocol):
    """Something with compiled programs."""

    def forget(self) -> None:
        """Forget them."""


_watched: Final[weakref.WeakSet[Forgets]] = weakref.WeakSet()
_others: Final[list[Callable[[], None]]] = []


class _Backend:
    """The entry among Dynamo's backends, none of which it is."""

    def reset(self) -> None:
        for each in tuple(_watched):
            each.forget()
        for forget in _others:
            forget()


_BACKEND: Final = _Backend()


def call_at_reset(forget: Callable[[], None]) -> None:
    """Call a function at each reset."""
    _others.append(forget)


def watch(programs: Forgets) -> None:
    """Call ``forget`` of an object at the next reset. It is not kept alive."""
    from thunder_core.pytorch_internals import cached_backends  # which imports Dynamo, as a compilation has

    _watched.add(programs)
    cached_backends.setdefault(id(_BACKEND), _BACKEND)
