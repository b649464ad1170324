"""Tensors without data that represent the tensors of a call: of the meta device, and fake tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from thunder_core.errors import OptionError
from thunder_core.pytorch_internals import FakeTensor, make_wrapper_subclass, storage_identity


def is_specification(value: Any) -> bool:
    """Whether an argument represents a tensor whose data does not exist."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return False
    plain = type(value) in (torch.Tensor, torch.nn.Parameter)
    return isinstance(value, FakeTensor) or (plain and value.device.type == "meta")


def check_specifications(specifications: Sequence[torch.Tensor], advice: str) -> None:
    """Raise OptionError for specifications that are not supported.

    Args:
        advice: what to do about sizes that are not ints.
    """
    storages = set()
    for each in specifications:
        sizes: Sequence[Any] = (*each.shape, *each.stride(), each.storage_offset())
        if any(type(size) is not int for size in sizes):
            raise OptionError(
                f"the sizes of a specification are ints, and the shape of one is {tuple(each.shape)}", advice=(advice,)
            )
        storages.add(storage_identity(each.untyped_storage()))
    if len(storages) < len(specifications):
        raise OptionError("specifications share memory", advice=("give tensors with data instead",))


class _StandIn(torch.Tensor):
    """A tensor with metadata and without data, for which every operation is refused."""

    __torch_dispatch__ = None  # type: ignore[assignment]


def stand_in(specification: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A tensor without data that guards and recordings take for a tensor on ``device``."""
    made: torch.Tensor = make_wrapper_subclass(
        _StandIn,
        specification.shape,
        strides=specification.stride(),
        storage_offset=specification.storage_offset(),
        dtype=specification.dtype,
        layout=specification.layout,
        device=device,
        requires_grad=specification.requires_grad,
    )
    made.__class__ = torch.nn.Parameter if isinstance(specification, torch.nn.Parameter) else torch.Tensor
    return made
