"""A module with sibling linear layers, and the ways in which its weights change."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class Projections(nn.Module):
    """Query, key and value, with different sizes and biases, and one layer of another size."""

    def __init__(self, bias: bool = True) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.query, self.key, self.value = (nn.Linear(6, size, bias) for size in (8, 4, 4))
        self.out = nn.Linear(8, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.cat([self.query(x)[..., :4] + self.key(x), self.value(x)], -1))


def write_in_place(module: Any) -> None:
    module.key.weight.mul_(2)


def write_data(module: Any) -> None:
    module.key.weight.data.mul_(2)


def replace_data(module: Any) -> None:
    module.key.weight.data = torch.randn(4, 6)


def replace_parameter(module: Any) -> None:
    module.key.weight = nn.Parameter(torch.randn(4, 6))


def move(module: Any) -> None:
    module.double().float()


def load(module: Any) -> None:
    module.load_state_dict({name: value * 2 for name, value in module.state_dict().items()})


def step(module: Any) -> None:
    for parameter in module.parameters():
        parameter.grad = torch.ones_like(parameter)
    torch.optim.AdamW(module.parameters(), lr=0.1).step()


WRITES = [write_in_place, write_data, replace_data, replace_parameter, move, load, step]
