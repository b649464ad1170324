"""The cache of a program: its compiled entries, the choice of one for a call, and the compilation of new ones."""

from __future__ import annotations

import logging
import os
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Final

from thunder_core.checks import resets, stance
from thunder_core.checks.dispatch import Dispatcher
from thunder_core.checks.global_state import GlobalState, replaced_builtins
from thunder_core.checks.guard import Miss
from thunder_core.checks.varying_sizes import VaryingSizes
from thunder_core.contract import AssumedValues
from thunder_core.errors import Diverged, RunEagerly, ThunderError, UncacheableError, UncacheableWarning, WrongGuess
from thunder_core.executors.states import States
from thunder_core.forking import renew_in_child
from thunder_core.pytorch_internals import is_tracing
from thunder_core.runtime.cache_entry import CacheEntry
from thunder_core.runtime.compile import compile_program
from thunder_core.runtime.guesses import Guess
from thunder_core.runtime.outcomes import LikelyOutcomes, entries_for, fits, known_after
from thunder_core.runtime.recompilations import Recompilations
from thunder_core.runtime.size_policy import SizePolicy
from thunder_core.runtime.warm_up import WarmUp
from thunder_core.settings import Settings
from thunder_core.tracing.frames import calls_program, warn_user
from thunder_core.tracing.signal_handlers import of_signal_handler
from thunder_core.tracing.this_thread import this_thread
from thunder_core.tracing.tracebacks import folded, is_defect

_MOST_ATTEMPTS = 64  # entries that one call tries, each with one more known value
_MOST_UNREPEATED = 4
"""The number of values without one that recurred after which a program is not compiled for further values."""
_MOST_UNREPEATED_INTS = 8  # they recur more often than floats and texts
_FIRST_CALL = "it is the first call"
_MOST_UNCACHED = 3  # compilations of a program that cannot be cached
_stances: Final = stance.known
_logger = logging.getLogger("thunder.recompiles")


class NotRun(BaseException):
    """Raised instead of running a program that was compiled for a call, if `ProgramCache.compiles_only`."""

    def __init__(self, entry: CacheEntry) -> None:
        super().__init__("the program is not run")
        self.entry = entry


