"""What a bound symbol does besides computing its outputs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Effects:
    """Effects of one call, observed on fake tensors and from operator schemas.

    Attributes:
        mutates: names of the argument proxies whose storage the call writes.
        random: the call consumes the state of a random number generator; it keeps its order and is never
            removed, merged or recomputed.
        external: the call does something that is visible outside its tensors (hooks, printing, communication,
            autograd metadata); it keeps its order and is never removed or merged.
    """

    mutates: tuple[str, ...] = ()
    random: bool = False
    external: bool = False

    @property
    def pure(self) -> bool:
        """True when the call may be removed if unused and merged with an equal one."""
        return not (self.mutates or self.random or self.external)


PURE = Effects()
