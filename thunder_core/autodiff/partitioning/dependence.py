"""The ops of a joint trace that must run in forward or in backward, and the values that backward needs from forward."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

from thunder_core.autodiff.joint import Joint
from thunder_core.ir.aliases import Aliases
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.proxy import Proxy, TensorProxy
from thunder_core.ir.storage_sizes import storage_bytes
from thunder_core.ir.symbol import Tag
from thunder_core.ir.tree import iterate_proxies


@dataclass(frozen=True, slots=True)
class Dependence:
    """The constraints of the partition.

    Ops are represented by their indices in the joint trace.

    Attributes:
        joint: the joint trace.
        inputs, outputs: the values that each op reads and defines.
        definitions: the op that defines a value, by name; inputs of the trace are absent.
        backward: in order, the ops that run in backward: those that depend on a cotangent and that a gradient needs,
            and those with effects after the ops of the program.
        needed: the values that ``backward`` and the gradients read and that depend on no cotangent, each once.
        cone: the ops that compute ``needed``.
        forward: the ops that run in forward because outputs or ops with effects need them.
        fixed: the ops of the cone that run in forward and never in backward: they have effects, return numbers or
            objects, or return tensors in storages that are overwritten before backward runs.
        overwritten: numbers of those storages.
        given: numbers of storages that are alive in any case: of inputs, and of values returned to the caller.
        sizes: bytes of each storage, by number.
    """

    joint: Joint
    inputs: tuple[tuple[Proxy, ...], ...]
    outputs: tuple[tuple[Proxy, ...], ...]
    definitions: dict[str, int]
    backward: tuple[int, ...]
    needed: tuple[Proxy, ...]
    cone: frozenset[int]
    forward: frozenset[int]
    fixed: frozenset[int]
    overwritten: frozenset[int]
    given: frozenset[int]
    sizes: dict[int, int]

    @classmethod
    def of(cls, joint: Joint) -> Dependence:
        """Compute the constraints for a joint trace, in time linear in its length."""
        ops = joint.trace.symbols
        inputs, outputs = tuple([op.inputs() for op in ops]), tuple([op.outputs() for op in ops])
        definitions = {proxy.name: index for index, defined in enumerate(outputs) for proxy in defined}
        tainted, dependent = of_backward(ops, joint.cotangents, joint.backward_start)
        backward = _live(joint, tainted, inputs, outputs)
        read = [proxy for index in backward for proxy in inputs[index]]
        read += iterate_proxies(joint.gradients)
        needed = tuple({proxy.name: proxy for proxy in read if proxy.name not in dependent}.values())

        overwritten = Aliases.of(joint.trace).storages_of(joint.overwritten)
        returned = [joint.outputs[position] for position in joint.returned]
        there = [proxy.storage for proxy in (*joint.primals, *returned) if isinstance(proxy, TensorProxy)]
        given = frozenset(there) - overwritten
        sizes = storage_bytes((*joint.trace.inputs, *chain.from_iterable(outputs)))

        def is_fixed(index: int) -> bool:
            op = ops[index]
            return not (op.effects.pure or Tag.REPEATED in op.symbol.tags) or any(
                not isinstance(proxy, TensorProxy) or proxy.storage in overwritten for proxy in outputs[index]
            )

        cone = ancestors(needed, inputs, definitions)
        fixed = frozenset(filter(is_fixed, cone))
        effects = {index for index in range(len(ops)) if not ops[index].effects.pure and index not in tainted}
        own = fixed | effects
        roots = [*iterate_proxies(joint.outputs), *(proxy for index in own for proxy in inputs[index])]
        forward = ancestors(roots, inputs, definitions) | own
        storages = overwritten, given, sizes
        return cls(joint, inputs, outputs, definitions, backward, needed, cone, forward, fixed, *storages)

    def ops_of_forward(self, values: Iterable[Proxy]) -> list[int]:
        """In order, the ops of a forward trace that returns ``values`` besides the outputs."""
        ops = self.joint.trace.symbols
        effects = [index for index in self.forward if not ops[index].effects.pure]
        roots = [*iterate_proxies(self.joint.outputs), *values]
        roots += (proxy for index in effects for proxy in self.inputs[index])
        return sorted(ancestors(roots, self.inputs, self.definitions).union(effects))


def ancestors(
    values: Iterable[Proxy], inputs: tuple[tuple[Proxy, ...], ...], definitions: dict[str, int]
) -> frozenset[int]:
    """The ops that compute ``values``, directly or indirectly."""
    ops: set[int] = set()
    waiting = [proxy.name for proxy in values]
    while waiting:
        index = definitions.get(waiting.pop())
        if index is not None and index not in ops:
            ops.add(index)
            waiting.extend(proxy.name for proxy in inputs[index])
    return frozenset(ops)


def of_backward(
    ops: Sequence[BoundSymbol], cotangents: Iterable[Proxy], backward_start: int
) -> tuple[set[int], set[str]]:
    """The ops, with names of results, that depend on a cotangent or on an effect after the ops of the program."""
    names = {proxy.name for proxy in cotangents}
    positions: set[int] = set()
    for index, op in enumerate(ops):
        late = index >= backward_start and not op.effects.pure
        if late or any(proxy.name in names for proxy in op.inputs()):
            positions.add(index)
            names.update(proxy.name for proxy in op.outputs())
    return positions, names


def _live(
    joint: Joint, tainted: set[int], inputs: tuple[tuple[Proxy, ...], ...], outputs: tuple[tuple[Proxy, ...], ...]
) -> tuple[int, ...]:
    """The tainted ops that have effects or that a gradient needs, in order."""
    names = {proxy.name for proxy in iterate_proxies(joint.gradients)}
    live: list[int] = []
    for index in sorted(tainted, reverse=True):
        effects = not joint.trace.symbols[index].effects.pure
        if effects or any(proxy.name in names for proxy in outputs[index]):
            live.append(index)
            names.update(proxy.name for proxy in inputs[index])
    return tuple(reversed(live))
