"""A program that is run by replaying its graphs."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from thunder_core.passes.transform import Phase
from thunder_plugin_cudagraphs.capturing import Attempt, capture
from thunder_plugin_cudagraphs.device import DeviceGraphs
from thunder_plugin_cudagraphs.graph import Graph
from thunder_plugin_cudagraphs.inputs import Inputs
from thunder_plugin_cudagraphs.limits import Limits
from thunder_plugin_cudagraphs.memory import Held
from thunder_plugin_cudagraphs.program_statistics import ProgramStatistics
from thunder_plugin_cudagraphs.pytorch_internals import get_current_graph_task_keep_graph
from thunder_plugin_cudagraphs.threads import other_thread
from thunder_plugin_cudagraphs.trial import Member, Mode, Stage, Trial

OTHER_THREAD: Final = "another thread may run functions of PyTorch, which fail during a capture"
NOT_COMPILED: Final = "regions run by PyTorch's kernels until another process has compiled them"
IN_USE: Final = "results of earlier calls are in use, in memory that the graph would write"


class GraphedProgram:
    """Called in place of a whole program, with a list of its inputs, which it empties.

    A call that no graph can serve runs the program itself, and is counted with the reason.

    Args:
        name, phase: of the program.
        function: the program.
        inputs: the description of its inputs.
        saved: positions of the results that forward keeps for backward.
        requiring: positions of the results that require grad, though nothing is differentiated: views of parameters.
        device: the graphs of its device.
        limits: the options.
        nbytes: an estimate of the memory that a graph needs.
        trial: decides whether it is captured; None if it is captured in any case.
        unsettled: its regions that may run other code in later calls. It is not captured while there are any.

    Attributes:
        graphs: its graphs, the most recently used first.
        refused: the reason for which no more graphs are captured.
        trial: that of the constructor.
        decision: the reason for which a trial decided to capture the program.
    """

    def __init__(
        self,
        name: str,
        phase: Phase,
        function: Callable[[list[Any]], Sequence[Any]],
        inputs: Inputs,
        saved: frozenset[int],
        requiring: frozenset[int],
        device: DeviceGraphs,
        limits: Limits,
        nbytes: int = 0,
        trial: Trial | None = None,
        unsettled: Sequence[Any] = (),
    ) -> None:
        self.name = name
        self.phase = phase
        self.function = function
        self.inputs = inputs
        self.saved = saved
        self.requiring = requiring
        self.device = device
        self.limits = limits
        self.nbytes = nbytes
        self.trial = trial
        self.decision: str | None = None
        self.graphs: list[Graph] = []
        self.refused: str | None = None
        self.captures = 0
        self._undecided = None if trial is None else (trial, trial.join())
        self._unsettled = unsettled
        self._plain = False  # never by a graph, and not counted
        self._keyed = inputs.keyed
        self._replays = 0
        self._warm = 0
        self._waits = 0
        self._ungraphed: Counter[str] = Counter()
        self._counting = threading.Lock()

    def __call__(self, values: list[Any]) -> Sequence[Any]:
        """The results."""
        if self._plain:
            return self.function(values)
        if self._unsettled:
            self._unsettled = [region for region in self._unsettled if not region.settled()]
            if self._unsettled:
                self.without(NOT_COMPILED)
                return self.function(values)
        undecided = self._undecided
        if undecided is not None:
            return self._tried(*undecided, values)
        return self._run(values)

    def _tried(self, trial: Trial, member: Member, values: list[Any]) -> Sequence[Any]:
        """The results of a call during the trial, which is timed if it is one of those that the trial needs."""
        backend = self.device.backend
        if backend.why_not_now() is not None:
            return self._run(values)
        if trial.stage is not Stage.DECIDED and (name := self._other_thread()) is not None:
            trial.disturb(f"{OTHER_THREAD} (the last one: {name})")
            self.without(OTHER_THREAD)
            return self.function(values)
        stage, mode, delay = trial.next(member)
        if stage is Stage.DECIDED:
            self._end(trial)
            return self(values)
        if stage is Stage.LAUNCHES:
            self._warm += 1
            self.without("it is warming up" if mode is Mode.UNTIMED else "it is timed")
        run = self.function if stage is Stage.LAUNCHES else self._run
        if mode is Mode.UNTIMED:
            return run(values)
        timer = None
        try:
            started = backend.timer(delay)
            results = run(values)
            started.stop()
            timer = started
        finally:
            trial.add(member, stage, mode, timer)
        return results

    def _other_thread(self) -> str | None:
        """The name of another thread that may run functions of PyTorch."""
        return other_thread(backward=self.phase is Phase.BACKWARD)

    def _end(self, trial: Trial) -> None:
        """Follow the decision. Without graphs from now on, calls cost nothing more."""
        self._undecided = None
        if trial.captured:
            self.decision = trial.reason
        else:
            self.refused = self.refused or trial.reason
            self._free()
        self._plain = self.refused is not None and not self.graphs

    def _free(self) -> None:
        if self.graphs:
            with self.device.lock:
                for graph in tuple(self.graphs):
                    self.device.drop(graph)
            self.device.release()

    def _run(self, values: list[Any]) -> Sequence[Any]:
        """The results, by a graph if one can serve the call."""
        if self.refused is None or self.graphs:
            results = self._by_graph(values)
            if results is not None:
                return results
        else:
            self.without(self.refused)
        return self.function(values)

    def _by_graph(self, values: list[Any]) -> Sequence[Any] | None:
        """The results of a replay; None, with the values as they were, if there is none."""
        device = self.device
        reason = device.backend.why_not_now()
        if reason is not None:
            return self.without(reason)
        key = self.inputs.key(values) if self._keyed else ()
        with device.lock:
            fitting = False
            for graph in self.graphs:
                bound = graph.bound
                if bound.key == key and device.backend.same_addresses(values, bound.addresses, bound.fixed):
                    fitting = True
                    results = self._replay(graph, values)
                    if results is not None:
                        return results
            if fitting and not self._waited_enough():
                return self.without(IN_USE)
            return self._capture(values, key)

    def _replay(self, graph: Graph, values: list[Any]) -> Sequence[Any] | None:
        device, pool = self.device, graph.pool
        device.backend.order()
        originals = graph.take(values)
        if not self._clear(pool.in_the_way(graph.footprint), graph):
            graph.give_back(values, originals, device.backend)
            return None
        return self.run(graph, originals)

    def run(self, graph: Graph, originals: list[Any], own: Sequence[Any] | None = None) -> Sequence[Any]:
        """Replay a graph whose inputs are set. ``own`` are its captured results at the first replay."""
        graph.replay()
        results = graph.outputs.collect(originals, graph.pool, self.device.backend, own)
        if self.inputs.counted:
            torch.autograd.graph.increment_version([originals[position] for position in self.inputs.counted])
        originals.clear()
        graph.last_used = self.device.tick()
        self._replays += 1
        return results

    def _clear(self, obstacles: Sequence[Held], graph: Graph) -> bool:
        """Whether a replay overwrites no result in use, after moving results where that is possible.

        Results that prevented a replay once are copied from then on.
        """
        clear = True
        for held in obstacles:
            if not held.group.saved:
                held.group.copied = True
                storage = held.storage() if held.owned else None
                if storage is not None and self.device.backend.move_out(storage):
                    graph.pool.moved(held)
                    continue
            clear = False
        return clear

    def _waited_enough(self) -> bool:
        """Whether results prevented replays often enough for another graph, with other memory."""
        self._waits += 1
        if self._waits < self.limits.patience or len(self.graphs) >= self.limits.variants:
            return False
        self._waits = 0
        return True

    def _capture(self, values: list[Any], key: tuple[Any, ...]) -> Sequence[Any] | None:
        if self.refused is not None:
            return self.without(self.refused)
        if self._warm < self.limits.warmup:
            self._warm += 1
            return self.without("it is warming up")
        reason = self.inputs.problem(values)
        if reason is None and self.captures >= self.limits.max_captures:
            reason = (
                f"it was captured {self.captures} times, for parameters or results in use at other addresses each time"
            )
        if reason is not None:
            self.refused = reason
            return self.without(reason)
        if self.trial is not None and self._other_thread() is not None:
            return self.without(OTHER_THREAD)
        if self.phase is Phase.BACKWARD and get_current_graph_task_keep_graph():
            return self.without("the autograd graph is retained for another backward")
        return capture(self, Attempt(values, key))

    def without(self, reason: str) -> Sequence[Any] | None:
        """Count a call without a graph; returns None, as there is no result of a replay."""
        with self._counting:
            self._ungraphed[reason] += 1
        return None

    @property
    def statistics(self) -> ProgramStatistics:
        """The statistics so far."""
        with self._counting:
            ungraphed = tuple(self._ungraphed.most_common())
        nbytes = self.device.nbytes if self.captures else 0
        return ProgramStatistics(
            self.name,
            self.phase.value,
            len(self.graphs),
            self.captures,
            self._replays,
            ungraphed,
            self.refused,
            nbytes,
            self.decision,
        )

    def __str__(self) -> str:
        return str(self.statistics)
