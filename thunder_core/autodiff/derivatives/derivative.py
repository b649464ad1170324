"""The derivative of one op: a forward that also computes residuals, and a backward from cotangents to gradients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import torch

from thunder_core.autodiff.derivatives.rules import Rule
from thunder_core.executors.decision import Decision
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.context import Context
from thunder_core.ir.proxy import Proxy, TensorProxy
from thunder_core.ir.size import Size, from_fake, on_fakes

PLAIN = Context(grad_enabled=False, inference=False)
"""The modes that derivatives run under: no recording of gradients, no autocast."""


@dataclass(frozen=True, slots=True)
class Query:
    """A request for the derivative of one op.

    Attributes:
        bound: the op, with a context that specifies all modes.
        wanted: names of its inputs whose gradients are computed.
        reached: names of its outputs that have a cotangent.
        rule: the hand-written rule of its symbol (`thunder_core.autodiff.derivatives.rules`); None if it has none.
        cotangent_strides: strides of cotangents, by name of the output, where they are not dense.
    """

    bound: BoundSymbol
    wanted: frozenset[str]
    reached: frozenset[str]
    rule: Rule | None
    cotangent_strides: Mapping[str, tuple[Size, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Derivative:
    """Ops that replace an op in forward, and ops that compute its gradients in backward.

    The inputs and outputs of the op have the same names as in ``bound``; all other values have names with a colon,
    which do not occur in traces, and storages with negative numbers.

    Attributes:
        bound: the op for which this was derived.
        forward: the ops that compute the outputs of ``bound`` and the residuals.
        backward: the ops that compute gradients from cotangents and residuals.
        cotangents: the cotangent of each output that has one, by name of the output.
        gradients: the gradient of each wanted input, by name of the input; inputs without gradient are absent.
        source: the origin of the formula for reports: an executor's name, for example.
        along: None if ``backward`` takes zeros for absent cotangents, as most do. Otherwise ``backward`` takes None for
            them, and an input in this mapping has a gradient only if the output that it maps to has a cotangent.
        reason: why the sources tried before ``source`` failed, for reports; empty if they have no formula.
        decisions: of the executors about the op, up to the executor whose pair this is.
    """

    bound: BoundSymbol
    forward: tuple[BoundSymbol, ...]
    backward: tuple[BoundSymbol, ...]
    cotangents: dict[str, TensorProxy]
    gradients: dict[str, Proxy]
    source: str
    along: Mapping[str, str] | None = None
    reason: str = ""
    decisions: tuple[Decision, ...] = ()

    def without(self, absent: frozenset[str]) -> Derivative:
        """The derivative without cotangents for these outputs. Requires that ``backward`` takes None for them."""
        along = self.along or {}
        remaining = {name: proxy for name, proxy in self.gradients.items() if along.get(name) not in absent}
        gone = {self.cotangents[name].name for name in absent}
        gone |= {proxy.name for name, proxy in self.gradients.items() if name not in remaining}

        def value(leaf: Any) -> Any:
            return None if isinstance(leaf, TensorProxy) and leaf.name in gone else leaf

        return replace(
            self,
            backward=tuple([op.map_leaves(value) for op in self.backward]),
            cotangents={name: proxy for name, proxy in self.cotangents.items() if name not in absent},
            gradients=remaining,
        )


def dense_stride(proxy: TensorProxy) -> tuple[Size, ...]:
    """Strides of a dense tensor of that shape, in the order of dimensions of ``proxy``."""
    return _dense_stride(proxy.shape, proxy.stride) if proxy.layout is torch.strided else ()


@lru_cache(4096)  # layers of a model repeat the same shapes; without the cache this is half of the time of cotangents
def _dense_stride(shape: tuple[Size, ...], stride: tuple[Size, ...]) -> tuple[Size, ...]:
    whole = torch.empty_strided(*on_fakes((shape, stride)), device="meta")
    dense: tuple[Size, ...] = from_fake(torch.empty_like(whole).stride())
    return dense


def sum_stand_in(one: TensorProxy, other: TensorProxy, name: str, storage: int) -> TensorProxy:
    """A proxy for the `torch.add` of two gradients of one value: its strides depend on those of both."""
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
    """A dense proxy like ``proxy``, for its cotangent or its gradient."""
    return replace(proxy, name=name, storage=storage, offset=0, stride=dense_stride(proxy), requires_grad=False)
