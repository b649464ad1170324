"""The derivative of one line: what its forward leaves behind, and how cotangents go through it."""

from __future__ import annotations

from dataclasses import dataclass

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.context import Context
from thunder_core.ir.proxy import Proxy, TensorProxy
from thunder_core.passes.proxies import inputs_of, outputs_of

PLAIN = Context(grad_enabled=False, inference=False)
"""The modes that derivatives run under: no recording of gradients, no autocast."""


@dataclass(frozen=True, slots=True)
class Query:
    """What is asked about one line.

    Attributes:
        bound: the line, under modes that its context gives in full.
        wanted: names of its inputs whose gradient is wanted.
        reached: names of its outputs that get a cotangent.
    """

    bound: BoundSymbol
    wanted: frozenset[str]
    reached: frozenset[str]


@dataclass(frozen=True, slots=True)
class Derivative:
    """Lines that take the place of a line, and those that give its gradients.

    The inputs and outputs of the line are called as in ``bound``; all other values have made-up names, and storages
    with negative numbers.

    Attributes:
        bound: the line that it was derived for.
        forward: compute the outputs of ``bound`` and what ``backward`` uses besides.
        backward: from cotangents (and values of forward) to gradients.
        cotangents: for each output that gets one, by name, the value that stands for its cotangent.
        gradients: for each wanted input, by name, its gradient; inputs without a gradient are absent.
        source: who gave the formula, for people.
    """

    bound: BoundSymbol
    forward: tuple[BoundSymbol, ...]
    backward: tuple[BoundSymbol, ...]
    cotangents: dict[str, TensorProxy]
    gradients: dict[str, Proxy]
    source: str


def is_view(line: BoundSymbol) -> bool:
    """Whether a line computes nothing: all its outputs lie in the memory of its inputs."""
    if not line.effects.pure:
        return False
    memories = {proxy.storage for proxy in inputs_of(line) if isinstance(proxy, TensorProxy)}
    return all(isinstance(proxy, TensorProxy) and proxy.storage in memories for proxy in outputs_of(line))
