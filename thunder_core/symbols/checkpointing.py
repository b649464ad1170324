"""Checkpoint regions that write tensors from outside."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
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
    written: tuple[int, ...],
    *operands: Any,
    again: tuple[torch.Tensor | None, ...] = (),
    use_reentrant: bool,
    **options: Any,
) -> Any:
    """``torch.utils.checkpoint.checkpoint(body, *operands)``, where ``body`` writes some of the operands.

    Backward, which runs ``body`` again, writes again, as it does for what a region writes in eager. Arguments that
    PyTorch's checkpoint is given it refuses to find changed in backward; these it is not given.

    Args:
        written: positions of those operands.
        again: for each of them the tensor that backward writes in its place; None, or nothing for all, for itself.
        use_reentrant: whether backward runs all of ``body``, not only as far as it needs. Gradients go through it as
            through others either way.
        options: of PyTorch's checkpoint.
    """
    targets = {place: operands[place] for place in written}
    later = dict(zip(written, again or [_in_backward(target) for target in targets.values()], strict=True))

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
