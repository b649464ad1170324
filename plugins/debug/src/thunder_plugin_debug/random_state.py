"""Running a function twice with the same random numbers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from thunder_core.ir.bound_symbol import BoundSymbol, tensors_of
from thunder_core.ir.tree import iterate_leaves


class RandomState:
    """The states of random generators at one moment."""

    def __init__(self, generators: Iterable[torch.Generator]) -> None:
        self._states = [(generator, generator.get_state()) for generator in generators]

    def restore(self) -> None:
        """Restore these states."""
        for generator, state in self._states:
            generator.set_state(state)

    def again(self) -> RandomState:
        """The current states of the same generators."""
        return RandomState([generator for generator, _ in self._states])


def generators_of(bound: BoundSymbol, arguments: Any) -> list[torch.Generator]:
    """The generators that an operation may use: PyTorch's defaults for its devices, and those among its arguments."""
    generators = [leaf for leaf in iterate_leaves(arguments) if isinstance(leaf, torch.Generator)]
    devices = {proxy.device for proxy in tensors_of(bound)}
    for device in devices:
        if device.type == "cuda":
            index = torch.cuda.current_device() if device.index is None else device.index
            generators.append(torch.cuda.default_generators[index])
    return [torch.default_generator, *generators]
