"""Random joint traces: what they compute, and that no other choice is cheaper."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.autodiff.joint_builder import JointBuilder, function, method, operator
from tests.autodiff.test_partition import check, split
from thunder_core.autodiff.joint import Joint, Partitioned
from thunder_core.autodiff.partitioning.dependence import Dependence
from thunder_core.autodiff.partitioning.partition import two_programs
from thunder_core.autodiff.partitioning.recompute import POLICIES, Policy, everything
from thunder_core.autodiff.partitioning.selection import ops_for_backward
from thunder_core.autodiff.partitioning.work import Work, work_of
from thunder_core.ir.effects import Effects
from thunder_core.ir.verifier import verify

MUL = function("torch.mul")
ATEN = torch.ops.aten

# From two square matrices, another one; how a call is made, and its effects.
OPERATIONS: list[tuple[Any, Any, Effects]] = [
    (function("torch.sin"), lambda x, y: (x,), Effects()),
    (operator(ATEN.tanh.default), lambda x, y: (x,), Effects()),
    (function("torch.minimum"), lambda x, y: (x, y), Effects()),
    (function("torch.softmax"), lambda x, y: (x, -1), Effects()),
    (operator(ATEN._softmax.default), lambda x, y: (x, -1, False), Effects()),
    (function("torch.atan2"), lambda x, y: (x, y), Effects()),
    (function("torch.transpose"), lambda x, y: (x, 0, 1), Effects()),
    (method("view_as"), lambda x, y: (x, y), Effects()),
    (function("torch.rand_like"), lambda x, y: (x,), Effects(random=True)),
    (function("torch.cos"), lambda x, y: (x,), Effects(external=True)),
    (operator(ATEN.mm.default), lambda x, y: (x, y), Effects()),
    (function("torch.sort"), lambda x, y: (x,), Effects()),
]
VIEW_AS = 7  # the only view that needs more than its base

Step = tuple[int, int, int]
step = st.tuples(st.integers(0, len(OPERATIONS) - 1), st.integers(0, 30), st.integers(0, 30))
numbers = st.lists(st.integers(0, 30), min_size=1, max_size=4)


def build(
    steps: list[Step], residuals: list[Step], read: list[int], given: list[int], size: int = 1024, **fields: Any
) -> Joint:
    """A joint whose first lines do ``steps``; ``residuals`` follow, and backward multiplies with values ``read``."""
    b = JointBuilder()
    pool = [b.primal("x", size, size), b.primal("w", size, size)]
    g = b.cotangent("g", size, size)

    def add(number: int, one: int, other: int) -> None:
        symbol, arguments, effects = OPERATIONS[number]
        x, y = pool[one % len(pool)], pool[other % len(pool)]
        if number == VIEW_AS and (x.stride != y.stride or x.stride[1] != 1):
            return  # there is no such view
        made = b.call(f"v{len(b.lines)}_", symbol, *arguments(x, y), effects=effects)
        made = made if not isinstance(made, tuple) else made[0]
        pool.append(made)

    for item in steps:
        add(*item)
    outputs = [pool[place % len(pool)] for place in given]
    b.start_backward()
    for number, one, other in residuals:
        add(number if OPERATIONS[number][2].pure else 0, one, other)
    gradients = []
    for number, place in enumerate(read):
        g = b.call(f"g{number}", MUL, g, pool[place % len(pool)])
        gradients.append(g)
    names = [proxy.name for proxy in pool[2:]]
    chosen = {name: {pool[place % len(pool)].name for place in places} for name, places in fields.items()}
    recomputed = chosen.get("recomputed", set()) & set(names)
    return b.joint(outputs, gradients, recomputed=recomputed, overwritten=chosen.get("overwritten", set()) - set(names))


def without_view_as(steps: list[Step]) -> list[Step]:
    """The cut may count the memory twice of which it saves both a base and such a view."""
    return [item for item in steps if item[0] != VIEW_AS]


def paid(dependence: Dependence, result: Partitioned, policy: Policy) -> float:
    """What the choice costs: bytes saved, and the price of all lines that both programs run."""
    joint, price = dependence.joint, 0
    again = {proxy.name for proxy in result.saved} & joint.recomputed
    for index in {dependence.definitions[name] for name in result.recomputed}:
        line, work = joint.trace.symbols[index], work_of(joint.trace.symbols[index])
        if all(proxy.name not in joint.recomputed for proxy in line.outputs()):
            one = policy.price(line, work)
            price += float("inf") if one is None else one
    lines = [joint.trace.symbols[dependence.definitions[name]] for name in again]
    if any(work_of(line) is not Work.ONCE for line in lines):
        return float("inf")
    return result.bytes_saved + price


def cheapest(dependence: Dependence, policy: Policy, views: frozenset[int]) -> float:
    """The cost of the best of all choices."""
    free = sorted(
        index
        for index in dependence.cone - dependence.fixed - views
        if index not in dependence.forward or work_of(dependence.joint.trace.symbols[index]) is not Work.ONCE
    )
    chosen = (views.union(some) for count in range(len(free) + 1) for some in combinations(free, count))
    return min(paid(dependence, two_programs(dependence, lines, "a test"), policy) for lines in chosen)


quick = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


@quick
@given(
    st.lists(step, min_size=1, max_size=5),
    st.lists(step, max_size=2),
    numbers,
    numbers,
    st.lists(st.integers(2, 30), max_size=2),
    st.sampled_from(
        [POLICIES["none"], POLICIES["cheap"], POLICIES["aggressive"]]
        + [everything(weight) for weight in (0.5, 0.2, 0.05, 0.01, 0.0)]
    ),
)
def test_no_choice_is_cheaper(steps, residuals, read, given, recomputed, policy):
    joint = build(without_view_as(steps), without_view_as(residuals), read, given, recomputed=recomputed)
    dependence = Dependence.of(joint)
    lines = ops_for_backward(dependence, policy)
    result = two_programs(dependence, lines, "a test")
    verify(result.forward)
    verify(result.backward)
    views = frozenset(index for index in lines if work_of(joint.trace.symbols[index]) is Work.VIEW)
    assert paid(dependence, result, policy) == cheapest(dependence, policy, views), f"{joint.trace}\n{result}"


@quick
@given(
    st.lists(step, min_size=1, max_size=12),
    st.lists(step, max_size=4),
    numbers,
    numbers,
    st.lists(st.integers(0, 30), max_size=3),
    st.lists(st.integers(0, 1), max_size=1),
    st.sampled_from(["none", "cheap", "aggressive", {"budget": 0.5}, {"budget": 0.0}]),
)
def test_both_programs_compute_what_the_joint_trace_does(
    steps, residuals, read, given, recomputed, overwritten, policy
):
    joint = build(steps, residuals, read, given, recomputed=recomputed, overwritten=overwritten, size=4)
    check(joint, split(joint, policy), between=lambda *inputs: None)


@quick
@given(
    st.lists(step, min_size=1, max_size=12),
    st.lists(step, max_size=4),
    numbers,
    numbers,
    st.lists(st.integers(0, 30), max_size=3),
    st.sampled_from([4, 4096]),
)
def test_freer_policies_save_no_more(steps, residuals, read, given, recomputed, size):
    joint = build(without_view_as(steps), without_view_as(residuals), read, given, recomputed=recomputed, size=size)
    saved = [split(joint, policy).bytes_saved for policy in ("none", "cheap", "aggressive")]
    assert saved == sorted(saved, reverse=True)
