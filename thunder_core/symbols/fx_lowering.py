"""Core-ATen lines from running a call under ``make_fx`` on fake tensors. Imported only when something is lowered."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from thunder_core.errors import LoweringError
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.context import Context
from thunder_core.ir.modes import modes_for_fakes
from thunder_core.ir.proxy import NumberProxy, OpaqueProxy, TensorProxy
from thunder_core.ir.symbol import Symbol
from thunder_core.ir.trace import Trace
from thunder_core.ir.tree import iterate_leaves, map_leaves
from thunder_core.pytorch_internals import FakeTensorMode, OpOverload, core_aten_decompositions
from thunder_core.symbols.fx_graph import GraphReader
from thunder_core.symbols.lossy_decompositions import without_loss
from thunder_core.symbols.mixed_norms import with_wide_statistics


def lower_with_fx(bound: BoundSymbol, context: Context) -> tuple[BoundSymbol, ...]:
    """Core-ATen lines for ``bound``, with made-up names for the values in between. Raises LoweringError."""
    _refuse_programs(bound)
    if _is_lowest(bound.symbol):
        return (bound,)
    proxies = list({proxy.name: proxy for proxy in bound.inputs() if isinstance(proxy, TensorProxy)}.values())
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    if bound.symbol.decomposition is not None:
        module = _trace(bound, bound.symbol.decomposition, proxies, mode, context)
        if module is not None:
            return GraphReader(bound, proxies, module).read()
    module = _trace(bound, bound.symbol.target, proxies, mode, context)
    if module is None:
        raise LoweringError(f"{bound.symbol.name} does not implement this call")
    return GraphReader(bound, proxies, module).read()


def _is_lowest(symbol: Symbol) -> bool:
    """Whether calls of a symbol are core ATen already. Tracing one takes ten milliseconds."""
    operator = symbol.target
    if not isinstance(operator, OpOverload) or symbol.decomposition is not None:
        return False
    return torch.Tag.core in operator.tags and operator not in _decompositions()


def _refuse_programs(bound: BoundSymbol) -> None:
    """Raise LoweringError for a line whose arguments or results have no fake counterpart."""
    for leaf in iterate_leaves((bound.args, bound.kwargs, bound.output)):
        if isinstance(leaf, Trace):
            raise LoweringError(f"{bound.symbol.name} takes a program")
        if isinstance(leaf, OpaqueProxy | NumberProxy):
            raise LoweringError(f"{bound.symbol.name} works on {leaf.name}, which is no tensor")
        if isinstance(leaf, TensorProxy) and leaf.layout is not torch.strided:
            raise LoweringError(f"{bound.symbol.name} works on the sparse tensor {leaf.name}")


@cache
def _decompositions() -> dict[Any, Callable[..., Any]]:
    """PyTorch's table without the operators that draw random numbers: theirs would draw others."""
    found = {
        op: function
        for op, function in core_aten_decompositions().items()
        if torch.Tag.nondeterministic_seeded not in getattr(op, "tags", ())
    }
    return without_loss(found | with_wide_statistics(found))


def _trace(
    bound: BoundSymbol,
    target: Callable[..., Any],
    proxies: list[TensorProxy],
    mode: FakeTensorMode,
    context: Context,
) -> torch.fx.GraphModule | None:
    """The graph of one call; None when ``target`` returns NotImplemented."""
    declined = False

    def function(*tensors: torch.Tensor) -> list[Any]:
        nonlocal declined
        values = {proxy.name: tensor for proxy, tensor in zip(proxies, tensors, strict=True)}
        args, kwargs = (_substitute(part, values) for part in (bound.args, bound.kwargs))
        result = target(*args, **kwargs)
        declined = result is NotImplemented
        return [leaf for leaf in iterate_leaves(result) if isinstance(leaf, torch.Tensor)]

    with torch.random.fork_rng(devices=[]), modes_for_fakes(context, grad=False), mode:
        try:
            fakes = _fakes(mode, proxies)
            module = make_fx(function, decomposition_table=_decompositions(), _allow_non_fake_inputs=True)(*fakes)
        except Exception as error:  # whatever PyTorch's tracer, or the symbol on fakes, cannot do
            raise LoweringError(f"{bound.symbol.name}: {error}") from error
    return None if declined else module


def _substitute(value: Any, values: dict[str, torch.Tensor]) -> Any:
    return map_leaves(lambda leaf: values[leaf.name] if isinstance(leaf, TensorProxy) else leaf, value)


def _fakes(mode: FakeTensorMode, proxies: list[TensorProxy]) -> list[torch.Tensor]:
    """Fake tensors like the proxies; those that share memory share a fake one."""
    memories: dict[int, torch.Tensor] = {}
    for number in {proxy.storage for proxy in proxies}:
        sharing = [proxy for proxy in proxies if proxy.storage == number]
        size = max(_bytes(proxy) for proxy in sharing)
        memories[number] = torch.empty(size, dtype=torch.uint8, device=sharing[0].device)
    return [
        memories[proxy.storage].view(proxy.dtype).as_strided(proxy.shape, proxy.stride, proxy.offset)
        for proxy in proxies
    ]


def _bytes(proxy: TensorProxy) -> Any:
    """Size of the memory that a proxy needs, a multiple of every element size."""
    last = proxy.offset
    for size, step in zip(proxy.shape, proxy.stride, strict=True):
        last = last + (size - 1) * step if size else last
    return (last + 1) * 16
