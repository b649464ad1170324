"""How a program is recorded this time: an attempt that fails may tell how the next one has to differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from thunder_core.acquire.input_sizes import VaryingSizes
from thunder_core.errors import AcquisitionError, SizeVariesError
from thunder_core.ir.location import SourceLocation
from thunder_core.tracing.user_frames import raising_location

Key = int | type[torch.nn.Module]


@dataclass(frozen=True)
class Guesses:
    """Values of tensors that a program's Python reads.

    Attributes:
        values: those that are known, in the order in which they are read; each with how.
        numbers: whether numbers that the program reads may stay numbers of the trace. The values are of a recording
            with the same answer.
    """

    values: tuple[tuple[str, Any], ...] = ()
    numbers: bool = True


@dataclass(frozen=True)
class Attempt:
    """What one recording of a program does otherwise than the first.

    Attributes:
        graph: whether fakes have the autograd graph of the program: each call is inferred then, not equal ones once.
        eager_modules: modules whose calls are recorded as one line, by `key_of`.
        eager_updates: functions of optimizers whose calls are recorded as one line.
        guesses: values of tensors that the program reads, as far as they are known; those after them are read in this
            call. Each run checks them. None: such a program is refused.
        varying: which sizes of inputs are symbols; None where all are constants.
        defines_sizes: whether sizes that values decide are symbols, in a recording with guesses.
        general: whether PyTorch is to prefer what is right for all sizes, 0 and 1 among them, then.
        constant_sizes: why an attempt with symbols failed; empty if there was none.
        constant_floats: the paths of floats that were to vary and are constants, each with the line that needs it.
    """

    graph: bool = False
    eager_modules: frozenset[Key] = frozenset()
    eager_updates: frozenset[Callable[..., None]] = frozenset()
    guesses: Guesses | None = None
    varying: VaryingSizes | None = None
    defines_sizes: bool = False
    general: bool = True
    constant_sizes: str = ""
    constant_floats: Mapping[str, SourceLocation | None] = field(default_factory=dict)


def key_of(module: torch.nn.Module) -> Key:
    """What is called eagerly together: all modules of a user's class, or one module of a class of PyTorch's."""
    kind = type(module)
    return id(module) if kind.__module__.startswith("torch.") else kind


def why_constant(error: Exception) -> str:
    """Why a program is recorded with constant sizes, in one line."""
    text = str(getattr(error, "problem", error)).partition("\n")[0]
    location = getattr(error, "location", None) or raising_location(error)
    where = "" if location is None else f", at {location.describe()}"
    return (
        f"{text if isinstance(error, AcquisitionError | SizeVariesError) else f'{type(error).__name__}: {text}'}{where}"
    )
