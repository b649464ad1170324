"""The options of one recording of a program, and the exceptions after which it is recorded or run in another way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import torch

from thunder_core.checks.varying_sizes import VaryingSizes
from thunder_core.contract import AssumedValues, Retry
from thunder_core.errors import EndsRecording
from thunder_core.ir.import_paths import module_of
from thunder_core.ir.location import SourceLocation

Key = int | type[torch.nn.Module]
CONSTANT_NUMBERS: Final = AssumedValues(numbers=False)
"""The values of a recording in which all numbers that the program reads from tensors are constants of this call."""


@dataclass(frozen=True)
class Attempt:
    """The options of one recording of a program.

    Attributes:
        graph: whether fakes have the program's autograd graph. Each call is then inferred; equal calls share no result.
        eager_modules: modules whose calls are recorded as one op, by `key_of`.
        eager_updates: functions of optimizers whose calls are recorded as one op.
        harmless: keys of disabled functions (`thunder_frontend.record.disabled_functions`) without effects.
        watches_functions: whether the changes of Python objects are compared before and after each function that is one
            op of the trace, which takes time.
        guesses: the known values of tensors that the program reads; later values are read in this call. Each run checks
            them. None: such a program is refused.
        varying: which sizes of inputs are symbols; None where all are constants.
        lost_number: whether an attempt ended because another thread stored a number over a symbol.
        defines_sizes: whether data-dependent sizes are symbols, in a recording with guesses.
        general: whether PyTorch then prefers results that hold for all sizes, including 0 and 1.
        converting: the global variables of the code in which calls of ``int`` and ``float`` return numbers of the trace
            (`thunder_frontend.record.conversions`); None where they return plain numbers.
        typed: the global variables of the code in which calls of ``type`` return the classes of plain numbers; None
            where no ``type`` may be replaced.
        formats: whether texts that the program prints have placeholders for numbers of the trace
            (`thunder_frontend.record.formatted_texts`).
        constant_sizes: why an attempt with symbols failed; empty if there was none.
        constant_floats: the paths of floats that should vary and are constants, each with the line that needs it.
        retries: how this attempt and those before came about, for the report.
    """

    graph: bool = False
    eager_modules: frozenset[Key] = frozenset()
    eager_updates: frozenset[Callable[..., None]] = frozenset()
    harmless: frozenset[Any] = frozenset()
    watches_functions: bool = False
    guesses: AssumedValues | None = None
    varying: VaryingSizes | None = None
    lost_number: bool = False
    defines_sizes: bool = False
    general: bool = True
    converting: tuple[dict[str, Any], ...] | None = field(default=(), compare=False)
    typed: tuple[dict[str, Any], ...] | None = field(default=(), compare=False)
    formats: bool = True
    constant_sizes: str = ""
    constant_floats: Mapping[str, SourceLocation | None] = field(default_factory=dict)
    retries: tuple[Retry, ...] = ()

    def then(self, retry: Retry, **changes: Any) -> Attempt:
        """The attempt that follows this one."""
        return replace(self, retries=(*self.retries, retry), **changes)

    @property
    def has_data_dependent_sizes(self) -> bool:
        """Whether data-dependent sizes are symbols in this recording."""
        return self.defines_sizes and self.guesses is not None


def key_of(module: torch.nn.Module) -> Key:
    """The key of modules that run eagerly together: a user's class for all its modules, or one module of PyTorch's."""
    kind = type(module)
    return id(module) if module_of(kind).startswith("torch.") else kind


class RecordAgain(EndsRecording):
    """Ends a recording; the program is recorded again. The program cannot catch it.

    Args:
        reason: why the program has to be recorded again.
        prepare: called before the next recording; its changes stay. It raises `RunEagerly` if this call has to run
            eagerly.
        changes: the fields of the `Attempt` that differ in the next recording.
    """

    def __init__(self, reason: str, prepare: Callable[[], None] | None = None, **changes: Any) -> None:
        super().__init__(reason)
        self._prepare = prepare
        self._changes = changes

    def following(self, attempt: Attempt) -> Attempt:
        """Prepare the next recording, and return the attempt that follows ``attempt``."""
        if self._prepare is not None:
            self._prepare()
        return attempt.then(Retry("it is recorded again", str(self)), **self._changes)
