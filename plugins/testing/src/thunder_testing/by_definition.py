"""An executor for tests that runs composites by their definition, each as one operation in forward and in backward.

It shows which composites, or other operations with a single kernel, a program contains.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch

import thunder
from thunder_core.executors import Claim, DerivativePair, OperatorExecutor
from thunder_core.ir.tree import map_leaves, tensors_in


def _pair(function: Callable[..., torch.Tensor]) -> DerivativePair:
    """A derivative pair that recomputes the function in backward."""

    def forward(*args: Any, **kwargs: Any) -> tuple[torch.Tensor, tuple[Any, ...]]:
        return function(*args, **kwargs), (args, kwargs)

    def backward(residuals: Any, cotangents: Any, wanted: tuple[bool, ...]) -> tuple[torch.Tensor | None, ...]:
        flags = iter(wanted)

        def leaf(value: Any) -> Any:
            return value.detach().requires_grad_(next(flags)) if isinstance(value, torch.Tensor) else value

        args, kwargs = map_leaves(leaf, residuals)
        tensors = tensors_in((args, kwargs))
        with torch.enable_grad():
            result = function(*args, **kwargs)
        gradients = iter(torch.autograd.grad(result, [one for one in tensors if one.requires_grad], cotangents))
        return tuple([next(gradients) if one else None for one in wanted])

    return DerivativePair(forward, backward)


def by_definition(
    *functions: Callable[..., torch.Tensor], check: Callable[..., bool | str] | None = None, name: str = "whole"
) -> OperatorExecutor:
    """An executor that runs functions by their definition. They take tensors and other values, and return one tensor.

    Args:
        check: from the arguments of a call to True, or the reason for declining. None: claim every call.
        name: name of the executor.
    """
    claims = [Claim(one, run=one, check=check, derivative=_pair(one)) for one in functions]
    return OperatorExecutor(name, tuple(claims))


def run_by(compiled: Any, name: str = "whole") -> dict[str, int]:
    """The number of calls of each function, by name, that the executor ``name`` runs in a compiled program."""
    ops = [op for op in thunder.explain(compiled).decisions if op.phase in ("inference", "forward")]
    return dict(Counter([op.symbol.rpartition(".")[2] for op in ops if op.executor == name]))
