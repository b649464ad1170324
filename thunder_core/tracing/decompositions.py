"""PyTorch's decompositions into core ATen."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from thunder_core.pytorch_errata import with_wide_statistics, without_loss
from thunder_core.pytorch_internals import OpOverload, core_aten_decompositions


def decomposition_of(operator: OpOverload) -> Callable[..., Any]:
    """What performs an ATen operator by others; it returns NotImplemented for calls that stay as they are."""
    if operator.namespace == "prim":  # TorchScript's questions about metadata, which the dispatcher has no kernels for
        return _declined
    return _decompositions().get(operator, operator.decompose)


def is_core(operator: OpOverload) -> bool:
    """Whether all calls of an operator are core ATen."""
    return torch.Tag.core in operator.tags and operator not in _decompositions()


def _declined(*args: Any, **kwargs: Any) -> Any:
    return NotImplemented


@cache
def _decompositions() -> dict[Any, Callable[..., Any]]:
    """PyTorch's table without the operators that draw random numbers: theirs would draw others."""
    found = {
        op: function
        for op, function in core_aten_decompositions().items()
        if torch.Tag.nondeterministic_seeded not in getattr(op, "tags", ())
    }
    return {op: _or_kernel(op, function) for op, function in without_loss(found | with_wide_statistics(found)).items()}


def _or_kernel(operator: OpOverload, decomposition: Callable[..., Any]) -> Callable[..., Any]:
    """A decomposition that leaves the calls it declines to the operator's composite kernel, if it has one."""

    def decomposed(*args: Any, **kwargs: Any) -> Any:
        result = decomposition(*args, **kwargs)
        return operator.decompose(*args, **kwargs) if result is NotImplemented else result

    return decomposed
