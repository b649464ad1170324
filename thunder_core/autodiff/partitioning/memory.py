"""The choice of a partition by the peak of memory: the fastest one that fits.

Candidates are the minimum cuts of one graph for decreasing weights of recomputation (`recompute.everything`). From one
to the next, all equal layers change together, so between two neighbours there are mixtures: only the first ops follow
the policy that recomputes more. Backward needs their values last, when most memory is free.

The peak of a candidate is that of forward and backward by the lifetimes of their values (`thunder_core.ir.lifetimes`),
before executors claim ops; `thunder_core.runtime.transform` tries a smaller budget if the executable programs need
more. The peak does not decrease with every step, because an op that is recomputed early occupies memory for longer.
Candidates that are slower than one with a lower peak are left out. If none fits, saved values of the last one are
offloaded (`offload`), as many as needed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Final

from thunder_core.autodiff.joint import Joint, MemoryChoice, Partitioned
from thunder_core.autodiff.partitioning.dependence import Dependence
from thunder_core.autodiff.partitioning.offload import offloadable, with_offloaded
from thunder_core.autodiff.partitioning.recompute import Policy, cost, everything
from thunder_core.autodiff.partitioning.selection import ops_for_backward
from thunder_core.autodiff.partitioning.work import Work, work_of
from thunder_core.ir.lifetimes import Peak, peak_of
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Trace
from thunder_core.passes.check_memory import does_not_fit
from thunder_core.passes.delete_last_use import with_deletions

_WEIGHTS: Final = (*(2.0**-step for step in range(25)), 0.0)
_MIXTURES: Final = 32
"""The number of steps from one candidate to the next."""
_BYTES_PER_COPIED_BYTE: Final = 64
"""The bytes that a device moves while one is copied to or from the host: 3 to 5 TB/s against 50 to 60 GB/s."""


@dataclass(frozen=True, slots=True)
class Point:
    """A partition, with what it costs.

    Attributes:
        policy: the policy that it follows.
        partitioned: the partition.
        peak: the largest amount of memory of forward and backward, with the inputs of the program.
        time: the estimated time of forward and backward, in bytes that the device could move in that time.
    """

    policy: Policy
    partitioned: Partitioned
    peak: Peak
    time: int


class Curve:
    """The partitions of a joint trace, from the one that ``policy`` selects to those that need less memory.

    Args:
        split: the partition in which backward may run these ops again.
    """

    def __init__(self, dependence: Dependence, policy: Policy, split: Callable[[frozenset[int]], Partitioned]) -> None:
        self._dependence = dependence
        self._policy = policy
        self._split = split
        joint = dependence.joint
        self._returned = frozenset([joint.outputs[position].name for position in joint.returned])
        self._costs: dict[str, int] = {}  # by the name of the first result
        for op, results in zip(joint.trace.symbols, dependence.outputs, strict=True):
            work = work_of(op)
            if results and work is not Work.VIEW:
                self._costs[results[0].name] = cost(op, work)

    @cached_property
    def _selected(self) -> frozenset[int]:
        """The ops that backward may run again by the policy."""
        return ops_for_backward(self._dependence, self._policy)

    @cached_property
    def first(self) -> Point:
        """The partition that the policy selects."""
        return self._point(self._policy, self._selected)

    @cached_property
    def points(self) -> tuple[Point, ...]:
        """The candidates with increasing times and decreasing peaks."""
        policies = {self._selected: self._policy}
        for weight, again in self._cuts().items():
            policies.setdefault(again, everything(weight))
        points = [self.first, *[self._point(policy, again) for again, policy in list(policies.items())[1:]]]
        points.sort(key=lambda point: (point.time, point.peak.bytes))
        fastest = points.index(self.first)
        best = [self.first]
        for point in points[fastest + 1 :]:
            if point.peak.bytes < best[-1].peak.bytes:
                best.append(point)
        return tuple(best)

    def _cuts(self) -> dict[float, frozenset[int]]:
        """The ops that backward may run again, by weight. Between two weights with equal cuts all cuts are equal."""
        cuts = {
            index: ops_for_backward(self._dependence, everything(_WEIGHTS[index])) for index in (0, len(_WEIGHTS) - 1)
        }
        waiting = [(0, len(_WEIGHTS) - 1)]
        while waiting:
            first, last = waiting.pop()
            if last - first > 1 and cuts[first] != cuts[last]:
                middle = (first + last) // 2
                cuts[middle] = ops_for_backward(self._dependence, everything(_WEIGHTS[middle]))
                waiting += [(first, middle), (middle, last)]
        return {_WEIGHTS[index]: cuts[index] for index in sorted(cuts)}

    def between(self, lower: Point, higher: Point, steps: int = _MIXTURES) -> tuple[Point, ...]:
        """The mixtures of two points, by increasing numbers of ops that follow the policy of ``lower``."""
        return tuple([self._mixture(lower, higher, step, steps) for step in range(1, steps)])

    def fastest(self, budget: int) -> Point:
        """The point with the least time of those whose peak is at most ``budget`` bytes.

        Raises:
            MemoryBudgetError: there is none.
        """
        if self.first.peak.bytes <= budget:
            return self.first
        position = next((i for i, point in enumerate(self.points) if point.peak.bytes <= budget), None)
        if position is None:
            return self._fastest_offloaded(budget)
        lower, higher = self.points[position], self.points[position - 1]
        mixtures: dict[int, Point] = {}

        def fits(step: int) -> bool:
            mixtures[step] = self._mixture(lower, higher, step, _MIXTURES)
            return mixtures[step].peak.bytes <= budget

        step = bisect_left(range(_MIXTURES - 1), True, key=lambda index: fits(index + 1)) + 1
        mixed = mixtures.get(step)
        return mixed if mixed is not None and mixed.peak.bytes <= budget and mixed.time <= lower.time else lower

    def _fastest_offloaded(self, budget: int) -> Point:
        """The partition that needs least, with the fewest saved values offloaded, the largest first."""
        least = self.points[-1]
        values = offloadable(least.partitioned)
        every = self._offloaded(least, values)
        if every.peak.bytes > budget:
            least = min(least, every, key=lambda point: point.peak.bytes)
            raise does_not_fit(budget, least.peak, _programs(least.partitioned), self._returned)
        counts = range(1, len(values))
        fits = bisect_left(counts, True, key=lambda n: self._offloaded(least, values[:n]).peak.bytes <= budget)
        found = self._offloaded(least, values[: fits + 1])
        return found if found.peak.bytes <= budget else every

    def _offloaded(self, point: Point, values: Sequence[TensorProxy]) -> Point:
        if not values:
            return point
        partitioned = with_offloaded(point.partitioned, values)
        copied = 2 * partitioned.offloaded * _BYTES_PER_COPIED_BYTE
        peak = peak_of(_programs(partitioned), self._returned)
        return Point(point.policy, partitioned, peak, max(point.time, copied))

    def _mixture(self, lower: Point, higher: Point, step: int, steps: int) -> Point:
        boundary = self._dependence.joint.backward_start * step // steps
        again = ops_for_backward(self._dependence, lower.policy, later=higher.policy, boundary=boundary)
        return self._point(lower.policy, again)

    def _point(self, policy: Policy, again: frozenset[int]) -> Point:
        partitioned = self._split(again)
        ops = (*partitioned.forward.symbols, *partitioned.backward.symbols)
        results = [next(iter(op.outputs()), None) for op in ops]
        time = sum(self._costs.get(result.name, 0) for result in results if result is not None)
        return Point(policy, partitioned, peak_of(_programs(partitioned), self._returned), time)


def within(budget: int, curve: Curve) -> Partitioned:
    """The fastest partition within a budget, with a note of the choice. Raises as `Curve.fastest`."""
    point, first = curve.fastest(budget), curve.first
    added = point.time / first.time - 1 if first.time else 0.0
    return replace(point.partitioned, memory=MemoryChoice(point.peak.bytes, first.peak.bytes, added))


def peak_of_executable(joint: Joint, forward: Trace, backward: Trace) -> tuple[Peak, dict[str, Trace], frozenset[str]]:
    """The peak of the programs that run, and the arguments of `peak_of` for it."""
    returned = frozenset([forward.output[position].name for position in joint.returned])
    programs = {"forward": _with_parts(forward), "backward": _with_parts(backward)}
    return peak_of(programs, returned), programs, returned


def _with_parts(trace: Trace) -> Trace:
    """The executable trace with the parts of ops that run them one by one, as a captured program does."""
    ops = [op.parts if Tag.RUNS_PARTS in op.symbol.tags else (op,) for op in trace.symbols]
    if all(len(parts) == 1 for parts in ops):
        return trace
    return with_deletions(trace.with_symbols(chain.from_iterable(ops), trace.provenance))


def _programs(partitioned: Partitioned) -> dict[str, Trace]:
    return {"forward": with_deletions(partitioned.forward), "backward": with_deletions(partitioned.backward)}
