"""A program with its cache of compiled entries."""

from __future__ import annotations

import logging
import os
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from thunder_core.acquire.active import this_thread
from thunder_core.acquire.attempt import Guesses
from thunder_core.acquire.input_sizes import VaryingSizes
from thunder_core.acquire.module_calls import EagerCallNeeded
from thunder_core.acquire.tracebacks import folded
from thunder_core.config.model import ThunderConfig
from thunder_core.config.resolve import resolve_config
from thunder_core.config.settings import Settings
from thunder_core.errors import RecompileWarning, UncacheableError, UncacheableWarning, WrongGuess
from thunder_core.executors.states import States
from thunder_core.guards.dispatch import Dispatcher
from thunder_core.guards.global_state import GlobalState
from thunder_core.guards.guard import Change
from thunder_core.pytorch_internals import peek_interpreter_stack
from thunder_core.report.compile_report import CompileReport
from thunder_core.runtime.compile import compile_program
from thunder_core.runtime.entry import Entry
from thunder_core.runtime.outcomes import Guess, LikelyOutcomes, entries_for, fits, known_after
from thunder_core.runtime.size_policy import SizePolicy
from thunder_core.tracing.user_frames import calls_program, warn_user

_MOST_PLACES = 4


class Recompilations:
    """Why a program had to be compiled again, and the two warnings about it: one early, one at the limit."""

    def __init__(self, name: str, config: ThunderConfig) -> None:
        self.name = name
        self.config = config
        self.limit_reached = False
        self._outcomes_ended = False
        self._warned = False
        self._counts: Counter[str] = Counter()
        self._latest: dict[str, Change] = {}

    def add(self, change: Change, entries: int) -> None:
        """Note the change that needs one more entry than the ``entries`` there are, and warn if these become many.

        Warns once with RecompileWarning, at the user's line.
        """
        self._counts[change.place] += 1
        self._latest[change.place] = change
        if entries < self.config.recompile_warning or self._warned:
            return
        self._warned = True
        warn_user(
            f"{self.name} was compiled {entries} times and is compiled again, because of what changes between calls:"
            f"{self._changes()}\nWhat to do:{self._remedies()}\n"
            f"  - or leave it: at {self.config.recompile_limit} entries (recompile_limit) compiling ends, and eager "
            "PyTorch runs the calls that fit none of them",
            RecompileWarning,
        )

    def end(self, change: Change) -> None:
        """Note that the limit is reached by a call that fits no entry for this change. Warns once, as `add`."""
        if self.limit_reached:
            return
        self.limit_reached = True
        self._counts[change.place] += 1
        self._latest[change.place] = change
        warn_user(
            f"{self.name} has {self.config.recompile_limit} compiled entries (recompile_limit) and is not compiled "
            "again: calls that fit one of them run compiled as before, eager PyTorch runs this call and all others. "
            f"What changed between calls:{self._changes()}\nWhat to do:{self._remedies()}\n"
            "  - or raise recompile_limit, if the values are few and come again",
            RecompileWarning,
        )

    def end_outcomes(self, guess: Guess) -> None:
        """Note that a value which the program reads had as many outcomes as are compiled. Warns once, as `add`."""
        if self._outcomes_ended:
            return
        self._outcomes_ended = True
        place = "" if guess.location is None else f"\n  at {guess.location.describe()}"
        warn_user(
            f"{self.name} reads values of tensors, and was compiled for {self.config.outcome_limit} outcomes "
            "(outcome_limit): eager PyTorch runs calls with others. The value that is another now is "
            f"{guess.text}{place}\n"
            "What to do:\n"
            "  - keep the value a tensor: torch.where, a product with a mask, torch.cond\n"
            "  - or raise outcome_limit, if the outcomes are few and come again",
            RecompileWarning,
        )

    def _changes(self) -> str:
        lines = [f"{self._latest[place].text} ({_times(count)})" for place, count in self._most()]
        others = len(self._counts) - len(lines)
        if others:
            lines.append(f"and {others} more; thunder.explain lists the reason of each compilation")
        return "".join(f"\n  - {line}" for line in lines)

    def _remedies(self) -> str:
        places: dict[str, list[str]] = {}
        for place, _ in self._most():
            places.setdefault(self._latest[place].remedy, []).append(place)
        return "".join(f"\n  - {', '.join(names)}: {remedy}" for remedy, names in places.items())

    def _most(self) -> list[tuple[str, int]]:
        return self._counts.most_common(_MOST_PLACES)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


_MOST_ATTEMPTS = 64  # entries that a call tries one after the other, each of which knows one more value
_logger = logging.getLogger("thunder.recompiles")


