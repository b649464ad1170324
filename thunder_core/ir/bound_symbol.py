"""Bound symbols: the ops of a trace, each a symbol with its arguments and outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import torch

from thunder_core.ir.context import Context
from thunder_core.ir.effects import PURE, Effects
from thunder_core.ir.location import SourceLocation
from thunder_core.ir.proxy import Proxy, TensorProxy, storages_of
from thunder_core.ir.size import Size, SizeExpr, are_constant, from_fake, with_size
from thunder_core.ir.symbol import Symbol, Tag
from thunder_core.ir.tree import list_proxies, list_sizes, map_leaves

_CAST_TYPES: Final = [TensorProxy, torch.dtype]


@dataclass(frozen=True, slots=True)
class BoundSymbol:
    """One op of a trace: a call of a symbol.

    Attributes:
        symbol: the operation that is called.
        args, kwargs: nested tuples, lists, dicts and slices of proxies, literals and (for higher-order symbols) traces.
        output: a proxy, None, or nested containers of proxies and None; all its proxies are defined here.
        effects: the effects of the call besides its outputs.
        context: the modes it runs under; None for those of the trace.
        location: the line of the user's program with the call.
        parts: the ops that it was lowered to, for the printer; empty before lowering.
    """

    symbol: Symbol
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    output: Any
    effects: Effects = PURE
    context: Context | None = None
    location: SourceLocation | None = None
    parts: tuple[BoundSymbol, ...] = field(default=(), compare=False)

    # cached: passes read them about a dozen times per op
    _inputs: tuple[Proxy, ...] | None = field(default=None, init=False, repr=False, compare=False)
    _outputs: tuple[Proxy, ...] | None = field(default=None, init=False, repr=False, compare=False)

    def inputs(self) -> tuple[Proxy, ...]:
        """Proxies among the arguments, in order."""
        inputs = self._inputs
        if inputs is None:
            inputs = tuple(list_proxies((*self.args, self.kwargs) if self.kwargs else self.args))
            object.__setattr__(self, "_inputs", inputs)
        return inputs

    def outputs(self) -> tuple[Proxy, ...]:
        """Proxies that this op defines, in order."""
        outputs = self._outputs
        if outputs is None:
            outputs = tuple(list_proxies((self.output,)))
            object.__setattr__(self, "_outputs", outputs)
        return outputs

    def proxies(self) -> tuple[Proxy, ...]:
        """Proxies among the arguments, then those that it defines."""
        return self.inputs() + self.outputs()

    def varies(self) -> bool:
        """Whether an argument, or a size of an input or output tensor, varies between calls."""
        if any(not are_constant(proxy.sizes) for proxy in tensors_of(self)):
            return True
        return bool(list_sizes((self.args, self.kwargs)))

    def with_sizes(self, value: Callable[[SizeExpr], Size], *, literals: bool = True) -> BoundSymbol:
        """The op with ``value(size)`` in place of each varying size, also in traces among its arguments.

        Args:
            literals: whether sizes that are arguments themselves are replaced too, besides those of tensors.
        """

        def of_leaf(leaf: Any) -> Any:
            with_sizes = getattr(leaf, "with_sizes", None)
            if with_sizes is None:
                return with_size(leaf, value) if literals else leaf
            return with_sizes(value)

        return self.map_leaves(of_leaf)

    def happens_once(self) -> bool:
        """Whether running the op a second time would repeat an effect, so that it must not be recomputed.

        False for symbols with the tag COLLECTIVE: their results depend on their arguments alone, and all ranks
        recompute them in the same order.
        """
        repeatable = not self.symbol.tags.isdisjoint((Tag.COLLECTIVE, Tag.WAIT))
        return self.effects.external or (bool(self.effects.channels) and not repeatable)

    def is_view(self) -> bool:
        """Whether the op computes nothing: all its outputs share storage with its inputs."""
        if not self.effects.pure:
            return False
        storages = storages_of(self.inputs())
        return all(isinstance(proxy, TensorProxy) and proxy.storage in storages for proxy in self.outputs())

    def is_cast(self) -> bool:
        """Whether the op copies a tensor to another dtype and does nothing else."""
        return Tag.CAST in self.symbol.tags and not self.kwargs and [type(leaf) for leaf in self.args] == _CAST_TYPES

    def is_recorded(self, ambient: Context) -> bool:
        """Whether autograd records the op, or autocast casts its arguments, in a trace of context ``ambient``."""
        context = self.context or ambient
        if context.autocast:
            return True
        return context.grad_enabled and any(proxy.requires_grad for proxy in tensors_of(self))

    def map_arguments(self, function: Callable[[Any], Any]) -> BoundSymbol:
        """The op with each argument leaf replaced by ``function(leaf)``."""
        return replace(self, args=map_leaves(function, self.args), kwargs=map_leaves(function, self.kwargs))

    def map_leaves(self, function: Callable[[Any], Any]) -> BoundSymbol:
        """The op with each leaf of its arguments and of its output replaced by ``function(leaf)``."""
        return replace(self.map_arguments(function), output=map_leaves(function, self.output))


def tensor_inputs_of(bound: BoundSymbol) -> list[TensorProxy]:
    """The tensors among `BoundSymbol.inputs`."""
    return [proxy for proxy in bound.inputs() if type(proxy) is TensorProxy]


def tensor_outputs_of(bound: BoundSymbol) -> list[TensorProxy]:
    """The tensors among `BoundSymbol.outputs`."""
    return [proxy for proxy in bound.outputs() if type(proxy) is TensorProxy]


def tensors_of(bound: BoundSymbol) -> list[TensorProxy]:
    """The tensors among `BoundSymbol.proxies`."""
    return [proxy for proxy in bound.proxies() if type(proxy) is TensorProxy]


def tensors_written_by(bound: BoundSymbol) -> list[TensorProxy]:
    """The arguments whose storage the op writes."""
    mutates = bound.effects.mutates
    return [proxy for proxy in tensor_inputs_of(bound) if proxy.name in mutates] if mutates else []


def metadata_of(tensor: torch.Tensor | TensorProxy) -> tuple[Any, ...]:
    """Shape, strides, dtype and device; equal for a proxy and for the tensor that it represents."""
    stride = tensor.stride() if isinstance(tensor, torch.Tensor) else tensor.stride
    return from_fake(tuple(tensor.shape)), from_fake(tuple(stride)), tensor.dtype, tensor.device


def free_values(ops: Sequence[BoundSymbol]) -> dict[str, Proxy]:
    """The values that ops use and do not define, by name, in order of first use."""
    defined = {proxy.name for op in ops for proxy in op.outputs()}
    free: dict[str, Proxy] = {}
    for op in ops:
        for proxy in op.inputs():
            if proxy.name not in defined:
                free.setdefault(proxy.name, proxy)
    return free


def written_storages(ops: Iterable[BoundSymbol]) -> frozenset[int]:
    """Numbers of the storages that the ops write."""
    return frozenset([proxy.storage for op in ops for proxy in tensors_written_by(op)])
