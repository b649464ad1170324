"""The programs that transforms are tested with: functions and modules with what transforms get wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import nn

from thunder_testing.compare import Arguments
from thunder_testing.conformance.transform_functions import FUNCTIONS
from thunder_testing.conformance.transform_modules import (
    Attention,
    Counting,
    Dropping,
    Normalized,
    Tied,
    linear_layers,
)


@dataclass(frozen=True)
class TransformProgram:
    """One program.

    Attributes:
        name: in test ids.
        make: makes the function or the module; a module with the same parameters each time.
        arguments: makes the arguments of one call; random ones follow the seed.
    """

    name: str
    make: Callable[[], Callable[..., Any]]
    arguments: Callable[[], Arguments | tuple[Any, ...]]

    @property
    def is_module(self) -> bool:
        """Whether it has parameters."""
        return isinstance(self.make(), nn.Module)


_MODULES: Final[Mapping[type[nn.Module], tuple[int, ...]]] = {
    Normalized: (5, 4),
    Attention: (2, 3, 8),
    Counting: (3, 4),
    Dropping: (3, 4),
}


def transform_programs() -> Iterator[TransformProgram]:
    """All of them."""
    for function in FUNCTIONS:
        yield TransformProgram(function.__name__, _itself(function), _two_matrices)
    yield TransformProgram("linear_layers", _seeded(linear_layers), _random(3, 4))
    for module, shape in _MODULES.items():
        yield TransformProgram(module.__name__.lower(), _seeded(module), _random(*shape))
    yield TransformProgram("tied", _seeded(Tied), _tokens)


def _itself(function: Callable[..., Any]) -> Callable[[], Callable[..., Any]]:
    return lambda: function


def _seeded(make: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    def made() -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return make()

    return made


def _random(*shape: int) -> Callable[[], Arguments]:
    return lambda: Arguments(torch.randn(shape))


def _two_matrices() -> Arguments:
    return Arguments(torch.randn(4, 4), torch.randn(4, 4))


def _tokens() -> Arguments:
    return Arguments(torch.randint(0, 10, (2, 5)))
