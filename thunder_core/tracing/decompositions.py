"""PyTorch's decompositions into core ATen."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from thunder_core.pytorch_errata import correct_decompositions, with_wide_statistics
from thunder_core.pytorch_internals import OpOverload, core_aten_decompositions


def decomposition_of(operator: OpOverload) -> Callable[..., Any]:
    """A function that decomposes an ATen operator; it returns NotImplemented for calls that it does not decompose."""
    if operator.namespace == "prim":  # TorchScript's metadata queries, for which the dispatcher has no kernels
        return _declined
    return _decompositions().get(operator, operator.decompose)


def is_core(operator: OpOverload) -> bool:
    """Whether an operator has no decomposition, so that all its calls are core ATen."""
    return torch.Tag.core in operator.tags and operator not in _decompositions()


def _declined(*args: Any, **kwargs: Any) -> Any:
    return NotImplemented


@cache
def _decompositions() -> dict[Any, Callable[..., Any]]:
    """PyTorch's decomposition table without random operators, whose decompositions draw other numbers."""
    found = {
        op: function
        for op, function in core_aten_decompositions().items()
        if torch.Tag.nondeterministic_seeded not in getattr(op, "tags", ())
    }
    return {
        op: _or_kernel(op, function)
        for op, function in correct_decompositions(found | with_wide_statistics(found)).items()
    }


def _or_kernel(operator: OpOverload, decomposition: Callable[..., Any]) -> Callable[..., Any]:
    """A decomposition that falls back to the operator's composite kernel, if it has one, for calls it declines."""

    def decomposed(*args: Any, **kwargs: Any) -> Any:
        result = decomposition(*args, **kwargs)
        return operator.decompose(*args, **kwargs) if result is NotImplemented else result

    return decomposed
