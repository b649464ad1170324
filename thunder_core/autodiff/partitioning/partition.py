"""The partition of a joint trace into forward and backward."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import ClassVar, Final

import torch

from thunder_core.autodiff.joint import Joint, Partitioned
from thunder_core.autodiff.partitioning.dependence import Dependence
from thunder_core.autodiff.partitioning.formulas import with_formulas, without_formulas
from thunder_core.autodiff.partitioning.memory import Curve, within
from thunder_core.autodiff.partitioning.recompute import DEFAULT, POLICIES, Budget, Policy, everything, parse_policy
from thunder_core.autodiff.partitioning.selection import ops_for_backward
from thunder_core.errors import SizeVariesError
from thunder_core.ir.bound_symbol import BoundSymbol, tensor_inputs_of, tensor_outputs_of, tensors_of
from thunder_core.ir.builder import Builder
from thunder_core.ir.geometry import StoragePosition
from thunder_core.ir.proxy import PROXY_TYPES, Proxy, TensorProxy, storages_of
from thunder_core.ir.size import are_constant, from_fake, on_fakes
from thunder_core.ir.storage_sizes import bytes_of, extent_bytes
from thunder_core.ir.trace import Stage, Trace
from thunder_core.ir.tree import map_leaves
from thunder_core.passes.base import Pass, PassContext
from thunder_core.symbols.registry import registry


def _copy_of_input(tensor: TensorProxy, builder: Builder) -> tuple[tuple[BoundSymbol, ...], TensorProxy]:
    """The ops that copy ``tensor``, and the copy: it has the same sizes and strides, in a new storage."""
    copy = replace(
        tensor, name=builder.name(f"{tensor.name}_copy"), storage=builder.new_storage(), offset=0, requires_grad=False
    )
    clone, as_strided = registry.symbol_named("torch.clone"), registry.symbol_named("torch.as_strided")
    if _clone_keeps_strides(tensor):
        return (BoundSymbol(clone, (tensor,), {}, copy),), copy
    # A clone removes gaps between elements and duplicates overlapping ones, so the whole extent is cloned instead.
    length = extent_bytes(replace(tensor, offset=0)) // tensor.dtype.itemsize
    whole = replace(tensor, name=builder.name(f"{tensor.name}_storage"), shape=(length,), stride=(1,))
    cloned = replace(copy, name=builder.name(f"{tensor.name}_memory_copy"), shape=(length,), stride=(1,))
    return (
        BoundSymbol(as_strided, (tensor, (length,), (1,)), {}, whole),
        BoundSymbol(clone, (whole,), {}, cloned),
        BoundSymbol(as_strided, (cloned, tensor.shape, tensor.stride), {}, copy),
    ), copy


def _clone_keeps_strides(tensor: TensorProxy) -> bool:
    """Whether a clone has the strides of ``tensor``. True for sparse tensors, which have no strides.

    Raises:
        SizeVariesError: a clone has other strides, and the tensor has dynamic sizes, so that its extent varies too.
    """
    if tensor.layout is not torch.strided:
        return True
    clone = torch.empty_strided(*on_fakes((tensor.shape, tensor.stride)), dtype=tensor.dtype, device="meta").clone()
    same = from_fake(clone.stride()) == tensor.stride
    if not same and not are_constant((*tensor.shape, *tensor.stride)):
        raise SizeVariesError(f"{tensor.name}, which is written, is a part of a larger storage")
    return bool(same)


def renumbered(
    inputs: Iterable[Proxy], ops: list[BoundSymbol], substitutes: Mapping[str, Proxy]
) -> tuple[list[BoundSymbol], dict[str, Proxy]]:
    """The ops with consistent storage numbers, reading ``substitutes`` instead of the values of those names.

    An op that recomputes a value whose storage is also that of an input allocates a new storage, which needs a new
    number; so do the views of that value. Also returned are the new proxies, by name, of the values that changed.
    """
    owned = storages_of(inputs)
    changed: dict[str, Proxy] = dict(substitutes)
    if not changed and not any(_clashes(op, owned) for op in ops):
        return ops, changed
    numbers = [proxy.storage for op in ops for proxy in tensors_of(op)]
    fresh = count(max([*numbers, *owned], default=-1) + 1)
    return [_renumbered_op(op, owned, changed, fresh) for op in ops], changed


def _clashes(op: BoundSymbol, owned: set[int]) -> bool:
    """Whether the op allocates a storage whose number is already in use."""
    outputs = [proxy for proxy in tensor_outputs_of(op) if proxy.storage in owned]
    return bool(outputs) and not {proxy.storage for proxy in outputs} <= {p.storage for p in tensor_inputs_of(op)}


def _renumbered_op(op: BoundSymbol, owned: set[int], changed: dict[str, Proxy], fresh: Iterable[int]) -> BoundSymbol:
    positions: dict[int, StoragePosition] = {}
    for proxy in tensor_inputs_of(op):
        actual = changed.get(proxy.name, proxy)
        assert isinstance(actual, TensorProxy)
        positions.setdefault(proxy.storage, StoragePosition.between(proxy, actual))
    for proxy in tensor_outputs_of(op):
        if proxy.storage not in positions:
            positions[proxy.storage] = StoragePosition(next(iter(fresh)) if proxy.storage in owned else proxy.storage)
        if positions[proxy.storage].storage != proxy.storage:
            changed[proxy.name] = positions[proxy.storage].moved(proxy)
    owned.update(position.storage for position in positions.values())

    def current(leaf: object) -> object:
        return changed.get(leaf.name, leaf) if isinstance(leaf, PROXY_TYPES) else leaf

    return op.map_leaves(current)


def two_programs(dependence: Dependence, again: frozenset[int], provenance: str) -> Partitioned:
    """The forward and backward traces, where backward may also run the ops ``again``."""
    joint, ops = dependence.joint, dependence.joint.trace.symbols
    backward = _BackwardOps(dependence, again)
    taken = backward.order()
    copies = _copies(dependence, taken)
    copied = {name: copy for name, (_, copy) in copies.items()}
    saved = tuple(copied.get(proxy.name, proxy) for proxy in taken)
    forward_positions = dependence.ops_of_forward(taken)
    forward = _program(
        joint.trace,
        "forward",
        joint.primals,
        [*without_formulas(joint, forward_positions), *(op for new, _ in copies.values() for op in new)],
        (*joint.outputs, *saved),
        provenance,
    )
    inputs = (*saved, *joint.cotangents)
    own, substitutes = renumbered(inputs, [ops[index] for index in backward.ops], copied)
    gradients = map_leaves(lambda leaf: substitutes.get(leaf.name, leaf) if leaf is not None else None, joint.gradients)
    twice = set(forward_positions)
    return Partitioned(
        forward,
        _program(joint.trace, "backward", inputs, map(_without_ranges, own), gradients, provenance),
        saved,
        len(joint.outputs),
        bytes_of(saved, dependence.sizes, dependence.given),
        tuple(p.name for index in backward.ops if index in twice for p in dependence.outputs[index]),
    )


def curve_of(dependence: Dependence, policy: Policy | Budget) -> Curve:
    """The partitions of a joint trace that need less memory than that of a policy; than the default's for a budget."""
    start = POLICIES[DEFAULT] if isinstance(policy, Budget) else policy
    return Curve(dependence, start, lambda again: two_programs(dependence, again, Partition.name))


