"""Checkpoint regions, also those that write to tensors from outside of the region."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

import torch
import torch.utils.checkpoint as torch_checkpoint

from thunder_core.ir.symbol import Symbol, Tag
from thunder_core.pytorch_internals import storage_identity

# The tensors that the current region writes, each with the tensor that backward writes instead. A nested region must
# read this in the first run, since backward reruns the objects that the first run created.
_replaced: ContextVar[tuple[tuple[torch.Tensor, torch.Tensor], ...]] = ContextVar("_replaced", default=())


def checkpoint_with_writes(
    body: Callable[..., Any],
    saved: tuple[int, ...],
    *operands: Any,
    again: Mapping[int, torch.Tensor | None] = MappingProxyType({}),
    use_reentrant: bool,
    **options: Any,
) -> Any:
    """``torch.utils.checkpoint.checkpoint(body, *operands)``, where ``body`` writes or captures some of the operands.

    Backward, which runs ``body`` again, writes again, as it does for what a region writes in eager. PyTorch's
    checkpoint refuses arguments that it finds changed in backward, so that it is not given these operands.

    Args:
        saved: positions of the operands that are saved.
        again: by the position of an operand that ``body`` writes, the tensor that backward writes instead; None
            for the operand itself.
        use_reentrant: whether backward reruns all of ``body`` instead of only as far as needed. The gradients are the
            same.
        options: options of PyTorch's checkpoint.
    """
    targets = {position: operands[position] for position in saved}
    later = {
        position: again[position] if position in again else _in_backward(target) for position, target in targets.items()
    }

    def run(*given: Any) -> Any:
        remaining = iter(given)
        arguments = [targets[position] if position in targets else next(remaining) for position in range(len(operands))]
        replaced = [(targets[position], target) for position, target in later.items() if target is not None]
        targets.update((position, target) for position, target in later.items() if target is not None)
        later.clear()
        token = _replaced.set(tuple(replaced))
        try:
            return body(*arguments)
        finally:
            _replaced.reset(token)

    given = [operand for position, operand in enumerate(operands) if position not in targets]
    if use_reentrant:
        options["early_stop"] = False
    return torch_checkpoint.checkpoint(run, *given, use_reentrant=False, **options)


def _in_backward(target: torch.Tensor) -> torch.Tensor | None:
    for now, then in _replaced.get():
        shared = storage_identity(target.untyped_storage()) == storage_identity(now.untyped_storage())
        if shared and target.dtype == now.dtype:
            offset = then.storage_offset() + target.storage_offset() - now.storage_offset()
            return then.as_strided(target.shape, target.stride(), offset)
    return None


CHECKPOINT = Symbol(
    "torch.utils.checkpoint.checkpoint", torch_checkpoint.checkpoint, tags=frozenset({Tag.HIGHER_ORDER})
)
CHECKPOINT_WITH_WRITES = Symbol(
    "thunder_core.symbols.checkpointing.checkpoint_with_writes",
    checkpoint_with_writes,
    tags=frozenset({Tag.HIGHER_ORDER, Tag.RECOMPUTED}),
)
