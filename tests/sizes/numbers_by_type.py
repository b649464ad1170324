"""Programs that distinguish numbers by their classes, in a module that uses ``type`` only by calling it."""

from __future__ import annotations

from typing import Any

import torch


def types(x: torch.Tensor, m: float) -> Any:
    """Comparisons of classes."""
    n, value = x.shape[0], x.sum().item()
    kinds = type(n) is int, type(m) is float, type(value) in (int, float), {int: 1, float: 2}[type(n)]
    return x * m, kinds, type(n), type(m).__name__, n.__class__ is int, type(n + 1) is int, type(x) is torch.Tensor


def types_of_items(x: torch.Tensor, m: float) -> Any:
    """Items of containers."""

    def doubled(value: Any) -> Any:
        if type(value) in (list, tuple):
            return type(value)(map(doubled, value))
        return value * 2 if type(value) is int or isinstance(value, float) else value

    return doubled((m, [x.shape[0], x], "text"))


def created(x: torch.Tensor, m: float) -> Any:
    """A class of this module."""
    kind = type("Plain", (), {"one": 1})
    return x * m, type(m) is float, kind().one, kind.__module__, kind.__name__