class NotRun(BaseException):
    """A program was compiled for a call, and is not run."""

    def __init__(self, entry: Entry) -> None:
        super().__init__("the program is not run")
        self.entry = entry


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
        self.transformed: dict[Any, Any] = {}  # programs for calls under torch.func, by the kind of call
        self._dispatcher = Dispatcher()
        self._sizes = SizePolicy(settings.config.dynamic, function)
        self._recompilations = Recompilations(name, settings.config)
        self._at_limit = f"no entry fits, and the recompile limit of {settings.config.recompile_limit} is reached"
        self.compiles_only = False  # a call that needs a new program raises `NotRun` instead of running it
        self._lock = threading.RLock()
        self._outcomes = 0
        self._likely = LikelyOutcomes()
        self._at_outcome_limit = (
            f"it reads other values, and the outcome limit of {settings.config.outcome_limit} is reached"
        )
        self._warned_unfit = False
        self._not_recorded = ""

    @calls_program
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if this_thread.recorder is not None:
            return self.function(*args, **kwargs)
        try:
            found = self._dispatcher.find(args, kwargs)
            if found is None:
                return self._miss(args, kwargs)
            self.hits += 1
            entry, inputs = found
            return self._run(entry, inputs, args, kwargs) if entry.guesses else entry.run(inputs, args, kwargs)
        except Exception as error:
            error.__traceback__ = folded(error)
            raise

    def _miss(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if peek_interpreter_stack() is not None:
            return self._transformed_call(args, kwargs)
        reason = self._bypass_reason()
        if reason is None and self._recompilations.limit_reached:
            self.misses += 1
            reason = self._at_limit
        given_up = self._not_recorded and self.fallbacks[self._not_recorded] >= self.settings.config.recompile_limit
        if reason is None and given_up:
            self.misses += 1
            reason = self._not_recorded
        if reason is not None:
            return self._eager(reason, args, kwargs)
        with self._lock:
            found = self._dispatcher.find(args, kwargs)
            if found is not None:  # another thread compiled it meanwhile
                self.hits += 1
                return self._run(*found, args, kwargs)
            self.misses += 1
            try:
                new = self._new_entry(args, kwargs)
                reason = self._at_limit
            except EagerCallNeeded as needed:
                new, reason = None, str(needed)
                self._note_eager_call(needed)
        if new is None:
            return self._eager(reason, args, kwargs)
        return self._run(*new, args, kwargs)

    def _bypass_reason(self) -> str | None:
        """Why the call must not be compiled under the modes that are active; None when it may."""
        return GlobalState.current().bypass_reason()

    def _transformed_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of a call under transformations of torch.func."""
        from thunder_core.runtime.transformed_calls import transformed_call  # its caches are `Compiled`
        from thunder_core.runtime.transformed_programs import NotTransformed

        try:
            return transformed_call(self, args, kwargs)
        except NotTransformed as error:
            reason = error.problem
        return self._eager(reason, args, kwargs)

    def _run(self, entry: Entry, inputs: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of a call that an entry serves, or, where a value is another, of the entry for that value."""
        key = (entry, entry.symbols(inputs))
        likely = self._likely.entry(key)
        if likely is not entry and (others := likely.prologue.function(args, kwargs)) is not None:
            entry, inputs = likely, others
        for _ in range(_MOST_ATTEMPTS):
            try:
                result = entry.run(inputs, args, kwargs)
            except WrongGuess as error:
                wrong = error
            else:
                self._likely.learn(key, entry)
                return result
            known = known_after(entry, wrong, inputs)
            reason = self._at_outcome_limit
            try:
                found = self._entry_with(known, args, kwargs) or self._new_outcome(entry, known, args, kwargs)
            except EagerCallNeeded as needed:
                found, reason = None, str(needed)
                self._note_eager_call(needed)
            if found is None:
                return self._eager(reason, args, kwargs)
            entry, inputs = found
        return self._eager("the values that it reads are others each time that they are computed", args, kwargs)

    def _entry_with(
        self, known: Guesses, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Entry, tuple[Any, ...]] | None:
        """The entry that was compiled with these values, as far as they are known, and its inputs."""
        found = entries_for(self.entries, args, kwargs)
        return next(((entry, inputs) for entry, inputs in found if fits(entry, known, inputs)), None)

    def _new_outcome(
        self, entry: Entry, known: Guesses, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Entry, tuple[Any, ...]] | None:
        """An entry for values that none was compiled with; None beyond the limit."""
        with self._lock:
            found = self._entry_with(known, args, kwargs)
            if found is not None:  # another thread compiled it meanwhile
                return found
            others = [other for other, _ in entries_for(self.entries, args, kwargs)]
            if len(others) >= self.settings.config.outcome_limit:
                self._recompilations.end_outcomes(entry.guesses[len(known.values) - 1])
                return None
            changed = replace(entry.guesses[len(known.values) - 1], value=known.values[-1][1], conditions=(), asked=())
            varying = self._sizes.of_outcome(changed, others, args, kwargs)
            of_sizes = varying is None and entry.varies  # one entry for each size, as other programs have
            if of_sizes and len(self.entries) - self._outcomes >= self.settings.config.recompile_limit:
                self._recompilations.end(self._change(args, kwargs))
                return None
            self.misses += 1
            entries = len(self.entries)
            made = self._compile(args, kwargs, changed.describe(), varying, known)
            if not of_sizes:
                self._outcomes += len(self.entries) - entries
            return made

    def _new_entry(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Entry, tuple[Any, ...]] | None:
        """An entry for the call, kept if it may be, and its inputs; None beyond the limit of entries."""
        if len(self.entries) - self._outcomes >= self.settings.config.recompile_limit:
            self._recompilations.end(self._change(args, kwargs))
            return None
        reason = self._reason(args, kwargs)
        varying = self._sizes.next(self.entries, args, kwargs)
        return self._compile(args, kwargs, reason, varying)

    def _compile(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        reason: str,
        varying: VaryingSizes | None,
        guesses: Guesses | None = None,
    ) -> tuple[Entry, tuple[Any, ...]]:
        """An entry, kept if it may be, and its inputs for the call."""
        entry, inputs = compile_program(
            self.function, args, kwargs, self.settings, self.states, reason, varying, guesses
        )
        if self.compiles_only:
            raise NotRun(entry)
        self._accept(entry, inputs)
        self._sizes.learn(varying, entry, args, kwargs)
        if not entry.raises:
            self._check_repeatable(entry)
            self._check_fit(entry)
            self._keep(entry)
        return entry, inputs

    def _accept(self, entry: Entry, inputs: tuple[Any, ...]) -> None:
        """Raises an error where the entry must not run; called before it is kept."""

    def _note_eager_call(self, needed: EagerCallNeeded) -> None:
        """Warn where not only the first call runs eagerly, which initializes things."""
        if needed.expected:
            return
        reason = self._not_recorded = str(needed)
        if self.fallbacks[reason] == 1:
            warn_user(f"{self.name} runs as eager PyTorch, call after call: {reason}", UncacheableWarning)

    def _reason(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        if self.settings.config.cache == "no caching":
            return "caching is off"
        if not self.entries:
            return "it is the first call"
        change = self._change(args, kwargs)
        if "recompiles" in os.environ.get("THUNDER_LOG", "").split(","):
            _logger.warning("recompiling %s: %s", self.name, change.text)
        self._recompilations.add(change, len(self.entries))
        return change.text

    def _change(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Change:
        change = self._dispatcher.change(args, kwargs)
        return change or Change("the call", "no cached entry fits", "make it the same each time")

    @calls_program
    def _eager(self, reason: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self.fallbacks[reason] += 1
        return self.function(*args, **kwargs)

    def _check_repeatable(self, entry: Entry) -> None:
        if self.settings.config.sharp_edges == "allow":
            return
        if entry.random_states:
            self._uncacheable(
                f"takes values from {', '.join(entry.random_states)}, which a compiled program cannot replay",
                "use torch's generators, or pass the values as arguments",
            )
        if entry.once:
            self._uncacheable(
                f"returns or stores an object that cannot be copied ({', '.join(entry.once)})",
                "make it outside of the function, or return what it is made from",
            )

    def _uncacheable(self, why: str, advice: str) -> None:
        message = f"{self.name} {why}; it is compiled again at each call"
        if self.settings.config.sharp_edges == "error":
            raise UncacheableError(message, advice=(advice, 'pass sharp_edges="allow"'))
        warn_user(message, UncacheableWarning)

    def _check_fit(self, entry: Entry) -> None:
        if entry.unfit is None or self._warned_unfit:
            return
        self._warned_unfit = True
        warn_user(
            f"{self.name} is compiled again at each call: a guard of its entry does not hold for the very call that it "
            f"was compiled for ({entry.unfit}). Results are right. Please report it with the program",
            UncacheableWarning,
        )

    def _keep(self, entry: Entry) -> None:
        self.last = entry
        if not entry.made.cached:
            return
        self.entries.append(entry)
        self._dispatcher.add(entry)

    def programs(self) -> list[Compiled]:
        """This one, and those that were compiled for calls of it under transformations of torch.func."""
        kinds = tuple(self.transformed.values())
        return [self, *[program for kind in kinds for program in kind.programs()]]

    def report(self) -> CompileReport:
        """Everything about the compilations so far."""
        entries = tuple(entry.report for entry in self.entries) or ((self.last.report,) if self.last else ())
        programs = self.programs()
        entries += tuple([entry.report for program in programs[1:] for entry in program.entries])
        fallbacks = sum([program.fallbacks for program in programs], Counter())
        hits, misses = sum(program.hits for program in programs), sum(program.misses for program in programs)
        options, default = self.settings.config.model_dump(), resolve_config({}).model_dump()
        changed = tuple([name for name, value in options.items() if value != default[name]])
        left_out = self.settings.left_out
        return CompileReport(self.name, options, changed, hits, misses, entries, dict(fallbacks), left_out)
