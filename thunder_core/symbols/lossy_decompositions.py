"""PyTorch's decompositions that leave out what the operator itself does: checks of values, or values.

A line with such an operator stays as it is in core ATen, so that nobody runs it in parts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import torch

_aten: Final = torch.ops.aten
_OUT_OF_RANGE: Final = "decomposed, it takes negative indices for such that count from the end, where PyTorch raises"

# On a GPU the same checks are assertions of its kernels, after which no other kernel runs: no program relies on them.
_LOST_ON_CPU: Final[Mapping[Any, str]] = {
    _aten.binary_cross_entropy: "decomposed, it does not check that input and target are between 0 and 1",
    _aten.max_unpool2d: _OUT_OF_RANGE,
    _aten.max_unpool3d: _OUT_OF_RANGE,
}
_LOST: Final[Mapping[Any, str]] = {
    _aten.multilabel_margin_loss_forward: "decomposed, it counts labels that PyTorch leaves out, those after a -1",
}
# Executors that decompose these by themselves can give them indices that are out of range instead of negative ones.
_NEGATIVE: Final = (_aten.index_add, _aten.index_copy)


def loss(operator: Any, devices: Collection[str]) -> str | None:
    """What the decomposition of an operator (without its overload) loses on these devices; None if nothing is known."""
    return _LOST.get(operator) or (_LOST_ON_CPU.get(operator) if "cpu" in devices else None)


def without_loss(decompositions: Mapping[Any, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    """These decompositions, of which those that lose something return NotImplemented."""
    return {operator: _or_none(operator, function) for operator, function in decompositions.items()}


def _or_none(operator: Any, decomposition: Callable[..., Any]) -> Callable[..., Any]:
    packet = getattr(operator, "overloadpacket", None)
    if packet not in _LOST and packet not in _LOST_ON_CPU and packet not in _NEGATIVE:
        return decomposition

    def decomposed(input: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if packet in _NEGATIVE or loss(packet, (input.device.type,)) is not None:
            return NotImplemented
        return decomposition(input, *args, **kwargs)

    return decomposed
