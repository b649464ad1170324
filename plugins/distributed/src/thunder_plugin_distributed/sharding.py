"""How a parameter is divided among ranks: the argument of the ops that gather it and reduce its gradient."""

from __future__ import annotations

from typing import NamedTuple

import torch


class Sharding(NamedTuple):
    """How parameters are gathered, and how their gradients are reduced.

    A named tuple, since these are what an op can have as an argument besides numbers, texts and the like: a trace
    prints it, compares it and reads it back.

    Attributes:
        size: the number of ranks that have shards. If it is 1, shards are the whole.
        group: the name of their process group.
        dtype: that is gathered; None for that of the shards.
        device: that shards, which are in memory of the host, are copied to and gathered on; gradients are copied back.
            Empty: that of the shards.
        reduce_dtype: that gradients are reduced in; None for that of the cotangents.
        operation: by which gradients are reduced: ``"avg"`` or ``"sum"``; ``""`` if they are not.
        divisors: numbers that gradients are divided by, one after the other, before they are reduced.
        last_divisor: divides gradients after they are reduced.
        scatter_group: the name of the process group that gradients are reduced and scattered in. Empty: ``group``.
        replica_group: the name of the process group of the ranks with the same shard, among which gradients are reduced
            after that. Empty: there are none.
    """

    size: int
    group: str
    dtype: torch.dtype | None = None
    device: str = ""
    reduce_dtype: torch.dtype | None = None
    operation: str = "avg"
    divisors: tuple[float, ...] = ()
    last_divisor: float = 1.0
    scatter_group: str = ""
    replica_group: str = ""

    @property
    def unreduced(self) -> Sharding:
        """The same for gradients that are not reduced."""
        return Sharding(self.size, self.group, self.dtype, self.device, operation="")

    def is_kept(self, dtype: torch.dtype) -> bool:
        """Whether a shard of ``dtype``, which is the whole, is used as it is, and its gradient, too."""
        return (
            self.size == 1
            and not self.replica_group
            and not self.device
            and {self.dtype, self.reduce_dtype} <= {None, dtype}
            and not self.divisors
            and self.last_divisor == 1
        )

    def padded(self, length: int) -> int:
        """The rows of what is gathered of a parameter with ``length`` rows: all shards are as long as the first."""
        return -(-length // self.size) * self.size
