"""Higher-order symbols that choose between programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from thunder_core.ir.symbol import Symbol, Tag


def cond(
    pred: torch.Tensor, true_branch: Callable[..., Any], false_branch: Callable[..., Any], operands: tuple[Any, ...]
) -> Any:
    """Run one of two branches, chosen by the value of a one-element tensor (semantics of ``torch.cond``)."""
    return true_branch(*operands) if pred else false_branch(*operands)


def call_module(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
    """Call a module as eager PyTorch does: its program depends on the values of its arguments."""
    return module(*args, **kwargs)


CALL_MODULE = Symbol("thunder_core.symbols.control_flow.call_module", call_module, tags=frozenset({Tag.AUTOGRAD}))
COND = Symbol("thunder_core.symbols.control_flow.cond", cond, tags=frozenset({Tag.HIGHER_ORDER}))
