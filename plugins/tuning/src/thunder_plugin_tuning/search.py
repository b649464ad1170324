"""The search for the fastest list of executors.

It starts with the executors of the configuration and changes the list one step at a time: whole executors first, then
single operations, those that take most of the time first. Each change is compiled into the whole program, its results
are compared with those of the default, and it is timed in alternation with the best list so far. A change that is
faster beyond the noise is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from thunder_core.errors import ThunderError
from thunder_core.executors.reference import REFERENCE
from thunder_plugin_debug import LineTiming
from thunder_plugin_tuning.claims import claims_of, declined_because, sites_of
from thunder_plugin_tuning.clock import Clock
from thunder_plugin_tuning.comparison import LEAST_GAIN, Comparison, compare
from thunder_plugin_tuning.executor_lists import Change, Executors
from thunder_plugin_tuning.measurement import Measurement, Outcome, times_text
from thunder_plugin_tuning.program import CompiledProgram, Program, State
from thunder_plugin_tuning.results import Results, difference

_TIME_LIMIT: Final = "the time limit"
_TIMED_CALLS: Final = 3  # calls in which the operations are timed


@dataclass
class Search:
    """The state of a search.

    Attributes:
        program: the program.
        clock: measures calls, and the time of the search.
        deadline: a time of the clock after which nothing new is compiled or timed.
        tolerance: the accepted error of results; None for that of their dtypes.
        progress: called with a line of text for each step.
        base, best: the default and the fastest program so far, with their lists of executors.
        measurements: the outcomes so far.
        claims: by executor, the operations that it claims if it is offered all of them.
    """

    program: Program
    clock: Clock
    deadline: float
    tolerance: float | None
    progress: Callable[[str], None]
    base: tuple[CompiledProgram, Executors]
    measurements: list[Measurement] = field(default_factory=list)
    claims: dict[str, Mapping[str, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.best = self.base
        self._state = State(self.base[0])
        self._texts = {self.base[0].text: "the default"}
        self._expected = self._results(self.base[0])
        repeated = difference(self._results(self.base[0]), self._expected, self.tolerance)
        if not repeated.accepted:
            raise ThunderError(
                f"two calls of {self.program.name} with the same inputs and random state have other results, with "
                f"which candidates cannot be compared: {repeated}",
                advice=("make the program deterministic", "accept a larger error (--tolerance)"),
            )

    def run(self, pool: Sequence[str]) -> Comparison | None:
        """Try all changes with these executors.

        Returns:
            The times of the default and of the best list; None if no change was kept.
        """
        for name in pool:
            self._try_executor(name)
        for entry in self.base[1]:
            self._try(Change("without", entry.name))
        self._try_operations()
        if self.best is self.base:
            return None
        self.progress("timing the default and the chosen executors")
        self._state.restore()
        final = compare(self.clock, self.base[0].call, self.best[0].call)
        assert final is not None, "there is no deadline"
        if not final.faster:
            self.best = self.base
            self._undo(final)
            return None
        return final

    def _try_executor(self, name: str) -> None:
        """Try an executor before all others, and note what it claims there."""
        compiled = self._try(Change("first", name))
        if compiled is None and any(entry.item == name.rpartition(".")[2] for entry in self.best[1]):
            compiled = self.best[0]  # it is the first already
        if compiled is not None:
            self.claims[name] = claims_of(sites_of(compiled.entries), name.rpartition(".")[2])

    def _try_operations(self) -> None:
        shares = self._shares()
        operations = dict.fromkeys(site.operation for site in sites_of(self.best[0].entries) if not site.view)
        weights = {name: shares.get(name, 0.0) for name in operations}
        for name in sorted(operations, key=lambda operation: -weights[operation]):
            for change in self._changes_of(name):
                if shares and weights[name] < LEAST_GAIN:
                    reason = f"the operation takes {weights[name]:.1%} of the time of all"
                    self._add(change, "not measured", reason=reason)
                elif (change.kind == "leaves") == (change.executor.rpartition(".")[2] in self._running(name)):
                    self._try(change)

    def _changes_of(self, operation: str) -> list[Change]:
        running = self._running(operation)
        taking = [name for name, claims in self.claims.items() if operation in claims]
        used = {entry.item: entry.name for entry in self.best[1]}
        changes = [Change("takes", name, operation) for name in taking if name.rpartition(".")[2] not in running]
        return changes + [Change("leaves", used[name], operation) for name in sorted(running) if name in used]

    def _running(self, operation: str) -> set[str]:
        """The executors that run an operation, or its parts, in the best program."""
        sites = sites_of(self.best[0].entries)
        return {executor for site in sites if site.operation == operation for executor in site.executors}

    def _shares(self) -> Mapping[str, float]:
        """The share of each operation in the time of all operations; of one in a region, the share of the region.

        Empty if operations cannot be timed.
        """
        if self.clock.now() >= self.deadline:
            return {}
        timing = LineTiming()
        try:
            compiled = self.program.compiled(self.best[1], [timing])
            self._state.restore()
            compiled.compile()
            compiled.call()
            timing.reset()
            for _ in range(_TIMED_CALLS):
                compiled.call()
        except ThunderError as error:
            self.progress(f"operations cannot be timed one by one: {error.problem}")
            return {}
        records = timing.records
        total = sum(record.total for record in records) or 1.0
        shares: dict[str, float] = {}
        for record in records:
            for name in set(record.operation.removeprefix("the gradient of ").split(" + ")):
                shares[name] = shares.get(name, 0.0) + record.total / total
        return shares

    def _try(self, change: Change) -> CompiledProgram | None:
        """Compile, check and time a change, and keep it if it is faster.

        Returns:
            The compiled program; None if the list is the same, or it was not compiled.
        """
        executors = change.applied(self.best[1])
        if executors is None:
            return None
        if self.clock.now() >= self.deadline:
            self._add(change, "not measured", reason=_TIME_LIMIT)
            return None
        self.progress(f"{change}: compiling")
        compiled = self.program.compiled(executors)
        try:
            self._state.restore()
            compiled.compile()
        except Exception as error:  # noqa: BLE001 - an executor's error is an outcome, which the report shows
            self._add(change, "failed", reason=f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}")
            return None
        text = compiled.text
        if text in self._texts:
            if change.kind in ("first", "takes") and not self._claims(compiled, change.executor):
                why = declined_because(compiled.entries, change.executor)
                self._add(change, "unchanged", reason=f"it claims nothing ({why})")
            elif text == self.best[0].text:
                self._add(change, "unchanged")
            else:
                self._add(change, "repeated", reason=f"the program is that of {self._texts[text]!r}")
            return compiled
        self._texts[text] = str(change)
        self._judge(change, compiled, executors)
        return compiled

    def _judge(self, change: Change, compiled: CompiledProgram, executors: Executors) -> None:
        try:
            found = difference(self._results(compiled), self._expected, self.tolerance)
            if not found.accepted:
                self._add(change, "rejected", reason=str(found))
                return
            self._state.restore()
            times = compare(self.clock, self.best[0].call, compiled.call, self.deadline)
        except Exception as error:  # noqa: BLE001 - as above
            self._add(change, "failed", reason=f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}")
            return
        if times is None:
            self._add(change, "not measured", reason=_TIME_LIMIT)
        elif times.faster:
            self._add(change, "faster", times)
            self.best = (compiled, executors)
        else:
            self._add(change, "slower" if times.slower else "not faster", times)

    def _claims(self, compiled: CompiledProgram, executor: str) -> bool:
        return executor == REFERENCE.name or bool(claims_of(sites_of(compiled.entries), executor.rpartition(".")[2]))

    def _results(self, compiled: CompiledProgram) -> Results:
        self._state.restore()
        return compiled.results()

    def _add(self, change: Change, outcome: Outcome, times: Comparison | None = None, reason: str = "") -> None:
        found = Measurement(str(change), change.executor, change.operation, outcome, reason=reason)
        if times is not None:
            found = Measurement(
                found.change, found.executor, found.operation, outcome, times.before, times.after, times.rounds
            )
        self.measurements.append(found)
        self.progress(str(found))

    def _undo(self, final: Comparison) -> None:
        """Note that the kept changes together are not faster than the default."""
        why = f"all kept changes together: {times_text(final.before, final.after)}"
        for index, found in enumerate(self.measurements):
            if found.outcome == "faster":
                self.measurements[index] = Measurement(
                    found.change, found.executor, found.operation, "not faster", found.before, found.after,
                    found.rounds, why,
                )  # fmt: skip
