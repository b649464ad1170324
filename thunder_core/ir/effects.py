"""Effects of a bound symbol: everything that it does besides computing its outputs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

WAITS: Final = ""
"""The channel of calls that wait for the end of a communication, in any process group."""


@dataclass(frozen=True, slots=True)
class Effects:
    """Effects of one call, observed on fake tensors and from operator schemas.

    Attributes:
        mutates: names of the argument proxies whose storage the call writes.
        random: the call advances a random number generator. Its order among random calls is preserved; it is never
            removed, merged or recomputed.
        external: the call has an effect visible outside its tensors (hooks, printing, autograd metadata, or an
            operator whose effects are unknown). Its order among all calls with effects is preserved; it is never
            removed or merged.
        channels: names of the process groups that the call communicates in, or `WAITS`. Its order among the calls of
            each channel is preserved; it is never removed or merged.
        uncounted: whether the call increases the ``_version`` of no argument that it writes, like `F.batch_norm`.
    """

    mutates: tuple[str, ...] = ()
    random: bool = False
    external: bool = False
    channels: tuple[str, ...] = ()
    uncounted: bool = False

    @property
    def pure(self) -> bool:
        """Whether the call has no effects: it may be removed if unused, and merged with an equal call."""
        return not (self.mutates or self.random or self.external or self.channels)

    @property
    def irremovable(self) -> bool:
        """Whether the call must stay even if neither its outputs nor the storages that it writes are read."""
        return self.random or self.external or bool(self.channels)

    @property
    def visible(self) -> bool:
        """Whether the call has an effect outside of its tensors and of random number generators."""
        return self.external or bool(self.channels)

    @property
    def groups(self) -> tuple[str, ...]:
        """The process groups that the call communicates in."""
        return tuple([channel for channel in self.channels if channel != WAITS])

    def without_writes(self) -> Effects:
        """The effects of the functional form of the call, which writes to none of its arguments."""
        return replace(self, mutates=(), uncounted=False)


PURE = Effects()


def joined(effects: Iterable[Effects], mutates: tuple[str, ...] = ()) -> Effects:
    """The effects of several calls combined to one, whose writes are ``mutates`` (others are internal)."""
    effects = tuple(effects)
    writing = [each.uncounted for each in effects if each.mutates]
    return Effects(
        mutates,
        any(each.random for each in effects),
        any(each.external for each in effects),
        tuple(dict.fromkeys(channel for each in effects for channel in each.channels)),
        bool(mutates and writing) and all(writing),
    )
