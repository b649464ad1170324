"""Whether a call of a compiled function or module has a compiled program, without running it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import torch

from thunder.compiled.specifications import check_specifications, is_specification, stand_in
from thunder_core.checks.global_state import GlobalState, replaced_builtins
from thunder_core.checks.guard import Miss
from thunder_core.checks.source import PATH_ERRORS
from thunder_core.checks.tensor_guard import DEVICE, TensorGuard
from thunder_core.errors import RunEagerly
from thunder_core.pytorch_internals import tree_leaves, tree_map
from thunder_core.runtime.cache_entry import CacheEntry
from thunder_core.runtime.program_cache import ProgramCache
from thunder_core.tracing.this_thread import this_thread

Args = tuple[Any, ...]
Kwargs = dict[str, Any]
_EACH_SIZE: Final = "check each size: all(thunder.covers(f, torch.empty(n, device='meta')) for n in sizes)"


@dataclass(frozen=True)
class Coverage:
    """Whether a call has a compiled program: a true value if it has one. Prints as text.

    Attributes:
        covered: whether the guards of a compiled program hold.
        compilation: the number of this program in `thunder.explain`; None if there is none.
        values: the values of tensors that the program reads and checks while it runs. Of these, `thunder.covers` knows
            nothing: a call with other values may need another program.
        eager: why eager PyTorch runs the call, which therefore needs no program; empty if it does not.
        misses: for each compiled program that does not serve the call the first guard that fails: its path, the text
            with both values, and what to do. First those for which most guards hold.
    """

    covered: bool
    compilation: int | None = None
    values: tuple[str, ...] = ()
    eager: str = ""
    misses: tuple[Miss, ...] = ()

    @property
    def reason(self) -> str:
        """Why the call is not covered: the guard that decides, and how it differs. Empty if it is covered."""
        if self.covered:
            return ""
        return self.eager or (self.misses[0].text if self.misses else "no cached entry fits")

    def __bool__(self) -> bool:
        return self.covered

    def __str__(self) -> str:
        if self.covered:
            only = "".join(f"\n  only where {value}" for value in self.values)
            return f"covered by compilation {self.compilation}{only}"
        if self.eager:
            return f"run by eager PyTorch: {self.eager}"
        others = "".join(f"\n  - {miss.text}" for miss in self.misses[1:])
        return f"not covered: {self.reason}" + (f"\nOther programs:{others}" if others else "")


def coverage(compiled: ProgramCache, args: Args, kwargs: Kwargs) -> Coverage:
    """The coverage of a call. Runs the guards, as the call does, and nothing else.

    Args:
        args, kwargs: the arguments, in which fake tensors and tensors of the meta device represent tensors.

    Raises:
        OptionError: a fake tensor has sizes that are not ints, or such tensors share memory.
    """
    if this_thread.recorder is not None:
        raise RunEagerly("it calls thunder.covers")
    eager = replaced_builtins() or GlobalState.current().bypass_reason()
    if eager is not None:
        return Coverage(False, eager=eager)
    specs = {id(leaf): leaf for leaf in tree_leaves((args, kwargs)) if is_specification(leaf)}
    check_specifications(list(specs.values()), _EACH_SIZE)

    def call(entry: CacheEntry) -> tuple[Args, Kwargs]:
        return _with_stand_ins(entry, specs, args, kwargs) if specs else (args, kwargs)

    for number, entry in enumerate(compiled.entries):
        # The function caches the metadata of the tensors that it accepts, so specifications are checked guard by guard.
        served = (
            entry.prologue.miss(*call(entry)) is None if specs else entry.prologue.function(args, kwargs) is not None
        )
        if served:
            return Coverage(True, number, tuple([guess.describe() for guess in entry.guesses]))
    return Coverage(False, eager=compiled.why_not_compiled() or "", misses=tuple(compiled.closest_misses(call)))


def _with_stand_ins(
    entry: CacheEntry, specs: Mapping[int, torch.Tensor], args: Args, kwargs: Kwargs
) -> tuple[Args, Kwargs]:
    """The arguments with tensors in place of the specifications, which guards take for the tensors of a call.

    A specification of the meta device represents a tensor on the device for which the entry was compiled.

    Args:
        specs: the specifications among the arguments, by id.
    """
    devices: dict[int, torch.device] = {}
    for guard in entry.prologue.guards:
        if isinstance(guard, TensorGuard):
            with suppress(*PATH_ERRORS):  # the entry is for other arguments
                value = guard.source.read(args, kwargs)
                if id(value) in specs and value.device.type == "meta":
                    devices[id(value)] = guard.expected[guard.conditions.index(DEVICE)]
    made = {name: stand_in(spec, devices.get(name, spec.device)) for name, spec in specs.items()}
    replaced: tuple[Args, Kwargs] = tree_map(lambda value: made.get(id(value), value), (args, kwargs))
    return replaced
