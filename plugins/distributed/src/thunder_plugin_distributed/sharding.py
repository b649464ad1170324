"""How a parameter is divided among ranks: the argument of the ops that gather it and reduce its gradient."""

from __future__ import annotations

from typing import NamedTuple

import torch


class Sharding(NamedTuple):
    """How parameters are gathered, and how their gradients are reduced.

    It is a named tuple, so that it can be an argument of an op: a trace can print, compare and parse it.

    Attributes:
        size: the number of ranks that have shards. If it is 1, a shard is the whole parameter.
        group: the name of the process group of these ranks.
        dtype: the dtype of the gathered tensors; None for that of the shards.
        device: the device on which shards in host memory are gathered; gradients are copied back. Empty: the device of
            the shards.
        reduce_dtype: the dtype in which gradients are reduced; None for that of the cotangents.
        operation: the operation that reduces gradients, ``"avg"`` or ``"sum"``; ``""`` if they are not reduced.
        divisors: numbers by which gradients are divided, one after the other, before the reduction.
        last_divisor: the divisor of gradients after the reduction.
        scatter_group: the name of the process group of the reduce-scatter. Empty: ``group``.
        replica_group: the name of the process group of the ranks with the same shard, among which gradients are reduced
            after the reduce-scatter. Empty: there are no replicas.
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
        """Whether a shard of ``dtype`` is the whole parameter, and both it and its gradient are used unchanged."""
        return (
            self.size == 1
            and not self.replica_group
            and not self.device
            and {self.dtype, self.reduce_dtype} <= {None, dtype}
            and not self.divisors
            and self.last_divisor == 1
        )

    def padded(self, length: int) -> int:
        """The number of rows of the gathered tensor of a parameter with ``length`` rows, including padding."""
        return -(-length // self.size) * self.size
