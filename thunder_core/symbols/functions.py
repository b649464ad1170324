"""Statements of Python written as functions, so that a trace can call them.

Each does what the statement does, in place, and returns the tensor.
"""

from __future__ import annotations

from typing import Any

import torch


def setitem(tensor: torch.Tensor, index: Any, value: Any) -> torch.Tensor:
    """``tensor[index] = value``."""
    tensor[index] = value
    return tensor


def setitem_copy(tensor: torch.Tensor, index: Any, value: Any) -> torch.Tensor:
    """What ``tensor`` would be after ``tensor[index] = value``, as a new tensor."""
    result = tensor.clone()
    result[index] = value
    return result


def set_attribute(tensor: torch.Tensor, name: str, value: Any) -> torch.Tensor:
    """``tensor.name = value`` for a property that has no function of its own here."""
    setattr(tensor, name, value)
    return tensor


def delete_attribute(tensor: torch.Tensor, name: str) -> torch.Tensor:
    """``del tensor.name``, as in ``del parameter.grad``."""
    delattr(tensor, name)
    return tensor


def set_data(tensor: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """``tensor.data = value``."""
    tensor.data = value
    return tensor


def set_grad(tensor: torch.Tensor, value: torch.Tensor | None) -> torch.Tensor:
    """``tensor.grad = value``."""
    tensor.grad = value
    return tensor


def set_requires_grad(tensor: torch.Tensor, value: bool) -> torch.Tensor:
    """``tensor.requires_grad = value``."""
    tensor.requires_grad = value
    return tensor
