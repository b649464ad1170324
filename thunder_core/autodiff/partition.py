"""The partition of a joint trace into forward and backward."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import ClassVar, Final

import torch

from thunder_core.autodiff.dependence import Dependence
from thunder_core.autodiff.joint import Joint, Partitioned
from thunder_core.autodiff.memory import bytes_of, extent_bytes
from thunder_core.autodiff.recompute import DEFAULT, POLICIES, Budget, Policy, everything, parse_policy
from thunder_core.autodiff.selection import lines_for_backward
from thunder_core.errors import SizeVariesError
from thunder_core.ir.bound_symbol import BoundSymbol, tensor_inputs_of, tensor_outputs_of
from thunder_core.ir.builder import Builder
from thunder_core.ir.proxy import PROXY_TYPES, Proxy, TensorProxy
from thunder_core.ir.size import are_constant, from_fake, on_fakes
from thunder_core.ir.trace import Stage, Trace
from thunder_core.ir.tree import map_leaves
from thunder_core.passes.base import Pass, PassContext
from thunder_core.passes.moved_memories import Place
from thunder_core.symbols.registry import registry


def copy_of_input(tensor: TensorProxy, builder: Builder) -> tuple[tuple[BoundSymbol, ...], TensorProxy]:
    """Lines that copy ``tensor``, and the copy: of the same sizes and strides, in a storage of its own."""
    copy = replace(
        tensor, name=builder.name(f"{tensor.name}_copy"), storage=builder.new_storage(), offset=0, requires_grad=False
    )
    clone, as_strided = registry.symbol_named("torch.clone"), registry.symbol_named("torch.as_strided")
    if _clone_keeps_strides(tensor):
        return (BoundSymbol(clone, (tensor,), {}, copy),), copy
    # A clone closes gaps, and copies elements that lie on each other one by one: the memory below is cloned instead.
    length = extent_bytes(replace(tensor, offset=0)) // tensor.dtype.itemsize
    memory = replace(tensor, name=builder.name(f"{tensor.name}_memory"), shape=(length,), stride=(1,))
    cloned = replace(copy, name=builder.name(f"{tensor.name}_memory_copy"), shape=(length,), stride=(1,))
    return (
        BoundSymbol(as_strided, (tensor, (length,), (1,)), {}, memory),
        BoundSymbol(clone, (memory,), {}, cloned),
        BoundSymbol(as_strided, (cloned, tensor.shape, tensor.stride), {}, copy),
    ), copy


def _clone_keeps_strides(tensor: TensorProxy) -> bool:
    """Sparse tensors have none.

    Raises:
        SizeVariesError: it does not, and has sizes that vary, so that its memory does as well.
    """
    if tensor.layout is not torch.strided:
        return True
    clone = torch.empty_strided(*on_fakes((tensor.shape, tensor.stride)), dtype=tensor.dtype, device="meta").clone()
    keeps = from_fake(clone.stride()) == tensor.stride
    if not keeps and not are_constant((*tensor.shape, *tensor.stride)):
        raise SizeVariesError(f"{tensor.name}, which is written, is a part of a larger memory")
    return bool(keeps)


def renumbered(
    inputs: Iterable[Proxy], lines: list[BoundSymbol], substitutes: Mapping[str, Proxy]
) -> tuple[list[BoundSymbol], dict[str, Proxy]]:
    """The lines with the right memory, reading ``substitutes`` instead of the values of those names.

    A line that computes again what lies in the memory of an input makes new memory, which needs a number of its own;
    so do the views of it. Also returned is what stands for each value whose proxy is another than before.
    """
    owned = {proxy.storage for proxy in inputs if isinstance(proxy, TensorProxy)}
    changed: dict[str, Proxy] = dict(substitutes)
    if not changed and not any(_clashes(line, owned) for line in lines):
        return lines, changed
    numbers = [proxy.storage for line in lines for proxy in (*tensor_inputs_of(line), *tensor_outputs_of(line))]
    fresh = count(max([*numbers, *owned], default=-1) + 1)
    return [_renumbered_line(line, owned, changed, fresh) for line in lines], changed


def _clashes(line: BoundSymbol, owned: set[int]) -> bool:
    """Whether the line makes new memory under a number that is taken."""
    outputs = [proxy for proxy in tensor_outputs_of(line) if proxy.storage in owned]
    return bool(outputs) and not {proxy.storage for proxy in outputs} <= {p.storage for p in tensor_inputs_of(line)}


def _renumbered_line(
    line: BoundSymbol, owned: set[int], changed: dict[str, Proxy], fresh: Iterable[int]
) -> BoundSymbol:
    places: dict[int, Place] = {}
    for proxy in tensor_inputs_of(line):
        actual = changed.get(proxy.name, proxy)
        assert isinstance(actual, TensorProxy)
        places.setdefault(proxy.storage, Place.where(proxy, actual))
    for proxy in tensor_outputs_of(line):
        if proxy.storage not in places:
            places[proxy.storage] = Place(next(iter(fresh)) if proxy.storage in owned else proxy.storage)
        if places[proxy.storage].storage != proxy.storage:
            changed[proxy.name] = places[proxy.storage].moved(proxy)
    owned.update(place.storage for place in places.values())

    def current(leaf: object) -> object:
        return changed.get(leaf.name, leaf) if isinstance(leaf, PROXY_TYPES) else leaf

    return replace(line.map_arguments(current), output=map_leaves(current, line.output))


def two_programs(dependence: Dependence, again: frozenset[int], provenance: str) -> Partitioned:
    """Forward and backward, where backward may run the lines ``again`` besides its own."""
    joint, lines = dependence.joint, dependence.joint.trace.symbols
    backward = _Backward(dependence, again)
    taken = backward.order()
    copies = _copies(dependence, taken)
    copied = {name: copy for name, (_, copy) in copies.items()}
    saved = tuple(copied.get(proxy.name, proxy) for proxy in taken)
    forward_lines = dependence.lines_of_forward(taken)
    forward = _program(
        joint.trace,
        "forward",
        joint.primals,
        [*(lines[index] for index in forward_lines), *(line for made, _ in copies.values() for line in made)],
        (*joint.outputs, *saved),
        provenance,
    )
    inputs = (*saved, *joint.cotangents)
    own, substitutes = renumbered(inputs, [lines[index] for index in backward.lines], copied)
    gradients = map_leaves(lambda leaf: substitutes.get(leaf.name, leaf) if leaf is not None else None, joint.gradients)
    twice = set(forward_lines)
    return Partitioned(
        forward,
        _program(joint.trace, "backward", inputs, own, gradients, provenance),
        saved,
        len(joint.outputs),
        bytes_of(saved, dependence.sizes, dependence.given),
        tuple(p.name for index in backward.lines if index in twice for p in dependence.outputs[index]),
    )


class _Backward:
    """Orders the lines of backward: its own as they are, each of the others right before its first use."""

    def __init__(self, dependence: Dependence, again: frozenset[int]) -> None:
        self.dependence = dependence
        self.again = again
        self.lines: list[int] = []
        self.saved: dict[str, Proxy] = {}
        self.known = {proxy.name for proxy in dependence.joint.cotangents}

    def order(self) -> list[Proxy]:
        """Fill `lines`; the values that they take from forward, in the order of the joint trace."""
        dependence = self.dependence
        for index in dependence.backward:
            self._obtain(dependence.inputs[index])
            self._add(index)
        self._obtain(dependence.needed)  # gradients that no line of backward reads
        inputs = {proxy.name: place for place, proxy in enumerate(dependence.joint.primals)}
        first = -len(inputs)
        return sorted(
            self.saved.values(),
            key=lambda proxy: dependence.definitions.get(proxy.name, first + inputs.get(proxy.name, 0)),
        )

    def _obtain(self, proxies: Iterable[Proxy]) -> None:
        """Compute or save values, what comes first in the list first."""
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
        self.lines.append(index)
        self.known.update(proxy.name for proxy in self.dependence.outputs[index])


def _copies(dependence: Dependence, taken: list[Proxy]) -> dict[str, tuple[tuple[BoundSymbol, ...], TensorProxy]]:
    """For each of the values in memory that is overwritten the lines that copy it, and the copy."""
    lost = [p for p in taken if isinstance(p, TensorProxy) and p.storage in dependence.overwritten]
    if not lost:
        return {}
    trace = dependence.joint.trace
    builder = Builder(trace.names(), max(dependence.sizes) + 1)
    return {proxy.name: copy_of_input(proxy, builder) for proxy in lost}


def _program(
    trace: Trace,
    name: str,
    inputs: tuple[Proxy, ...],
    lines: Iterable[BoundSymbol],
    output: tuple[Proxy | None, ...],
    provenance: str,
) -> Trace:
    return Trace(name, inputs, tuple(lines), output, Stage.FUNCTIONAL, provenance, trace.context)


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
