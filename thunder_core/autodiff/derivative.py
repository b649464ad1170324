"""The derivative of one line: what its forward leaves behind, and how cotangents go through it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import torch

from thunder_core.executors.decision import Decision
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.context import Context
from thunder_core.ir.proxy import Proxy, TensorProxy
from thunder_core.ir.size import Size, from_fake, on_fakes
from thunder_core.ir.tree import map_leaves

PLAIN = Context(grad_enabled=False, inference=False)
"""The modes that derivatives run under: no recording of gradients, no autocast."""


@dataclass(frozen=True, slots=True)
class Query:
    """What is asked about one line.

    Attributes:
        bound: the line, under modes that its context gives in full.
        wanted: names of its inputs whose gradient is wanted.
        reached: names of its outputs that get a cotangent.
        cotangent_strides: strides of cotangents, by name of the output, where they are not dense.
    """

    bound: BoundSymbol
    wanted: frozenset[str]
    reached: frozenset[str]
    cotangent_strides: Mapping[str, tuple[Size, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Derivative:
    """Lines that take the place of a line, and those that give its gradients.

    The inputs and outputs of the line are called as in ``bound``; all other values have names with a colon, which no
    value of a trace has, and storages with negative numbers.

    Attributes:
        bound: the line that it was derived for.
        forward: compute the outputs of ``bound`` and what ``backward`` uses besides.
        backward: from cotangents (and values of forward) to gradients.
        cotangents: for each output that gets one, by name, the value that stands for its cotangent.
        gradients: for each wanted input, by name, its gradient; inputs without a gradient are absent.
        source: who gave the formula, for people: an executor's name, for example.
        along: None for most: ``backward`` takes zeros for absent cotangents. Otherwise it takes None for them, and an
            input named here has a gradient only if the output that its name leads to has a cotangent.
        reason: why those who were asked before ``source`` failed, for people; empty if they just have no formula.
        answers: what the executors said to the line, up to the one whose pair this is.
    """

    bound: BoundSymbol
    forward: tuple[BoundSymbol, ...]
    backward: tuple[BoundSymbol, ...]
    cotangents: dict[str, TensorProxy]
    gradients: dict[str, Proxy]
    source: str
    along: Mapping[str, str] | None = None
    reason: str = ""
    answers: tuple[Decision, ...] = ()

    def without(self, absent: frozenset[str]) -> Derivative:
        """The same where those outputs have no cotangents. For derivatives whose ``backward`` takes None for them."""
        along = self.along or {}
        kept = {name: proxy for name, proxy in self.gradients.items() if along.get(name) not in absent}
        gone = {self.cotangents[name].name for name in absent}
        gone |= {proxy.name for name, proxy in self.gradients.items() if name not in kept}

        def value(leaf: Any) -> Any:
            return None if isinstance(leaf, TensorProxy) and leaf.name in gone else leaf

        return replace(
            self,
            backward=tuple(
                [replace(line.map_arguments(value), output=map_leaves(value, line.output)) for line in self.backward]
            ),
            cotangents={name: proxy for name, proxy in self.cotangents.items() if name not in absent},
            gradients=kept,
        )


def dense_stride(proxy: TensorProxy) -> tuple[Size, ...]:
    """Strides of a dense tensor of that shape, in the order of dimensions of ``proxy``."""
    return _dense_stride(proxy.shape, proxy.stride) if proxy.layout is torch.strided else ()


@lru_cache(4096)  # each layer of a model asks for the same ones: half of the time of its cotangents
def _dense_stride(shape: tuple[Size, ...], stride: tuple[Size, ...]) -> tuple[Size, ...]:
    whole = torch.empty_strided(*on_fakes((shape, stride)), device="meta")
    dense: tuple[Size, ...] = from_fake(torch.empty_like(whole).stride())
    return dense


def sum_stand_in(one: TensorProxy, other: TensorProxy, name: str, storage: int) -> TensorProxy:
    """What `torch.add` makes of two gradients of one value: its strides depend on those of both."""
    stride = dense_stride(one)
    if one.stride != other.stride and one.layout is other.layout is torch.strided:
        stride = _sum_stride(one.shape, one.stride, other.stride)
    return replace(one, name=name, storage=storage, offset=0, stride=stride, requires_grad=False)


@lru_cache(4096)
def _sum_stride(shape: tuple[Size, ...], *strides: tuple[Size, ...]) -> tuple[Size, ...]:
    one, other = (torch.empty_strided(*on_fakes((shape, stride)), device="meta") for stride in strides)
    total: tuple[Size, ...] = from_fake(torch.add(one, other).stride())
    return total


def stand_in(proxy: TensorProxy, name: str, storage: int) -> TensorProxy:
    """A dense value like ``proxy`` in a derivative: its cotangent, or its gradient."""
    return replace(proxy, name=name, storage=storage, offset=0, stride=dense_stride(proxy), requires_grad=False)
