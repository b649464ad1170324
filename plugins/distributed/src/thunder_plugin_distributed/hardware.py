"""The rates of a machine, for the cost model of compute and links.

`thunder simulate` and passes of plugins use it. It depends on data sheets alone, never on a measured time or on the
machine that compiles, so that all ranks get the same costs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    import torch

Positive = Annotated[float, Field(gt=0)]
Fraction = Annotated[float, Field(gt=0, le=1)]


class _Options(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Link(_Options):
    """A connection between ranks.

    Attributes:
        latency: seconds of one step between two ranks.
        bandwidth: bytes per second that each rank can send.
    """

    latency: Annotated[float, Field(ge=0)]
    bandwidth: Positive


class Hardware(_Options):
    """A device and its links to others.

    Attributes:
        name: for reports.
        flops: floating-point operations per second of matrix products, by the dtype's name in PyTorch; ``default`` for
            others.
        memory_bandwidth: bytes per second.
        memory: bytes of a device.
        ranks_per_node: how many ranks ``inside`` connects, in the order of their numbers.
        inside, outside: the links of process groups whose ranks are on one node, and of others.
        efficiency: the fraction of these rates that programs reach.
    """

    name: str
    flops: dict[str, Positive]
    memory_bandwidth: Positive
    memory: Positive
    ranks_per_node: Annotated[int, Field(ge=1)] = 8
    inside: Link
    outside: Link
    efficiency: Fraction = 0.7

    def compute_seconds(self, flops: float, moved: float, dtype: torch.dtype) -> float:
        """The time of an op with ``flops`` operations that moves ``moved`` bytes: the larger of both times."""
        rate = self.flops.get(str(dtype).removeprefix("torch."), self.flops["default"])
        return max(flops / rate, moved / self.memory_bandwidth) / self.efficiency

    def link(self, ranks: tuple[int, ...]) -> Link:
        """The link between the ranks of a process group."""
        return self.inside if len({rank // self.ranks_per_node for rank in ranks}) == 1 else self.outside

    def latency_seconds(self, ranks: tuple[int, ...]) -> float:
        """The latency of a collective: the steps of a tree."""
        return self.link(ranks).latency * (len(ranks) - 1).bit_length()

    def transfer_seconds(self, sent: float, ranks: tuple[int, ...]) -> float:
        """The time of the bytes that each rank sends in a collective."""
        return sent / self.link(ranks).bandwidth / self.efficiency

    def communication_seconds(self, sent: float, ranks: tuple[int, ...]) -> float:
        """The time of a collective in which each rank sends so many bytes."""
        return self.latency_seconds(ranks) + self.transfer_seconds(sent, ranks)


# Dense rates of the SXM modules: NVIDIA's data sheets of H100 (3.35 TB/s, 80 GB) and H200 (4.8 TB/s, 141 GB). NVLink
# has 900 GB/s in both directions; between nodes, one 400 Gbit/s InfiniBand port for each GPU. Latencies are
# assumptions, and so is `efficiency`.
_FLOPS: Final = {
    "bfloat16": 989.4e12, "float16": 989.4e12, "float32": 66.9e12, "float64": 66.9e12,
    "float8_e4m3fn": 1978.9e12, "float8_e5m2": 1978.9e12, "default": 66.9e12,
}  # fmt: skip
_INSIDE: Final = Link(latency=4e-6, bandwidth=450e9)
_OUTSIDE: Final = Link(latency=12e-6, bandwidth=50e9)
HARDWARE: Final = {
    "h100": Hardware(
        name="h100", flops=_FLOPS, memory_bandwidth=3.35e12, memory=80e9, inside=_INSIDE, outside=_OUTSIDE
    ),
    "h200": Hardware(
        name="h200", flops=_FLOPS, memory_bandwidth=4.8e12, memory=141e9, inside=_INSIDE, outside=_OUTSIDE
    ),
}
"""The machines that are known by name."""


def hardware_of(option: str | Hardware) -> Hardware:
    """The machine that an option names or describes."""
    return HARDWARE[option] if isinstance(option, str) else option
