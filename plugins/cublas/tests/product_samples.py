"""Calls of the claimed functions that the executor takes, of matrices that are stored by rows and by columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F

Arguments = Iterator[tuple[tuple[Any, ...], dict[str, Any]]]
HALF = (torch.float16, torch.bfloat16)


def matrix(rows: int, columns: int, dtype: torch.dtype, device: str, by_columns: bool = False) -> torch.Tensor:
    found = torch.randn(columns, rows, dtype=dtype, device=device).t() if by_columns else None
    return torch.randn(rows, columns, dtype=dtype, device=device) if found is None else found


def linears(device: str, dtype: torch.dtype) -> Arguments:
    if dtype in HALF:
        x, weight = matrix(6, 8, dtype, device), matrix(4, 8, dtype, device)
        yield (x, weight, torch.randn(4, dtype=dtype, device=device)), {}
        yield (x.view(2, 3, 8), weight), {}
        yield (matrix(6, 8, dtype, device, True), matrix(4, 8, dtype, device, True)), {}


def products(device: str, dtype: torch.dtype) -> Arguments:
    if dtype in HALF:
        for one in (False, True):
            for other in (False, True):
                yield (matrix(6, 8, dtype, device, one), matrix(8, 4, dtype, device, other)), {}
        yield (matrix(6, 16, dtype, device)[:, 3:11], matrix(8, 4, dtype, device)), {}


def batched(device: str, dtype: torch.dtype) -> Arguments:
    yield from products(device, dtype)
    if dtype in HALF:
        yield (torch.randn(2, 3, 8, dtype=dtype, device=device), matrix(8, 4, dtype, device)), {}


def sums(device: str, dtype: torch.dtype) -> Arguments:
    for (a, b), _ in products(device, dtype):
        yield (matrix(6, 4, dtype, device), a, b), {}
        yield (torch.randn(4, dtype=dtype, device=device), a, b), {}


SAMPLES: dict[Any, Any] = {F.linear: linears, torch.matmul: batched, torch.mm: products, torch.addmm: sums}
