"""The partition of a joint trace into forward and backward."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

from thunder_core.autodiff.dependence import Dependence
from thunder_core.autodiff.emission import two_programs
from thunder_core.autodiff.joint import Joint, Partitioned
from thunder_core.autodiff.recompute import DEFAULT, POLICIES, Budget, Policy, everything, parse_policy
from thunder_core.autodiff.selection import lines_for_backward
from thunder_core.ir.trace import Stage, Trace
from thunder_core.passes.base import Pass, PassContext

# Weights of the policies that are tried for a budget, in steps of about 19 %, from nothing that pays to all that can be
# computed again. What is saved does not fall along the list but where rounding interferes.
_WEIGHTS: Final = (*(2.0 ** (-step / 4) for step in range(100)), 0.0)


@dataclass(frozen=True)
class Partition(Pass[Partitioned]):
    """Splits a joint trace into forward and backward, such that little memory is kept between them.

    Lines that depend on a cotangent run in backward. What those take from forward is saved or computed again, whichever
    is cheaper; a minimum cut decides for all values together. Lines that draw random numbers or have effects run once.

    Attributes:
        joint: what differentiation made. The pass runs on its trace, or on what further passes made of that.
        recompute: what may be computed again: "none" (views only), "cheap", "aggressive", or ``{"budget": f}``: as much
            as it takes to save ``f`` times the bytes that "cheap" saves, or as close to that as possible.
    """

    name: ClassVar[str] = "Partition"
    consumes: ClassVar[frozenset[Stage]] = frozenset({Stage.FUNCTIONAL})

    joint: Joint
    recompute: str | Mapping[str, float] = DEFAULT

    def run(self, trace: Trace, context: PassContext) -> Partitioned:
        """Forward and backward. Raises OptionError for a policy that does not exist."""
        policy = parse_policy(self.recompute, context.fuses())  # running lines again is cheaper where they are fused
        dependence = Dependence.of(self.joint.with_trace(trace))
        if isinstance(policy, Budget):
            return self._within(policy, dependence)
        return self._partitioned(dependence, policy)

    def traces(self, result: Partitioned) -> tuple[Trace, ...]:
        return result.forward, result.backward

    def _partitioned(self, dependence: Dependence, policy: Policy) -> Partitioned:
        return two_programs(dependence, lines_for_backward(dependence, policy), self.name)

    def _within(self, budget: Budget, dependence: Dependence) -> Partitioned:
        """The partition with the highest price of computing again that keeps within the budget; else the smallest."""
        usual = self._partitioned(dependence, POLICIES[DEFAULT])
        most = int(budget.fraction * usual.bytes_saved)
        if usual.bytes_saved <= most:
            return usual

        def by_weight(place: int) -> Partitioned:
            return self._partitioned(dependence, everything(_WEIGHTS[place]))

        place, found = _first_within(most, by_weight, len(_WEIGHTS))
        if not place or found.bytes_saved > most:
            return found
        # Equal layers change together from one weight to the next. Then the lower weight is for the first lines alone:
        # what those compute again comes last in backward, when most of the memory is free.
        lower, higher = everything(_WEIGHTS[place]), everything(_WEIGHTS[place - 1])

        def by_boundary(boundary: int) -> Partitioned:
            lines = lines_for_backward(dependence, lower, later=higher, boundary=boundary)
            return two_programs(dependence, lines, self.name)

        _, closer = _first_within(most, by_boundary, len(dependence.inputs) + 1)
        return closer if closer.bytes_saved <= most else found


def _first_within(most: int, partition: Callable[[int], Partitioned], count: int) -> tuple[int, Partitioned]:
    """The first of ``count`` partitions that saves at most that many bytes, found by bisection; the last if none does.

    They save less and less.
    """
    made: dict[int, Partitioned] = {}

    def within(place: int) -> bool:
        made[place] = partition(place)
        return made[place].bytes_saved <= most

    place = bisect_left(range(count - 1), True, key=within)
    return place, made[place] if place in made else partition(place)
