"""The two programs of a joint trace, once it is decided which lines backward runs."""

from __future__ import annotations

from collections.abc import Iterable

from thunder_core.autodiff.dependence import Dependence
from thunder_core.autodiff.input_copies import copy_of_input
from thunder_core.autodiff.joint import Partitioned
from thunder_core.autodiff.memory import bytes_of
from thunder_core.autodiff.renumbering import renumbered
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.builder import Builder
from thunder_core.ir.proxy import Proxy, TensorProxy
from thunder_core.ir.trace import Stage, Trace
from thunder_core.ir.tree import map_leaves


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
