"""PyTorch's switches that the program changes: for its later ops, and for the caller."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import torch

from thunder_core.checks.global_state import copy_module_hooks, restore_module_hooks
from thunder_core.errors import UnsupportedError
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.effects import Effects
from thunder_core.ir.switches import (
    THREADS_OF_BACKWARD,
    Values,
    changes_between_ops,
    index_between_ops,
    read_between_ops,
    read_switches,
    set_switch,
    set_switches,
)
from thunder_core.ir.symbol import Symbol, Tag
from thunder_core.tracing.frames import user_location
from thunder_frontend.record.open_trace import OpenTrace

SET_SWITCH: Final = Symbol("thunder_core.ir.switches.set_switch", set_switch, tags=frozenset({Tag.AS_RECORDED}))

_THREADS: Final = index_between_ops(THREADS_OF_BACKWARD)


class SwitchChanges:
    """Tracks the switches while a program is recorded.

    A change of a switch that is not part of an op's modes becomes a separate op, before the next call.

    Attributes:
        before: the values of the switches between ops before the program.
        latest: their values at the last call.
    """

    def __init__(self) -> None:
        self._first = read_switches()
        self.before = read_between_ops()
        self._module_hooks = copy_module_hooks()
        self._inference = torch.is_inference_mode_enabled()
        self.latest = read_between_ops()
        self._set_by_ops: set[str] = set()
        self._threads_differ = False

    def follow(self, trace: OpenTrace) -> None:
        """Record in ``trace`` the switches that changed since the last call."""
        current = read_between_ops()
        if self._threads_differ:
            current[_THREADS] = self.latest[_THREADS]
        if current == self.latest:
            return
        for name, value in changes_between_ops(self.latest, current).items():
            self._set_by_ops.add(name)
            effects = Effects(external=True)
            op = BoundSymbol(SET_SWITCH, (name, value), {}, None, effects, location=user_location())
            trace.ops.append(op)
        self.latest = current

    @contextmanager
    def autograd_in_this_thread(self) -> Iterator[None]:
        """Have autograd run all nodes in this thread, which is not a change of a switch by the program.

        Otherwise it runs nodes of GPUs in threads of its own, where the program is not observed.
        """
        before, self._threads_differ = self._threads_differ, True
        try:
            with torch.autograd.set_multithreading_enabled(False):
                yield
        finally:
            self._threads_differ = before

    def left_changed(self) -> Values:
        """The switches that each run has to set at its end, with their values.

        Raises:
            UnsupportedError: the program leaves inference mode changed, or sets or removes a hook of all modules.
        """
        if copy_module_hooks() != self._module_hooks:
            raise UnsupportedError(
                "the program sets or removes a hook of all modules",
                advice=("set it outside of the compiled function", "or set hooks of single modules"),
            )
        if torch.is_inference_mode_enabled() != self._inference:
            raise UnsupportedError(
                "the program leaves inference mode changed",
                advice=("use torch.inference_mode() in `with`",),
            )
        current = read_switches()
        return {
            name: value for name, value in current.items() if value != self._first[name] or name in self._set_by_ops
        }

    def undo(self) -> None:
        """Restore all switches to their values before the program."""
        set_switches(self._first)
        restore_module_hooks(self._module_hooks)
