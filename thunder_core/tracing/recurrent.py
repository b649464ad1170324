"""The results of recurrent networks on fakes whose number of steps varies.

PyTorch infers them by running step after step, which makes the number of steps a constant.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from thunder_core.pytorch_errata import counts_steps
from thunder_core.pytorch_internals import is_any_autocast_enabled


def _results(
    input: torch.Tensor,
    states: torch.Tensor | Sequence[torch.Tensor],
    params: Sequence[torch.Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[torch.Tensor, ...]:
    """Output and last states, with the shapes, strides, history and random numbers of those of the network."""
    batch, steps = (0, 1) if batch_first else (1, 0)
    states = (states,) if isinstance(states, torch.Tensor) else states
    width = states[0].shape[2] * (2 if bidirectional else 1)
    history = torch.stack([each.sum() for each in (input, *states, *params)]).sum()
    output = torch.zeros_like(history).expand(input.shape[steps], input.shape[batch], width).contiguous() + history
    if train and num_layers > 1:
        output = torch.dropout(output, dropout, train)
    last = [torch.zeros_like(state.contiguous()) + history for state in states]
    return output.transpose(0, 1) if batch_first else output, *last


_ARGUMENTS: Final = 9


def inferred_results(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The results of a recurrent network on fakes whose number of steps is a symbol; `NotImplemented` for others."""
    if kwargs or len(args) != _ARGUMENTS or not counts_steps(function, args) or is_any_autocast_enabled():
        return NotImplemented
    return _results(*args)
