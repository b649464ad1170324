"""The derivative that the executor gives that claims a line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

import torch

from thunder_core.autodiff.derivative import PLAIN, Derivative, Query, dense_stride
from thunder_core.autodiff.pair_on_fakes import run_on_fakes
from thunder_core.autodiff.tracing import refuse_objects
from thunder_core.autodiff.work import fresh_outputs
from thunder_core.errors import LoweringError
from thunder_core.executors.executor import Claimed, DerivativePair, DifferentiatingExecutor, Executor
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.import_paths import import_path
from thunder_core.ir.proxy import PROXY_TYPES, Proxy, TensorProxy
from thunder_core.ir.symbol import Symbol, Tag
from thunder_core.ir.tree import map_leaves
from thunder_core.passes.proxies import inputs_of, outputs_of, tensor_inputs_of
from thunder_core.symbols.registry import registry

_SUM_STORAGE: Final = -1_000_000  # numbers that no other value of a derivative has


def derive_by_executor(query: Query, executors: Sequence[Executor]) -> Derivative | None:
    """The pair of the first executor that claims the line; None if it has none.

    Raises:
        LoweringError: the pair does not fit the line, with the reason.
    """
    found = _pair(query.bound, executors)
    if found is None:
        return None
    name, pair = found
    try:
        return _derivative(query, name, pair)
    except Exception as error:  # a bug of the executor, or a pair that does not work on fake tensors
        what = str(error) if isinstance(error, LoweringError) else f"{type(error).__name__}: {error}"
        raise LoweringError(f"the pair of {name} failed: {what}") from error


def _pair(bound: BoundSymbol, executors: Sequence[Executor]) -> tuple[str, DerivativePair] | None:
    for executor in executors:
        if isinstance(executor.claim(bound), Claimed):
            pair = executor.derivative(bound) if isinstance(executor, DifferentiatingExecutor) else None
            return None if pair is None else (executor.name, pair)
    return None


def _derivative(query: Query, executor: str, pair: DerivativePair) -> Derivative:
    bound = query.bound
    refuse_objects(bound)
    if bound.effects.mutates or len(fresh_outputs(bound)) != len(outputs_of(bound)):
        raise LoweringError("the line writes memory, or shares it with its arguments")
    values = run_on_fakes(query, pair)
    own = {proxy.name for proxy in (*inputs_of(bound), *outputs_of(bound))}

    def made(leaf: Any) -> Any:
        return leaf if isinstance(leaf, PROXY_TYPES) and leaf.name not in own else None

    forward = replace(
        bound,
        symbol=_symbol(pair.forward, executor, bound.symbol.tags - {Tag.OPAQUE}),
        output=(bound.output, map_leaves(made, values.residuals)),
        effects=bound.effects if pair.pure else replace(bound.effects, external=True),
        context=replace(bound.context or PLAIN, grad_enabled=False),
    )
    backward = BoundSymbol(
        _symbol(pair.backward, executor, frozenset({Tag.BACKWARD})),
        (values.residuals, tuple([values.cotangents.get(p.name) for p in outputs_of(bound)]), values.wanted),
        {},
        values.gradients,
        context=PLAIN,
        location=bound.location,
    )
    sums, gradients = _by_name(bound, values.gradients)
    return Derivative(bound, (forward,), (backward, *sums), values.cotangents, gradients, executor)


def _by_name(bound: BoundSymbol, gradients: Iterable[TensorProxy | None]) -> tuple[list[BoundSymbol], dict[str, Proxy]]:
    """The gradients by the names of the arguments, with lines that sum those of an argument that stands twice."""
    lines: list[BoundSymbol] = []
    found: dict[str, Proxy] = {}
    for proxy, gradient in zip(tensor_inputs_of(bound), gradients, strict=True):
        if gradient is None:
            continue
        if proxy.name in found:
            symbol, args, kwargs = registry.resolve(torch.add, (found[proxy.name], gradient), {})
            name, storage = f":sum_{len(lines)}", _SUM_STORAGE - len(lines)
            gradient = replace(gradient, name=name, storage=storage, stride=dense_stride(gradient), offset=0)
            lines.append(BoundSymbol(symbol, args, kwargs, gradient, context=PLAIN, location=bound.location))
        found[proxy.name] = gradient
    return lines, found


@lru_cache(maxsize=1024)
def _symbol(function: Callable[..., Any], executor: str, tags: frozenset[Tag]) -> Symbol:
    """The symbol of one of an executor's calls. Equal calls have the same."""
    path = import_path(function)
    if path is not None:
        return Symbol(".".join(path), function, tags=tags, executor=executor)
    name = getattr(function, "__name__", "")
    name = name if name.isidentifier() else f"{executor}_call"
    return Symbol(name, function, tags=tags | {Tag.LOCAL}, executor=executor)
