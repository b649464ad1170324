"""What the machine can do, measured in the same process: copies and matrix products alone."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch

from benchmarks.operators.case import Product, Work
from benchmarks.operators.device_timing import medians

LARGE = {"cuda": (2**30, 8192), "cpu": (2**24, 512)}
"""Bytes of a large copy, and the sizes of a large product, by type of the device."""


class Limits:
    """Those of a device, for a dtype of matrix products."""

    def __init__(self, device: str, dtype: torch.dtype) -> None:
        self.device, self.dtype = device, dtype

    @functools.cache  # noqa: B019 - lives as long as its process
    def copy(self, traffic: int) -> float:
        """Seconds of a copy that reads and writes ``traffic`` bytes together."""
        source = torch.zeros(max(1, traffic // 2), dtype=torch.uint8, device=self.device)
        return _seconds(functools.partial(torch.empty_like(source).copy_, source))

    @property
    def bandwidth(self) -> float:
        """Bytes a second of a large copy, read and written."""
        size = 2 * LARGE[self.device][0]
        return size / self.copy(size)

    def work(self, work: Work, backward: bool) -> float:
        """Seconds that the products of ``work`` take."""
        products = [*work.products, *(work.backward_products if backward else ())]
        if products:
            return sum(self.product(product, work.float8) for product in products)
        size = LARGE[self.device][1]
        operations = work.forward + (work.backward if backward else 0)
        return operations * self.product((size, size, size), work.float8) / (2.0 * size**3)

    @functools.cache  # noqa: B019
    def product(self, sizes: Product, float8: bool) -> float:
        """Seconds of a matrix product."""
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
