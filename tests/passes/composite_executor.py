"""An executor that runs each composite, forward and backward, by the function that defines it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch

import thunder
from thunder_core.executors import Claim, DerivativePair, OperatorExecutor
from thunder_core.ir.tree import iterate_leaves, map_leaves
from thunder_core.symbols import composites

NAMES = tuple(composites.__all__)


def pair(function: Callable[..., torch.Tensor]) -> DerivativePair:
    """A derivative that computes the function again for backward."""

    def forward(*args: Any, **kwargs: Any) -> tuple[torch.Tensor, tuple[Any, ...]]:
        return function(*args, **kwargs), (args, kwargs)

    def backward(residuals: Any, cotangents: Any, wanted: tuple[bool, ...]) -> tuple[torch.Tensor | None, ...]:
        flags = iter(wanted)

        def leaf(value: Any) -> Any:
            return value.detach().requires_grad_(next(flags)) if isinstance(value, torch.Tensor) else value

        args, kwargs = map_leaves(leaf, residuals)
        tensors = [value for value in iterate_leaves((args, kwargs)) if isinstance(value, torch.Tensor)]
        with torch.enable_grad():
            result = function(*args, **kwargs)
        gradients = iter(torch.autograd.grad(result, [one for one in tensors if one.requires_grad], cotangents))
        return tuple([next(gradients) if one else None for one in wanted])

    return DerivativePair(forward, backward)


def claims(*names: str, check: Callable[..., bool | str] | None = None) -> tuple[Claim, ...]:
    """Claims of composites; of all of them without names."""
    functions = [getattr(composites, name) for name in names or NAMES]
    return tuple([Claim(one, run=one, check=check, derivative=pair(one)) for one in functions])


def executor(*names: str, check: Callable[..., bool | str] | None = None, name: str = "whole") -> OperatorExecutor:
    """An executor of these composites."""
    return OperatorExecutor(name, claims(*names, check=check))


def found(compiled: Any, name: str = "whole") -> dict[str, int]:
    """How many composites the executor runs, of each."""
    lines = [line for line in thunder.explain(compiled).decisions if line.phase in ("inference", "forward")]
    return dict(Counter([line.symbol.rpartition(".")[2] for line in lines if line.executor == name]))
