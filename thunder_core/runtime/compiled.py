"""A program with its cache of compiled entries."""

from __future__ import annotations

import logging
import os
import threading
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch

from thunder_core.acquire.active import active_recorder
from thunder_core.config.resolve import resolve_config
from thunder_core.config.settings import Settings
from thunder_core.errors import RecompileWarning, ThunderError, UncacheableError, UncacheableWarning
from thunder_core.executors.states import States
from thunder_core.guards.dispatch import Dispatcher
from thunder_core.guards.global_state import GlobalState
from thunder_core.ir.program import annotate_exception
from thunder_core.report.compile_report import CompileReport
from thunder_core.runtime.compile import compile_program
from thunder_core.runtime.entry import Entry

_logger = logging.getLogger("thunder.recompiles")


class Compiled:
    """Calls a program through its cache: finds the entry whose guards hold, or compiles one.

    Thread-safe: finding is free of locks, compiling takes one. Inside another program's acquisition the original runs,
    so that compiled programs nest.
    """

    def __init__(self, function: Callable[..., Any], name: str, settings: Settings) -> None:
        self.function = function
        self.name = name
        self.settings = settings
        self.states = States()
        self.hits = 0
        self.misses = 0
        self.entries: list[Entry] = []
        self.last: Entry | None = None
        self.fallbacks: Counter[str] = Counter()
        self._dispatcher = Dispatcher()
        self._lock = threading.RLock()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if active_recorder() is not None:
            return self.function(*args, **kwargs)
        found = self._dispatcher.find(args, kwargs)
        if found is None:
            return self._miss(args, kwargs)
        self.hits += 1
        entry, inputs = found
        try:
            return entry.run(inputs, args, kwargs)
        except Exception as error:
            annotate_exception(error)
            raise

    def _miss(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        reason = GlobalState.current().bypass_reason()
        if reason is None and torch._C._functorch.peek_interpreter_stack() is not None:
            reason = "a torch.func transformation (vmap, grad, ...) is active"
        if reason is not None:
            return self._eager(reason, args, kwargs)
        with self._lock:
            found = self._dispatcher.find(args, kwargs)
            if found is not None:  # another thread compiled it meanwhile
                self.hits += 1
                return found[0].run(found[1], args, kwargs)
            self.misses += 1
            reason = self._reason(args, kwargs)
            if len(self.entries) >= self.settings.config.recompile_limit and self.settings.config.cache != "no caching":
                return self._limit(reason, args, kwargs)
            entry = compile_program(self.function, args, kwargs, self.settings, self.states, reason)
            self._check_random(entry)
            self._keep(entry)
        inputs = entry.prologue.function(args, kwargs)
        if inputs is None:
            why = entry.prologue.why(args, kwargs)
            raise ThunderError(f"the guards of a new entry do not hold for the call that made it: {why}")
        return entry.run(inputs, args, kwargs)

    def _reason(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        if self.settings.config.cache == "no caching":
            return "caching is off"
        if not self.entries:
            return "it is the first call"
        reasons = self._dispatcher.miss_reasons(args, kwargs)
        reason = reasons[-1] if reasons else "no cached entry fits"
        if "recompiles" in os.environ.get("THUNDER_LOG", "").split(","):
            _logger.warning("recompiling %s: %s", self.name, reason)
        if len(self.entries) >= self.settings.config.recompile_warning:
            warnings.warn(self._too_often(reason), RecompileWarning, stacklevel=4)
        return reason

    def _too_often(self, reason: str) -> str:
        recent = [entry.made.reason for entry in self.entries[-3:]]
        listed = "".join(f"\n  - {item}" for item in dict.fromkeys([*recent, reason]))
        return (
            f"{self.name} was compiled {len(self.entries)} times and is compiled again (eager PyTorch takes over after "
            f"{self.settings.config.recompile_limit}); the latest reasons are:{listed}\n"
            "Keep these values fixed, or raise recompile_limit."
        )

    def _limit(self, reason: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        why = f"the recompile limit of {self.settings.config.recompile_limit} is reached"
        if why not in self.fallbacks:
            warnings.warn(
                f"{self.name}: {why}; eager PyTorch runs it from now on ({reason})", RecompileWarning, stacklevel=5
            )
        return self._eager(why, args, kwargs)

    def _eager(self, reason: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self.fallbacks[reason] += 1
        return self.function(*args, **kwargs)

    def _check_random(self, entry: Entry) -> None:
        if not entry.random_states or self.settings.config.sharp_edges == "allow":
            return
        message = (
            f"{self.name} takes values from {', '.join(entry.random_states)}, which a compiled program cannot replay; "
            "it is compiled again at each call"
        )
        if self.settings.config.sharp_edges == "error":
            raise UncacheableError(
                message, advice=("use torch's generators, or pass the values as arguments", 'pass sharp_edges="allow"')
            )
        warnings.warn(message, UncacheableWarning, stacklevel=5)

    def _keep(self, entry: Entry) -> None:
        self.last = entry
        if not entry.made.cached:
            return
        self.entries.append(entry)
        self._dispatcher.add(entry)

    def report(self) -> CompileReport:
        """Everything about the compilations so far."""
        entries = tuple(entry.report for entry in self.entries) or ((self.last.report,) if self.last else ())
        options, default = self.settings.config.model_dump(), resolve_config({}).model_dump()
        changed = tuple([name for name, value in options.items() if value != default[name]])
        left_out = self.settings.left_out
        return CompileReport(
            self.name, options, changed, self.hits, self.misses, entries, dict(self.fallbacks), left_out
        )