class ProgramCache:
    """The compiled entries of a program: a call runs the entry whose guards hold, or compiles one.

    Thread-safe: a compilation takes a lock, a lookup does not. While another program is recorded, a call runs the
    original function, so compiled programs can be nested.

    Attributes:
        function: the program.
        name: its name, for messages.
        settings: how it is compiled.
        states: the states of ops of executors.
        entries: the cached entries, oldest first.
        last: the entry of the latest compilation.
        hits, misses: the numbers of calls with and without an entry.
        fallbacks: the number of calls that eager PyTorch ran, by reason.
        warm_up: when calls may compile; programs of one compiled object share it.
        compiles_only: whether a call without an entry raises `NotRun` instead of running the new one.
    """

    def __init__(self, function: Callable[..., Any], name: str, settings: Settings) -> None:
        self.function = function
        self.name = name
        self.settings = settings
        self.states = States()
        self.hits = 0
        self.misses = 0
        self.entries: list[CacheEntry] = []
        self.last: CacheEntry | None = None
        self.fallbacks: Counter[str] = Counter()
        self.warm_up = WarmUp()
        self._dispatcher = Dispatcher()
        self._sizes = SizePolicy(settings.dynamic, function)
        self._recompilations = Recompilations(name, settings)
        self._at_limit = f"no entry fits, and the recompile limit of {settings.recompile_limit} is reached"
        self.compiles_only = False
        self._lock = threading.RLock()
        renew_in_child(self, "_lock")
        self._outcomes = 0
        self._likely = LikelyOutcomes()
        limit = settings.outcome_limit
        self._at_outcome_limit = (
            f"it reads values that no entry was compiled for, and the outcome limit of {limit} is reached, or none of "
            "the values before has recurred"
        )
        self._warned_unfit = False
        self._repeated: set[CacheEntry] = set()
        self._uncached = ""
        self._uncached_count = 0
        self._not_recorded = ""

    @calls_program
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if this_thread.recorder is not None or is_tracing():  # tracers get the calls of the program
            return self.function(*args, **kwargs)
        dynamo = _stances.dynamo or stance.find_dynamo()
        if dynamo is not None and dynamo._stance is not _stances.usual and self._forced_eager():
            return self._eager(stance.described(stance.FORCE_EAGER), args, kwargs)
        try:
            found = self._dispatcher.find(args, kwargs)
            if found is None:
                return self._miss(args, kwargs)
            self.hits += 1
            entry, inputs = found
            if entry.may_end:
                return self._run(entry, inputs, args, kwargs)
            self._repeated.add(entry)
            return entry.run(inputs, args, kwargs)
        except Exception as error:
            raised: BaseException = error
            if ThunderError in type(error).__mro__ or is_defect(error):  # the program may have replaced `isinstance`
                raised = of_signal_handler(error) or error
            raised.__traceback__ = folded(raised)
            self._notify_transforms(error)
            if raised is not error:
                raise raised from raised.__cause__
            raise

    def _notify_transforms(self, error: Exception) -> None:
        for transform in self.settings.transforms:
            try:
                transform.on_exception(self.name, error)
            except Exception as other:  # noqa: BLE001 - the user's exception is the one to raise
                error.add_note(
                    f"Thunder: on_exception of the transform {transform.name} raised {type(other).__name__}: {other}"
                )

    def _miss(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        reason = self._bypass_reason()
        if reason is None and self._may_compile():
            reason = self.why_not_compiled()
            self.misses += reason is not None
        if reason is not None:
            return self._eager(reason, args, kwargs)
        new = around = None
        with self._lock:
            found = self._dispatcher.find(args, kwargs)
            if found is not None:  # another thread compiled it meanwhile
                self.hits += 1
                return self._run(*found, args, kwargs)
            reason = self._why_not_again(args, kwargs) if self._may_compile() else self._uncovered(args, kwargs)
            if reason is None:
                self.misses += 1
                try:
                    new = self._new_entry(args, kwargs)
                    reason = self._at_limit
                except RunEagerly as needed:
                    reason, around = str(needed), needed.around
                    self._note_eager_call(needed)
        if new is None:
            return self._eager(reason, args, kwargs, around)
        return self._run(*new, args, kwargs, is_new=True)

    def why_not_compiled(self) -> str | None:
        """Why eager PyTorch runs all calls without an entry; None if they are compiled."""
        if self._recompilations.limit_reached:
            return self._at_limit
        abandoned = self._not_recorded and self.fallbacks[self._not_recorded] >= self.settings.recompile_limit
        return self._not_recorded if abandoned else None

    def _may_compile(self) -> bool:
        return self.settings.allow_recompiles is True or self.warm_up.allows(first=self.last is None)

    def _uncovered(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """As `Recompilations.refuse`, for a call for which the guards of no entry hold."""
        self.misses += 1
        return self._recompilations.refuse(self.closest_misses(lambda entry: (args, kwargs)))

    def closest_misses(self, call: Callable[[CacheEntry], tuple[tuple[Any, ...], dict[str, Any]]]) -> list[Miss]:
        """For each entry the reason why it does not serve a call; first those for which most guards hold.

        Without entries the reason why there are none.

        Args:
            call: the arguments of the call, for an entry.
        """
        if not self.entries:
            why = "caching is off" if self.settings.cache == "no caching" else self._uncached or self._not_recorded
            return [Miss("the program", why or "nothing is compiled", "")]
        misses = [entry.prologue.miss(*call(entry)) for entry in reversed(self.entries)]
        return sorted([miss for miss in misses if miss is not None], key=lambda miss: -miss.holding)

    def _why_not_again(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
        """Why a program that would be compiled at each call is not compiled again; None if it may be."""
        if self._uncached_count >= _MOST_UNCACHED:
            return self._uncached
        number = self._sizes.constant_number(self.entries, args, kwargs) if self._all_new(_MOST_UNREPEATED) else None
        if number is None or (number.kind is int and not self._all_new(_MOST_UNREPEATED_INTS)):
            return None
        self._recompilations.end_numbers(number.path, number.text)
        return f"it needs the value of {number.path}, and none of the values that it was compiled for has recurred"

    def _all_new(self, count: int) -> bool:
        """Whether none of the last entries, at least ``count`` besides the first two, ran in a later call."""
        return len(self.entries) >= count + 2 and self._repeated.isdisjoint(self.entries[-count:])

    def _bypass_reason(self) -> str | None:
        """Why a call cannot be compiled under the active modes, or while builtins are replaced; None if it can."""
        reason = replaced_builtins()
        if reason is None:
            return GlobalState.current().bypass_reason()
        if self.fallbacks[reason] == 1:
            warn_user(f"{self.name} is run by eager PyTorch in several calls: {reason}", UncacheableWarning)
        return reason

    def _run(
        self,
        entry: CacheEntry,
        inputs: tuple[Any, ...],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        is_new: bool = False,
    ) -> Any:
        """The result of a call with an entry, or, if a value that the entry checks differs, with the entry for it."""
        key = (entry, entry.symbols(inputs))
        likely = self._likely.entry(key)
        if likely is not entry and (others := likely.prologue.function(args, kwargs)) is not None:
            entry, inputs, is_new = likely, others, False
        for _ in range(_MOST_ATTEMPTS):
            try:
                result = entry.run(inputs, args, kwargs)
            except WrongGuess as error:
                # frees the frames: until then a checkpoint region that ended with the error has hooks on saved tensors
                wrong = error.with_traceback(None)
            except Diverged as error:
                diverged = error.with_traceback(None)
                if not diverged.stays:
                    self._drop(entry)
                return self._eager(str(diverged), args, kwargs, diverged.around)
            else:
                if not is_new:
                    self._repeated.add(entry)
                self._likely.learn(key, entry)
                return result
            known = known_after(entry, wrong, inputs)
            reason = self._at_outcome_limit
            is_new = False
            try:
                found = self._entry_with(known, args, kwargs)
                if found is None and not self._may_compile():
                    reason = self._uncovered_outcome(entry, known)
                elif found is None:
                    found, is_new = self._new_outcome(entry, known, args, kwargs), True
            except RunEagerly as needed:
                found, reason = None, str(needed)
                self._note_eager_call(needed)
            if found is None:
                return self._eager(reason, args, kwargs)
            entry, inputs = found
        return self._eager("the values that it reads differ each time that they are computed", args, kwargs)

    def _entry_with(
        self, known: AssumedValues, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[CacheEntry, tuple[Any, ...]] | None:
        """The entry compiled for these values, of which later ones may be unknown, and its inputs."""
        found = entries_for(self.entries, args, kwargs)
        return next(((entry, inputs) for entry, inputs in found if fits(entry, known, inputs)), None)

    def _new_outcome(
        self, entry: CacheEntry, known: AssumedValues, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[CacheEntry, tuple[Any, ...]] | None:
        """A new entry for values without one; None if a limit of entries is reached."""
        with self._lock:
            found = self._entry_with(known, args, kwargs)
            if found is not None:  # another thread compiled it meanwhile
                return found
            others = [other for other, _ in entries_for(self.entries, args, kwargs)]
            recent = others[-_MOST_UNREPEATED:] if type(known.values[-1][1]) in (float, str, list) else []
            none_recurs = len(recent) == _MOST_UNREPEATED and self._repeated.isdisjoint(recent)
            if none_recurs or len(others) >= self.settings.outcome_limit:
                self._recompilations.end_outcomes(entry.guesses[len(known.values) - 1], len(others))
                return None
            changed = _changed(entry, known)
            self._check_stance(changed.describe)
            varying = self._sizes.of_outcome(changed, others, args, kwargs)
            of_sizes = varying is None and entry.varies  # one entry for each size, as other programs have
            if of_sizes and len(self.entries) - self._outcomes >= self.settings.recompile_limit:
                self._recompilations.end(self._miss_of(args, kwargs))
                return None
            self.misses += 1
            entries = len(self.entries)
            new = self._compile(args, kwargs, changed.describe(), varying, known)
            if not of_sizes:
                self._outcomes += len(self.entries) - entries
            return new

    def _uncovered_outcome(self, entry: CacheEntry, known: AssumedValues) -> str:
        """As `Recompilations.refuse`, for a call that reads a value that no entry was compiled for."""
        self.misses += 1
        text = f"none was compiled for {_changed(entry, known).describe()}"
        remedy = "keep the value a tensor: torch.where, a product with a mask, torch.cond"
        return self._recompilations.refuse([Miss("a value", text, remedy)])

    @calls_program
    def compiled_entry(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CacheEntry:
        """The entry for a call, which does not run: a cached one, or one that is compiled now.

        Raises:
            RunEagerly: eager PyTorch runs such calls; with the reason.
            Exception: of the compilation, and of the program before the end of the recording.
        """
        reason = self._bypass_reason()
        if reason is not None:
            raise RunEagerly(reason)
        with self._lock:
            found = self._dispatcher.find(args, kwargs)
            if found is None:
                self.misses += 1
                found = self._new_entry(args, kwargs)
        if found is None:
            raise RunEagerly(self._at_limit)
        entry: CacheEntry = found[0]
        return entry

    def _new_entry(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[CacheEntry, tuple[Any, ...]] | None:
        """A new entry for the call, cached if possible, and its inputs; None if the limit of entries is reached."""
        if len(self.entries) - self._outcomes >= self.settings.recompile_limit:
            self._recompilations.end(self._miss_of(args, kwargs))
            return None
        self._check_stance(lambda: self._miss_of(args, kwargs).text if self.entries else _FIRST_CALL)
        reason = self._reason(args, kwargs)
        varying = self._sizes.next(self.entries, args, kwargs)
        return self._compile(args, kwargs, reason, varying)

    def _forced_eager(self) -> bool:
        return not self.compiles_only and stance.forces_eager()

    def _check_stance(self, reason: Callable[[], str]) -> None:
        """Raise as `stance.check_may_compile`, unless the caller wants a compilation only."""
        if not self.compiles_only:
            stance.check_may_compile(self.name, reason, first=self.misses <= 1)

    def _compile(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        reason: str,
        varying: VaryingSizes | None,
        guesses: AssumedValues | None = None,
    ) -> tuple[CacheEntry, tuple[Any, ...]]:
        """A new entry, cached if possible, and its inputs for the call.

        Raises:
            Exception: of `Transform.before_first_run`, if a transform refuses the program.
        """
        entry, inputs = compile_program(
            self.function, args, kwargs, self.settings, self.states, reason, varying, guesses
        )
        if self.compiles_only:
            raise NotRun(entry)
        resets.watch(self)
        self._accept(entry, inputs)
        self._sizes.learn(varying, entry, args, kwargs)
        if entry.raised is None:
            self._check_repeatable(entry)
            self._check_fit(entry)
        for transform in self.settings.transforms:
            transform.before_first_run(self.name, entry.program.executed, entry.groups, entry.raised)
        if entry.raised is None:
            self._store(entry)
        return entry, inputs

    def _accept(self, entry: CacheEntry, inputs: tuple[Any, ...]) -> None:
        """Raise an error if the entry must not run; called before it is cached."""

    def _note_eager_call(self, needed: RunEagerly) -> None:
        """Tell the transforms, and warn if more calls than the first, which initializes modules, run eagerly."""
        for transform in self.settings.transforms:
            transform.before_eager_call(self.name, needed)
        if needed.expected:
            return
        reason = self._not_recorded = str(needed)
        if self.fallbacks[reason] == 1:
            warn_user(f"{self.name} is run by eager PyTorch in several calls: {reason}", UncacheableWarning)

    def _reason(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        if self.settings.cache == "no caching":
            return "caching is off"
        if not self.entries:
            return _FIRST_CALL
        miss = self._miss_of(args, kwargs)
        if "recompiles" in os.environ.get("THUNDER_LOG", "").split(","):
            _logger.warning("recompiling %s: %s", self.name, miss.text)
        self._recompilations.add(miss, len(self.entries))
        return miss.text

    def _miss_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Miss:
        miss = self._dispatcher.miss(args, kwargs)
        return miss or Miss("the call", "no cached entry fits", "make it the same each time")

    @calls_program
    def _eager(
        self,
        reason: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        around: Callable[[], AbstractContextManager[Any]] | None = None,
    ) -> Any:
        self.fallbacks[reason] += 1
        if around is None:
            return self.function(*args, **kwargs)
        with around():
            return self.function(*args, **kwargs)

    def _check_repeatable(self, entry: CacheEntry) -> None:
        if entry.random_states or entry.uncopied:
            self._uncached_count += 1
            self._uncached = (
                f"it takes values from {', '.join(entry.random_states)}"
                if entry.random_states
                else "it returns or stores an object that cannot be copied"
            )
        if self.settings.sharp_edges == "allow":
            return
        if entry.random_states:
            drawn = [name for name in entry.random_states if "random" in name]
            torchs = f"use torch's generators (torch.rand in place of {drawn[0]}), or " if drawn else ""
            self._uncacheable(
                f"takes values from {', '.join(entry.random_states)}, which a compiled program cannot repeat",
                f"{torchs}pass the values as arguments",
            )
        if entry.uncopied:
            self._uncacheable(
                f"returns or stores an object that cannot be copied ({', '.join(entry.uncopied)})",
                "create it outside of the function, or return the values that it is created from",
            )

    def _uncacheable(self, why: str, advice: str) -> None:
        calls = f"it is compiled again at each call, and after {_MOST_UNCACHED} calls eager PyTorch runs it"
        message = f"{self.name} {why}; {calls}"
        if self.settings.sharp_edges == "error":
            raise UncacheableError(message, advice=(advice, 'pass sharp_edges="allow"'))
        warn_user(f"{message}. What to do: {advice}", UncacheableWarning)

    def _check_fit(self, entry: CacheEntry) -> None:
        if entry.unfit is None or self._warned_unfit:
            return
        self._warned_unfit = True
        warn_user(
            f"{self.name} is compiled again at each call: a guard of its entry does not hold for the call that it "
            f"was compiled for ({entry.unfit}). Results are right. Please report it with the program",
            UncacheableWarning,
        )

    def forget(self) -> None:
        """Forget all entries and what was learned from calls, but not `states`; for ``torch.compiler.reset()``."""
        self._dispatcher = Dispatcher()  # no lock is taken: a compilation may hold it, and wait for Dynamo
        self.entries, self.last, self.fallbacks = [], None, Counter()
        self.hits = self.misses = self._outcomes = self._uncached_count = 0
        self._sizes = SizePolicy(self.settings.dynamic, self.function)
        self._recompilations = Recompilations(self.name, self.settings)
        self._likely, self._repeated = LikelyOutcomes(), set()
        self._uncached = self._not_recorded = ""
        self._warned_unfit = False

    def _drop(self, entry: CacheEntry) -> None:
        """Remove an entry from the cache, if it is cached."""
        with self._lock:
            self._dispatcher.remove(entry)
            self.entries = [other for other in self.entries if other is not entry]
            self._repeated.discard(entry)
            self._likely = LikelyOutcomes()

    def _store(self, entry: CacheEntry) -> None:
        self.last = entry
        if not entry.cached:
            return
        self.entries.append(entry)
        self._dispatcher.add(entry)


def _changed(entry: CacheEntry, known: AssumedValues) -> Guess:
    """The last known value of a call that an entry was not compiled for."""
    guess = entry.guesses[len(known.values) - 1]
    return replace(guess, value=known.values[-1][1], conditions=(), user_conditions=())
