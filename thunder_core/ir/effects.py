"""What a bound symbol does besides computing its outputs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

WAITS: Final = ""
"""The channel of calls that wait for a communication to end, whatever its process group."""


@dataclass(frozen=True, slots=True)
class Effects:
    """Effects of one call, observed on fake tensors and from operator schemas.

    Attributes:
        mutates: names of the argument proxies whose storage the call writes.
        random: the call consumes the state of a random number generator; it keeps its order and is never
            removed, merged or recomputed.
        external: the call does something that is visible outside its tensors (hooks, printing, autograd metadata, what
            is not understood); it keeps its order among all calls with effects and is never removed or merged.
        channels: names of the process groups that the call communicates in, or `WAITS`. It keeps its order among the
            calls of each channel, and is never removed or merged.
    """

    mutates: tuple[str, ...] = ()
    random: bool = False
    external: bool = False
    channels: tuple[str, ...] = ()

    @property
    def pure(self) -> bool:
        """True when the call may be removed if unused and merged with an equal one."""
        return not (self.mutates or self.random or self.external or self.channels)

    @property
    def kept(self) -> bool:
        """True when the call is never removed, though nobody reads what it computes or writes."""
        return self.random or self.external or bool(self.channels)

    @property
    def visible(self) -> bool:
        """True when the call does something that is visible outside of its tensors and of random number generators."""
        return self.external or bool(self.channels)

    @property
    def groups(self) -> tuple[str, ...]:
        """The process groups that the call communicates in."""
        return tuple([channel for channel in self.channels if channel != WAITS])


PURE = Effects()


def joined(effects: Iterable[Effects], mutates: tuple[str, ...] = ()) -> Effects:
    """The effects of calls that are one call to others, which see writes to ``mutates`` only."""
    effects = tuple(effects)
    return Effects(
        mutates,
        any(each.random for each in effects),
        any(each.external for each in effects),
        tuple(dict.fromkeys(channel for each in effects for channel in each.channels)),
    )
