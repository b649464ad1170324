"""The machine's limits, measured in the same process: times of copies and of matmuls."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch

from benchmarks.operators.case import MatmulShape, Work
from benchmarks.operators.device_timing import medians

LARGE = {"cuda": (2**30, 8192), "cpu": (2**24, 512)}
"""Bytes of a large copy, and the size of a large square matmul, by device type."""


class Limits:
    """The limits of a device, with matmuls in ``dtype``."""

    def __init__(self, device: str, dtype: torch.dtype) -> None:
        self.device, self.dtype = device, dtype

    @functools.cache  # noqa: B019 - lives as long as its process
    def copy(self, traffic: int) -> float:
        """Seconds of a copy that reads and writes ``traffic`` bytes in total."""
        source = torch.zeros(max(1, traffic // 2), dtype=torch.uint8, device=self.device)
        return _seconds(functools.partial(torch.empty_like(source).copy_, source))

    @property
    def bandwidth(self) -> float:
        """Bytes per second that a large copy reads and writes."""
        size = 2 * LARGE[self.device][0]
        return size / self.copy(size)

    def work(self, work: Work, backward: bool) -> float:
        """Seconds of the matmuls of ``work``."""
        matmuls = [*work.matmuls, *(work.backward_matmuls if backward else ())]
        if matmuls:
            return sum(self.matmul(shape, work.float8) for shape in matmuls)
        size = LARGE[self.device][1]
        operations = work.forward + (work.backward if backward else 0)
        return operations * self.matmul((size, size, size), work.float8) / (2.0 * size**3)

    @functools.cache  # noqa: B019
    def matmul(self, sizes: MatmulShape, float8: bool) -> float:
        """Seconds of a matmul."""
        rows, columns, inner = sizes
        left = torch.randn(rows, inner, device=self.device, dtype=self.dtype)
        right = torch.randn(columns, inner, device=self.device, dtype=self.dtype)
        if not float8:
            return _seconds(functools.partial(torch.mm, left, right.t()))
        one = torch.ones((), device=self.device)
        sides = left.to(torch.float8_e4m3fn), right.to(torch.float8_e4m3fn).t()
        return _seconds(
            functools.partial(torch._scaled_mm, *sides, one, one, out_dtype=self.dtype, use_fast_accum=True)
        )


def _seconds(call: Callable[[], object]) -> float:
    for _ in range(3):
        call()
    return medians({"": call}, {})[""]
