"""What may be computed again for backward, and at what price."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from thunder_core.autodiff.memory import element_bytes
from thunder_core.autodiff.work import Work, fresh_outputs
from thunder_core.errors import OptionError
from thunder_core.ir.bound_symbol import BoundSymbol, tensor_inputs_of
from thunder_core.ir.proxy import TensorProxy

_LAUNCH_BYTES: Final = 8 << 20
"""What a call costs besides its work, as traffic: two microseconds between two kernels at 4 TB/s."""

_OPERATIONS_PER_BYTE: Final = 200
"""Floating-point operations in the time in which one byte is moved: 300-600 TFLOP/s against 2-4 TB/s."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What may be computed again, and the bytes that doing so must save.

    Attributes:
        free: the most work that costs nothing.
        limit: the most work that is done again.
        weight: bytes that must be saved for each byte of cost (see `cost`) of the work above ``free``.
        launch: what each call costs besides its work, in bytes.
    """

    free: Work
    limit: Work
    weight: float = 0.0
    launch: int = _LAUNCH_BYTES

    def price(self, line: BoundSymbol, work: Work) -> int | None:
        """Bytes that running the line again must save; None when it may not run again."""
        if work > self.limit:
            return None
        return 0 if work <= self.free else math.ceil(self.weight * (self.launch + cost(line, work)))


@dataclass(frozen=True, slots=True)
class Budget:
    """Save at most ``fraction`` of the bytes that the default policy saves, if any choice does."""

    fraction: float


DEFAULT: Final = "cheap"

POLICIES: Final = {
    "none": Policy(Work.VIEW, Work.VIEW),
    # Without fusion, a line that runs again costs its traffic: saving its result would have cost backward nothing. With
    # a weight of one half, a line is run again only when it writes more than it reads, by more than a launch is worth:
    # masks, conversions to wider types, expanded copies. By arithmetic, for a layer of Llama-2-7B (8,192 tokens in
    # bfloat16, 16 ms at 600 TFLOP/s): those are the float copies in two norms, 0.1 ms at 4 TB/s. A weight of one third
    # would add the activation, and cross 1 %.
    "cheap": Policy(Work.VIEW, Work.ELEMENTWISE, 1 / 2),
    # Elementwise lines are as good as free once they are fused. The weight of the others keeps small statistics (a mean
    # and a variance for each row of a normalization) from being computed again from all that they summarize. That
    # elementwise lines cost nothing also guarantees that no more is saved than by "cheap".
    "aggressive": Policy(Work.ELEMENTWISE, Work.PASS, 1 / 64),
}

FUSED: Final = {
    # Where lines become regions, one that runs again joins the region of its readers: it saves writing its result and
    # reading it again, and costs reading its arguments, if the region does not read them anyway. Measured on an H200
    # with TinyLlama 1.1B and regions by Inductor (`benchmarks train-step`): 113.8 ms a step and 16.4 GiB in bfloat16,
    # 131.9 ms and 24.8 GiB under autocast. Elementwise lines alone, at a weight of one eighth: 115.3 ms and 15.0 GiB,
    # 135.5 ms and 23.7 GiB. It is no call of its own: with one's price, programs with smaller tensors save about all, a
    # nanoGPT for a CPU 9.3 MiB instead of 5.9, and take 1 % longer.
    "cheap": Policy(Work.VIEW, Work.PASS, 1 / 4, launch=0),
}
"""What some policies are instead in programs whose lines an executor fuses."""


def everything(weight: float) -> Policy:
    """All that can run again may, at one price for a byte; what is saved grows with ``weight``."""
    return Policy(Work.VIEW, Work.CONTRACTION, weight)


def parse_policy(value: str | Mapping[str, float], fused: bool = False) -> Policy | Budget:
    """The policy that an option means: a name of `POLICIES`, or ``{"budget": fraction}``.

    Args:
        fused: whether an executor fuses the lines of the program.

    Raises OptionError for anything else.
    """
    if isinstance(value, str) and value in POLICIES:
        return FUSED.get(value, POLICIES[value]) if fused else POLICIES[value]
    if isinstance(value, Mapping) and value.keys() == {"budget"}:
        fraction = value["budget"]
        if isinstance(fraction, int | float) and 0 <= fraction < math.inf:
            return Budget(float(fraction))
    names = ", ".join(repr(name) for name in POLICIES)
    raise OptionError(
        f"recompute={value!r} is no policy",
        advice=(f"Pass {names}, or {{'budget': f}} with a number f of at least 0.",),
    )


def cost(line: BoundSymbol, work: Work) -> int:
    """Time that the line's work takes, in bytes that the device could move meanwhile."""
    read = {proxy.name: proxy for proxy in tensor_inputs_of(line)}
    tensors = [*read.values(), *fresh_outputs(line)]
    time = sum(map(element_bytes, tensors))
    return time + _operations(tensors) // _OPERATIONS_PER_BYTE if work is Work.CONTRACTION else time


def _operations(tensors: Iterable[TensorProxy]) -> int:
    """Floating-point operations of a contraction that reads and writes ``tensors``.

    A product of matrices does ``2 m k n``, and ``m k n`` is the root of the product of the three sizes ``m k``, ``k n``
    and ``m n``. For attention, convolutions and batches this is right within a factor of ten.
    """
    sizes = sorted(element_bytes(tensor) // tensor.dtype.itemsize for tensor in tensors)
    return 2 * math.isqrt(math.prod(sizes[-3:])) if len(sizes) >= 3 else 0
