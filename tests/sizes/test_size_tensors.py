"""Tensors of one number that are computed from sizes which vary."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder

PROGRAMS: dict[str, Callable[..., Any]] = {
    "tensor": lambda x, table: torch.tensor(x.shape[0]) + x,
    "float": lambda x, table: torch.tensor(x.shape[0], dtype=torch.float32) * x,
    "as_tensor": lambda x, table: torch.as_tensor(x.shape[0]) * 2,
    "scalar_tensor": lambda x, table: torch.scalar_tensor(x.shape[0]) * 2,
    "requires grad": lambda x, table: torch.tensor(float(x.shape[1]), requires_grad=True) * x,
    "item": lambda x, table: x.new_zeros(torch.tensor(x.shape[0]).item() + 1),
    "arithmetic": lambda x, table: torch.arange((torch.tensor(x.shape[0]) * 2 - 1).item()),
    "slice": lambda x, table: table[16 - torch.tensor(x.shape[0]) : 16 + torch.tensor(x.shape[0])],
    "division": lambda x, table: table[: torch.tensor(x.shape[0]) // 2].sum(0),
    "written": lambda x, table: x.new_zeros(torch.tensor(x.shape[0]).add_(1).item()),
    "compared": lambda x, table: x * 2 if torch.tensor(x.shape[0]).item() < 100 else x,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_is_one_for_all_sizes(name: str) -> None:
    program = PROGRAMS[name]
    compiled = thunder.jit(program)
    table = torch.randn(32, 3)
    for rows in (3, 4, 5, 7, 8):
        x = torch.randn(rows, 2)
        torch.testing.assert_close(compiled(x, table), program(x, table))
    if name != "written":
        assert len(thunder.explain(compiled).entries) == 2
