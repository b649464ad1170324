"""Which lines of a joint trace must run in forward, which in backward, and what backward takes from forward."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain

from thunder_core.autodiff.joint import Joint
from thunder_core.autodiff.memory import storage_bytes
from thunder_core.ir.aliases import Aliases
from thunder_core.ir.proxy import Proxy, TensorProxy
from thunder_core.ir.symbol import Tag
from thunder_core.ir.tree import iterate_proxies


@dataclass(frozen=True, slots=True)
class Dependence:
    """What the partition may not choose.

    Lines are numbers of lines of the joint trace.

    Attributes:
        joint: the joint trace.
        inputs, outputs: of each line.
        definitions: by name the line that defines it; inputs of the trace have none.
        backward: in order, the lines that run in backward: those that depend on a cotangent and matter to a gradient,
            and those with effects after the program's own lines.
        needed: what these and the gradients take from outside: values that depend on no cotangent, each once.
        cone: the lines that ``needed`` is computed by.
        forward: lines that run in forward: those that the outputs or lines with effects need.
        fixed: lines of the cone that run in forward and never in backward: they have effects, make numbers or objects,
            or make tensors in memory that is overwritten before backward runs.
        overwritten: storage numbers of that memory.
        given: storage numbers of memory that is there anyway: of inputs, and of what the caller gets.
        sizes: of each memory, in bytes, by storage number.
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
        """Linear in the joint trace."""
        lines = joint.trace.symbols
        inputs, outputs = tuple([line.inputs() for line in lines]), tuple([line.outputs() for line in lines])
        definitions = {proxy.name: index for index, made in enumerate(outputs) for proxy in made}
        tainted, dependent = _tainted(joint, inputs, outputs)
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
            line = lines[index]
            return not (line.effects.pure or Tag.REPEATED in line.symbol.tags) or any(
                not isinstance(proxy, TensorProxy) or proxy.storage in overwritten for proxy in outputs[index]
            )

        cone = ancestors(needed, inputs, definitions)
        fixed = frozenset(filter(is_fixed, cone))
        effects = {index for index in range(len(lines)) if not lines[index].effects.pure and index not in tainted}
        own = fixed | effects
        roots = [*iterate_proxies(joint.outputs), *(proxy for index in own for proxy in inputs[index])]
        forward = ancestors(roots, inputs, definitions) | own
        memories = overwritten, given, sizes
        return cls(joint, inputs, outputs, definitions, backward, needed, cone, forward, fixed, *memories)

    def lines_of_forward(self, values: Iterable[Proxy]) -> list[int]:
        """In order, the lines of a forward program that returns ``values`` besides the outputs."""
        lines = self.joint.trace.symbols
        effects = [index for index in self.forward if not lines[index].effects.pure]
        roots = [*iterate_proxies(self.joint.outputs), *values]
        roots += (proxy for index in effects for proxy in self.inputs[index])
        return sorted(ancestors(roots, self.inputs, self.definitions).union(effects))


def ancestors(
    values: Iterable[Proxy], inputs: tuple[tuple[Proxy, ...], ...], definitions: dict[str, int]
) -> frozenset[int]:
    """The lines that ``values`` are computed by."""
    found: set[int] = set()
    waiting = [proxy.name for proxy in values]
    while waiting:
        index = definitions.get(waiting.pop())
        if index is not None and index not in found:
            found.add(index)
            waiting.extend(proxy.name for proxy in inputs[index])
    return frozenset(found)


def _tainted(
    joint: Joint, inputs: tuple[tuple[Proxy, ...], ...], outputs: tuple[tuple[Proxy, ...], ...]
) -> tuple[set[int], set[str]]:
    """The lines that depend on a cotangent, or on an effect after the program's own lines; and those values' names."""
    names = {proxy.name for proxy in joint.cotangents}
    lines: set[int] = set()
    for index, line in enumerate(joint.trace.symbols):
        late = index >= joint.forward_lines and not line.effects.pure
        if late or any(proxy.name in names for proxy in inputs[index]):
            lines.add(index)
            names.update(proxy.name for proxy in outputs[index])
    return lines, names


def _live(
    joint: Joint, tainted: set[int], inputs: tuple[tuple[Proxy, ...], ...], outputs: tuple[tuple[Proxy, ...], ...]
) -> tuple[int, ...]:
    """Those of the tainted lines that have effects or that a gradient needs, in order."""
    names = {proxy.name for proxy in iterate_proxies(joint.gradients)}
    live: list[int] = []
    for index in sorted(tainted, reverse=True):
        effects = not joint.trace.symbols[index].effects.pure
        if effects or any(proxy.name in names for proxy in outputs[index]):
            live.append(index)
            names.update(proxy.name for proxy in inputs[index])
    return tuple(reversed(live))
