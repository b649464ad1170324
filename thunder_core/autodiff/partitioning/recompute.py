"""Recompute policies: the ops that backward may recompute, and the cost of doing so."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from thunder_core.autodiff.partitioning.work import Work, fresh_outputs
from thunder_core.errors import OptionError
from thunder_core.ir.bound_symbol import BoundSymbol, tensor_inputs_of
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.storage_sizes import element_bytes

_LAUNCH_BYTES: Final = 8 << 20
"""The cost of a kernel launch as traffic: two microseconds at 4 TB/s."""

_OPERATIONS_PER_BYTE: Final = 200
"""Floating-point operations in the time in which one byte is moved: 300-600 TFLOP/s against 2-4 TB/s."""


@dataclass(frozen=True, slots=True)
class Policy:
    """The ops that may be recomputed, and the bytes that recomputing them must save.

    Attributes:
        free: the highest cost class that is free to recompute.
        limit: the highest cost class that may be recomputed.
        weight: bytes that must be saved for each byte of `cost` of an op above ``free``.
        launch: bytes that must be saved for each call, in addition.
        element: for programs with regions: bytes that must be saved for each element that an elementwise op computes
            whose results are not materialized, in place of the above; residual streams are saved. None for programs
            without regions.
    """

    free: Work
    limit: Work
    weight: float = 0.0
    launch: int = _LAUNCH_BYTES
    element: float | None = None

    def price(self, op: BoundSymbol, work: Work, *, stream: bool = False, materialized: bool = False) -> int | None:
        """Bytes that recomputing the op must save; None if it must not be recomputed.

        Args:
            stream: a result is a part of a residual stream.
            materialized: a contraction of backward reads a result, so that no region can leave it in registers.
        """
        if work > self.limit or (stream and work > self.free and self.element is not None):
            return None
        if work <= self.free:
            return 0
        if work is Work.ELEMENTWISE and not materialized and self.element is not None:
            return math.ceil(self.element * sum(map(_elements, fresh_outputs(op))))
        return math.ceil(self.weight * (self.launch + cost(op, work)))


@dataclass(frozen=True, slots=True)
class Budget:
    """Save at most ``fraction`` of the bytes that the default policy saves, if any choice does."""

    fraction: float


DEFAULT: Final = "cheap"

POLICIES: Final = {
    "none": Policy(Work.VIEW, Work.VIEW),
    # Without fusion, recomputing an op costs its traffic; saving its result would have cost backward nothing. With a
    # weight of one half, an op is recomputed only if it writes more than it reads, by more than a launch costs: masks,
    # casts to wider dtypes, expanded copies. By arithmetic, in a layer of Llama-2-7B (8,192 tokens in bfloat16, 16 ms
    # at 600 TFLOP/s) these are the float copies in two norms, 0.1 ms at 4 TB/s. A weight of one third would add the
    # activation, and exceed 1 %.
    "cheap": Policy(Work.VIEW, Work.ELEMENTWISE, 1 / 2),
    # Fused elementwise ops cost almost nothing. The weight of other ops prevents that small statistics (mean and
    # variance of each row of a normalization) are recomputed from their large arguments. Since elementwise ops are
    # free, this policy never saves more than "cheap".
    "aggressive": Policy(Work.ELEMENTWISE, Work.PASS, 1 / 64),
}

FUSED: Final = {
    # A recomputed op becomes part of the region that reads its result: this avoids writing and reading the result, and
    # costs reading the arguments, unless the region reads them anyway. Measured on an H200 with TinyLlama 1.1B and
    # regions by Inductor (`benchmarks train-step`): 113.8 ms a step and 16.4 GiB in bfloat16, 131.9 ms and 24.8 GiB
    # under autocast. With elementwise ops alone, at a weight of one eighth: 115.3 ms and 15.0 GiB, 135.5 ms and
    # 23.7 GiB. Such an op needs no launch. With the cost of one, programs with small tensors recompute almost nothing:
    # a nanoGPT on a CPU saves 9.3 MiB instead of 5.9, and takes 1 % longer.
    # Arithmetic is free in a kernel that waits for memory, so that an elementwise op costs only enough to prefer short
    # chains. Measured on an H200 under autocast, before and after: GPT-2 medium 50.9 and 50.6 ms, 14.9 and 10.3 GiB;
    # T5-large 62.3 and 62.5 ms, 22.0 and 21.5 GiB; BERT-large 48.3 and 48.2 ms, 10.0 GiB both. With this price for what
    # contractions read as well, and for the residual stream, BERT-large took 55.1 ms and 11.1 GiB, T5-large 65.3 ms.
    "cheap": Policy(Work.VIEW, Work.PASS, 1 / 4, launch=0, element=1 / 16),
}
"""Policies that replace those of the same name in `POLICIES` if an executor fuses ops of the program."""


def everything(weight: float) -> Policy:
    """The policy that may recompute every op that can run twice; the saved bytes increase with ``weight``."""
    return Policy(Work.VIEW, Work.CONTRACTION, weight)


def parse_policy(value: str | Mapping[str, float], fused: bool) -> Policy | Budget:
    """The policy for a value of the option: a name of `POLICIES`, or ``{"budget": fraction}``.

    Args:
        fused: whether an executor fuses ops of the program.

    Raises:
        OptionError: the value is neither.
    """
    if isinstance(value, str) and value in POLICIES:
        return FUSED.get(value, POLICIES[value]) if fused else POLICIES[value]
    if isinstance(value, Mapping) and value.keys() == {"budget"}:
        fraction = value["budget"]
        if isinstance(fraction, int | float) and 0 <= fraction < math.inf:
            return Budget(float(fraction))
    names = ", ".join(repr(name) for name in POLICIES)
    raise OptionError(
        f"recompute={value!r} is not a recompute policy",
        advice=(f"Pass {names}, or {{'budget': f}} with a number f of at least 0.",),
    )


def cost(op: BoundSymbol, work: Work) -> int:
    """The estimated run time of an op, in bytes that the device could move in that time."""
    read = {proxy.name: proxy for proxy in tensor_inputs_of(op)}
    tensors = [*read.values(), *fresh_outputs(op)]
    time = sum(map(element_bytes, tensors))
    return time + _operations(tensors) // _OPERATIONS_PER_BYTE if work is Work.CONTRACTION else time


def _operations(tensors: Iterable[TensorProxy]) -> int:
    """Floating-point operations of a contraction that reads and writes ``tensors``.

    A matmul does ``2 m k n``, and ``m k n`` is the square root of the product of the three sizes ``m k``, ``k n`` and
    ``m n``. For attention, convolutions and batched matmuls this is correct within a factor of ten.
    """
    sizes = sorted(map(_elements, tensors))
    return 2 * math.isqrt(math.prod(sizes[-3:])) if len(sizes) >= 3 else 0


def _elements(tensor: TensorProxy) -> int:
    return element_bytes(tensor) // tensor.dtype.itemsize
