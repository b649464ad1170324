"""A symbol applied to values."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final

import torch

from thunder_core.ir.context import Context
from thunder_core.ir.effects import PURE, Effects
from thunder_core.ir.location import SourceLocation
from thunder_core.ir.proxy import Proxy, TensorProxy
from thunder_core.ir.size import Size, SizeExpr, are_constant, from_fake, with_size
from thunder_core.ir.symbol import Symbol, Tag
from thunder_core.ir.tree import list_proxies, list_sizes, map_leaves

_CAST_TYPES: Final = [TensorProxy, torch.dtype]


@dataclass(frozen=True, slots=True)
class BoundSymbol:
    """One line of a trace.

    Attributes:
        symbol: what is called.
        args, kwargs: nested tuples, lists, dicts and slices of proxies, literals and (for higher-order symbols) traces.
        output: a proxy, None, or nested containers of proxies and None; all its proxies are defined here.
        effects: what the call does besides.
        context: the modes it runs under; None for those of the whole program.
        location: the user's line.
        parts: what it was lowered to, for the printer; empty until it is lowered.
    """

    symbol: Symbol
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    output: Any
    effects: Effects = PURE
    context: Context | None = None
    location: SourceLocation | None = None
    parts: tuple[BoundSymbol, ...] = field(default=(), compare=False)

    # passes ask for them a dozen times for each line
    _inputs: tuple[Proxy, ...] | None = field(default=None, init=False, repr=False, compare=False)
    _outputs: tuple[Proxy, ...] | None = field(default=None, init=False, repr=False, compare=False)

    def inputs(self) -> tuple[Proxy, ...]:
        """Proxies among the arguments, in order."""
        found = self._inputs
        if found is None:
            found = tuple(list_proxies((*self.args, self.kwargs) if self.kwargs else self.args))
            object.__setattr__(self, "_inputs", found)
        return found

    def outputs(self) -> tuple[Proxy, ...]:
        """Proxies that this line defines, in order."""
        found = self._outputs
        if found is None:
            found = tuple(list_proxies((self.output,)))
            object.__setattr__(self, "_outputs", found)
        return found

    def varies(self) -> bool:
        """Whether it has sizes that vary between calls: among its arguments, or of its tensors."""
        tensors = [proxy for proxy in (*self.inputs(), *self.outputs()) if isinstance(proxy, TensorProxy)]
        if any(not are_constant((*proxy.shape, *proxy.stride, proxy.offset)) for proxy in tensors):
            return True
        return bool(list_sizes((self.args, self.kwargs)))

    def with_sizes(self, value: Callable[[SizeExpr], Size], *, literals: bool = True) -> BoundSymbol:
        """The same call with something else for each size that varies, also in traces among its arguments.

        Args:
            literals: also for sizes that are arguments by themselves.
        """

        def of_leaf(leaf: Any) -> Any:
            own = getattr(leaf, "with_sizes", None)
            if own is None:
                return with_size(leaf, value) if literals else leaf
            return own(value)

        return replace(self.map_arguments(of_leaf), output=map_leaves(of_leaf, self.output))

    def happens_once(self) -> bool:
        """Whether it does something that running it once more would repeat.

        Collectives with the tag COLLECTIVE may be repeated: what they give depends on their arguments alone, and all
        ranks repeat them.
        """
        repeatable = not self.symbol.tags.isdisjoint((Tag.COLLECTIVE, Tag.WAIT))
        return self.effects.external or (bool(self.effects.channels) and not repeatable)

    def is_view(self) -> bool:
        """Whether it computes nothing: all its outputs lie in the memory of its inputs."""
        if not self.effects.pure:
            return False
        memories = {proxy.storage for proxy in self.inputs() if isinstance(proxy, TensorProxy)}
        return all(isinstance(proxy, TensorProxy) and proxy.storage in memories for proxy in self.outputs())

    def is_cast(self) -> bool:
        """Whether it makes a copy of a tensor with another dtype, and nothing else."""
        return Tag.CAST in self.symbol.tags and not self.kwargs and [type(leaf) for leaf in self.args] == _CAST_TYPES

    def is_recorded(self, ambient: Context) -> bool:
        """Whether autograd records it while it runs, or autocast changes it, in a program of context ``ambient``."""
        context = self.context or ambient
        if context.autocast:
            return True
        values = (*self.inputs(), *self.outputs())
        return context.grad_enabled and any(isinstance(one, TensorProxy) and one.requires_grad for one in values)

    def map_arguments(self, function: Callable[[Any], Any]) -> BoundSymbol:
        """The same line with each argument leaf replaced by ``function(leaf)``."""
        return replace(self, args=map_leaves(function, self.args), kwargs=map_leaves(function, self.kwargs))


def tensor_inputs_of(bound: BoundSymbol) -> list[TensorProxy]:
    """The tensors among `BoundSymbol.inputs`."""
    return [proxy for proxy in bound.inputs() if type(proxy) is TensorProxy]


def tensor_outputs_of(bound: BoundSymbol) -> list[TensorProxy]:
    """The tensors among `BoundSymbol.outputs`."""
    return [proxy for proxy in bound.outputs() if type(proxy) is TensorProxy]


def tensors_written_by(bound: BoundSymbol) -> list[TensorProxy]:
    """The arguments whose storage the line writes."""
    mutates = bound.effects.mutates
    return [proxy for proxy in tensor_inputs_of(bound) if proxy.name in mutates] if mutates else []


def metadata_of(tensor: torch.Tensor | TensorProxy) -> tuple[Any, ...]:
    """Shape, strides, dtype and device, equal for a proxy and for a tensor that it stands for."""
    stride = tensor.stride() if isinstance(tensor, torch.Tensor) else tensor.stride
    return from_fake(tuple(tensor.shape)), from_fake(tuple(stride)), tensor.dtype, tensor.device


def written_storages(lines: Iterable[BoundSymbol]) -> frozenset[int]:
    """Numbers of the storages that lines write."""
    return frozenset([proxy.storage for bound in lines for proxy in tensors_written_by(bound)])