class _BackwardOps:
    """Orders the ops of backward: its own in the order of the joint trace, recomputed ones before their first use."""

    def __init__(self, dependence: Dependence, again: frozenset[int]) -> None:
        self.dependence = dependence
        self.again = again
        self.ops: list[int] = []
        self.saved: dict[str, Proxy] = {}
        self.known = {proxy.name for proxy in dependence.joint.cotangents}

    def order(self) -> list[Proxy]:
        """Fill `ops`; returns the values that they take from forward, in the order of the joint trace."""
        dependence = self.dependence
        for index in dependence.backward:
            self._obtain(dependence.inputs[index])
            self._add(index)
        self._obtain(dependence.needed)  # gradients that no op of backward reads
        inputs = {proxy.name: position for position, proxy in enumerate(dependence.joint.primals)}
        first = -len(inputs)
        return sorted(
            self.saved.values(),
            key=lambda proxy: dependence.definitions.get(proxy.name, first + inputs.get(proxy.name, 0)),
        )

    def _obtain(self, proxies: Iterable[Proxy]) -> None:
        """Recompute or save each value, in the order given."""
        waiting = [proxy for proxy in proxies if proxy.name not in self.known][::-1]
        while waiting:
            proxy = waiting[-1]
            index = self.dependence.definitions.get(proxy.name)
            if proxy.name in self.known:
                waiting.pop()
            elif index is None or index not in self.again:
                self.saved[proxy.name] = proxy
                self.known.add(proxy.name)
            else:
                missing = [item for item in self.dependence.inputs[index] if item.name not in self.known]
                waiting.extend(reversed(missing))
                if not missing:
                    self._add(index)

    def _add(self, index: int) -> None:
        self.ops.append(index)
        self.known.update(proxy.name for proxy in self.dependence.outputs[index])


def _copies(dependence: Dependence, taken: list[Proxy]) -> dict[str, tuple[tuple[BoundSymbol, ...], TensorProxy]]:
    """The ops that copy a saved value, and the copy, for each value whose storage is overwritten, by name."""
    lost = [p for p in taken if isinstance(p, TensorProxy) and p.storage in dependence.overwritten]
    if not lost:
        return {}
    trace = dependence.joint.trace
    builder = Builder(trace.names(), max(dependence.sizes) + 1)
    return {proxy.name: _copy_of_input(proxy, builder) for proxy in lost}


