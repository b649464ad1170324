"""Checkpoint regions that write tensors from outside."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

import torch
import torch.utils.checkpoint as torch_checkpoint

from thunder_core.ir.symbol import Symbol, Tag
from thunder_core.pytorch_internals import storage_identity

# What the region that runs now writes, with what backward writes instead. Of regions inside of regions backward runs
# what the first run left behind, so they must know of it then.
_replaced: ContextVar[tuple[tuple[torch.Tensor, torch.Tensor], ...]] = ContextVar("_replaced", default=())


def checkpoint_with_writes(
    body: Callable[..., Any],
    kept: tuple[int, ...],
    *operands: Any,
    again: Mapping[int, torch.Tensor | None] = MappingProxyType({}),
    use_reentrant: bool,
    **options: Any,
) -> Any:
    """``torch.utils.checkpoint.checkpoint(body, *operands)``, where ``body`` writes or captures some of the operands.

    Backward, which runs ``body`` again, writes again, as it does for what a region writes in eager. PyTorch's
    checkpoint refuses arguments that it finds changed in backward, so that it is not given these operands.

    Args:
        kept: positions of the operands that are saved.
        again: by the position of an operand that ``body`` writes the tensor that backward writes in its place; None for
            the operand itself.
        use_reentrant: whether backward runs all of ``body``, not only as far as it needs. Gradients go through it as
            through others either way.
        options: of PyTorch's checkpoint.
    """
    targets = {place: operands[place] for place in kept}
    later = {place: again[place] if place in again else _in_backward(target) for place, target in targets.items()}

    def run(*given: Any) -> Any:
        remaining = iter(given)
        arguments = [targets[place] if place in targets else next(remaining) for place in range(len(operands))]
        replaced = [(targets[place], target) for place, target in later.items() if target is not None]
        targets.update((place, target) for place, target in later.items() if target is not None)
        later.clear()
        token = _replaced.set(tuple(replaced))
        try:
            return body(*arguments)
        finally:
            _replaced.reset(token)

    given = [operand for place, operand in enumerate(operands) if place not in targets]
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


CHECKPOINT_WITH_WRITES = Symbol(
    "thunder_core.symbols.checkpointing.checkpoint_with_writes",
    checkpoint_with_writes,
    tags=frozenset({Tag.HIGHER_ORDER, Tag.RECOMPUTED}),
)
