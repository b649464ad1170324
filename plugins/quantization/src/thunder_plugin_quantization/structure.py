"""Copies of modules that share their tensors: a transform can change layers, and the user's module stays as it is."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from thunder_core.checks.originals import original_of
from thunder_core.errors import OptionError


def copy_with_same_tensors(module: nn.Module, *, frozen: bool = False) -> nn.Module:
    """A deep copy of a module, except for its parameters, buffers and other tensors, which are those of the module.

    Args:
        frozen: parameters that require gradients are new parameters of the copy, which share their data with the
            module's and require none. The module's are not changed.

    Raises:
        OptionError: an attribute of the module cannot be copied.
    """
    memo: dict[int, Any] = {}
    for owner in module.modules():
        own = [*owner.named_parameters(recurse=False), *owner.named_buffers(recurse=False), *vars(owner).items()]
        for _, value in own:
            if isinstance(value, Tensor) and id(value) not in memo:
                memo[id(value)] = _frozen(value) if frozen else value
    try:
        return copy.deepcopy(module, memo)
    except Exception as error:
        raise OptionError(
            f"{type(module).__name__} cannot be copied: {type(error).__name__}: {error}",
            advice=("change the module itself: set in_place to true", "wrap a module for several devices afterwards"),
        ) from error


def _frozen(value: Tensor) -> Tensor:
    if not isinstance(value, nn.Parameter) or not value.requires_grad:
        return value
    frozen = nn.Parameter(value.detach(), requires_grad=False)
    vars(frozen).update({name: item for name, item in vars(value).items() if name not in vars(frozen)})
    return frozen


def bytes_of(tensor: Tensor) -> int:
    """The bytes of a tensor, or of the tensors that it holds."""
    if not hasattr(tensor, "__tensor_flatten__") or type(tensor) in (Tensor, nn.Parameter):
        return tensor.numel() * tensor.element_size()
    return sum(bytes_of(getattr(tensor, name)) for name in tensor.__tensor_flatten__()[0])


def plain(tensor: Tensor) -> bool:
    """Whether the tensor is a dense tensor of PyTorch's own class, or a parameter of it."""
    return type(tensor) in (Tensor, nn.Parameter) and tensor.layout is torch.strided


def eager(module: nn.Module) -> nn.Module:
    """The original of a compiled module, else the module itself."""
    original = original_of(module)
    return original if isinstance(original, nn.Module) else module