def _without_ranges(bound: BoundSymbol) -> BoundSymbol:
    """An op of backward, which in eager PyTorch is in no range of the profiler."""
    location = bound.location
    return bound if location is None or not location.ranges else replace(bound, location=replace(location, ranges=()))


def _program(
    trace: Trace,
    name: str,
    inputs: tuple[Proxy, ...],
    ops: Iterable[BoundSymbol],
    output: tuple[Proxy | None, ...],
    provenance: str,
) -> Trace:
    return Trace(name, inputs, tuple(ops), output, Stage.FUNCTIONAL, provenance, trace.context)


# Weights of the policies that are tried for a budget, in steps of about 19 %, from no recomputation to recomputation of
# every value that allows it. Except for rounding, the saved bytes do not increase along the list.
_WEIGHTS: Final = (*(2.0 ** (-step / 4) for step in range(100)), 0.0)


@dataclass(frozen=True)
class Partition(Pass[Partitioned]):
    """Splits a joint trace into forward and backward with few bytes saved between them.

    Ops that depend on a cotangent run in backward. Each value that they need from forward is saved or recomputed,
    whichever is cheaper; one minimum cut decides for all values. Random ops and ops with effects run once.

    Attributes:
        joint: the result of differentiation. The pass runs on its trace, which later passes may have changed.
        recompute: the policy: "none" (recompute views only), "cheap", "aggressive", or ``{"budget": f}``: recompute
            enough to save at most ``f`` times the bytes that "cheap" saves, or as close to that as possible.
        memory: the budget of bytes of forward and backward (`memory`): if the partition of the policy exceeds it, the
            fastest one that does not.
    """

    name: ClassVar[str] = "Partition"
    consumes: ClassVar[frozenset[Stage]] = frozenset({Stage.FUNCTIONAL})

    joint: Joint
    recompute: str | Mapping[str, float] = DEFAULT
    memory: int | None = None

    def run(self, trace: Trace, context: PassContext) -> Partitioned:
        """Split the trace.

        Raises:
            OptionError: ``recompute`` is not a valid policy.
            MemoryBudgetError: no partition is within the budget of memory.
        """
        policy = parse_policy(self.recompute, context.fuses())  # fusion makes recomputation cheaper
        joint = self.joint.with_trace(trace)
        if self.memory is not None:
            return within(self.memory, curve_of(Dependence.of(joint), policy))
        if isinstance(policy, Budget):
            return self._within(policy, Dependence.of(joint))
        return self._partitioned(Dependence.of(with_formulas(joint)), policy)

    def traces(self, result: Partitioned) -> tuple[Trace, ...]:
        return result.forward, result.backward

    def _partitioned(self, dependence: Dependence, policy: Policy) -> Partitioned:
        return two_programs(dependence, ops_for_backward(dependence, policy), self.name)

    def _within(self, budget: Budget, dependence: Dependence) -> Partitioned:
        """The partition within the budget that recomputes least; if none is, the one that saves the fewest bytes."""
        usual = self._partitioned(dependence, POLICIES[DEFAULT])
        most = int(budget.fraction * usual.bytes_saved)
        if usual.bytes_saved <= most:
            return usual

        def by_weight(position: int) -> Partitioned:
            return self._partitioned(dependence, everything(_WEIGHTS[position]))

        position, uniform = _first_within(most, by_weight, len(_WEIGHTS))
        if not position or uniform.bytes_saved > most:
            return uniform
        # From one weight to the next, the partition of all equal layers changes together. For a finer choice, only the
        # first ops use the policy that recomputes more: backward needs their values last, when most memory is free.
        lower, higher = everything(_WEIGHTS[position]), everything(_WEIGHTS[position - 1])

        def by_boundary(boundary: int) -> Partitioned:
            ops = ops_for_backward(dependence, lower, later=higher, boundary=boundary)
            return two_programs(dependence, ops, self.name)

        _, closer = _first_within(most, by_boundary, len(dependence.inputs) + 1)
        return closer if closer.bytes_saved <= most else uniform


def _first_within(most: int, partition: Callable[[int], Partitioned], count: int) -> tuple[int, Partitioned]:
    """The first of ``count`` partitions that saves at most ``most`` bytes, and its index; the last if none does.

    A bisection, which relies on saved bytes that do not increase with the index.
    """
    partitions: dict[int, Partitioned] = {}

    def within(position: int) -> bool:
        partitions[position] = partition(position)
        return partitions[position].bytes_saved <= most

    position = bisect_left(range(count - 1), True, key=within)
    return position, partitions[position] if position in partitions else partition(position)
