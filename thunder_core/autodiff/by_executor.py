"""The derivative that the executor gives that claims a line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch

from thunder_core.autodiff.derivative import PLAIN, Derivative, Query, sum_stand_in
from thunder_core.autodiff.pair_on_fakes import WrongGradients, run_on_fakes
from thunder_core.autodiff.work import fresh_outputs
from thunder_core.errors import LoweringError
from thunder_core.executors.decision import Claimed, Decision, Declined
from thunder_core.executors.defects import declined_by_failing
from thunder_core.executors.derivative_pair import DerivativePair
from thunder_core.executors.executor import Executor
from thunder_core.executors.executor_symbol import executor_symbol
from thunder_core.ir.attention_kernels import only_kernels
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.proxy import PROXY_TYPES, Proxy, TensorProxy
from thunder_core.ir.symbol import Tag
from thunder_core.ir.tensors import tensor_inputs_of
from thunder_core.ir.tree import iterate_proxies, map_leaves
from thunder_core.symbols.registry import registry
from thunder_core.tracing.trace_call import refuse_objects


def derive_by_executor(
    query: Query, executors: Sequence[Executor], answers: tuple[Decision, ...]
) -> Derivative | Declined | None:
    """The pair of the executor that claims the line. None if nobody does; if the one that does has none, its reason.

    Args:
        answers: what the executors said to the line.

    Raises:
        ExecutorError: backward of the pair returns no such gradients as it should, and ``THUNDER_STRICT=1``; there is
            a warning otherwise.
    """
    if not answers or not isinstance(answers[-1], Claimed):
        return None
    executor = next(one for one in executors if one.name == answers[-1].executor)
    with only_kernels(None if query.bound.context is None else query.bound.context.attention):
        pair = executor.derivative(query.bound)
    if pair is None:
        return Declined(executor.name, "it has no derivative of its own for this call", not executor.fuses)
    try:
        return replace(_derivative(query, executor.name, pair), answers=answers)
    except WrongGradients as error:
        bound = query.bound
        told = declined_by_failing(
            executor.name, bound.symbol.name, "derivative pair", bound.location, f"failed: {error}"
        )
        return Declined(
            executor.name, told.replace("its derivative pair", f"the pair of {executor.name}", 1), failed=True
        )
    except Exception as error:  # noqa: BLE001 - a bug of the executor, or a pair that does not work on fake tensors
        what = str(error) if isinstance(error, LoweringError) else f"{type(error).__name__}: {error}"
        return Declined(executor.name, f"the pair of {executor.name} failed: {what}", failed=True)


def _derivative(query: Query, executor: str, pair: DerivativePair) -> Derivative:
    bound = query.bound
    refuse_objects(bound)
    if bound.effects.mutates or len(fresh_outputs(bound)) != len(bound.outputs()):
        raise LoweringError("the line writes memory, or shares it with its arguments")
    values = run_on_fakes(query, pair)
    own = {proxy.name for proxy in (*bound.inputs(), *bound.outputs())}

    def made(leaf: Any) -> Any:
        return leaf if isinstance(leaf, PROXY_TYPES) and leaf.name not in own else None

    forward = replace(
        bound,
        symbol=executor_symbol(pair.forward, executor, bound.symbol.tags - {Tag.OPAQUE}, bound.symbol),
        output=(bound.output, map_leaves(made, values.residuals)),
        effects=bound.effects if pair.pure else replace(bound.effects, external=True),
        context=replace(bound.context or PLAIN, grad_enabled=False),
    )
    backward = BoundSymbol(
        executor_symbol(pair.backward, executor, frozenset({Tag.BACKWARD}), bound.symbol),
        (values.residuals, tuple([values.cotangents.get(p.name) for p in bound.outputs()]), values.wanted),
        {},
        values.gradients,
        context=PLAIN,
        location=bound.location,
    )
    others = iterate_proxies((values.residuals, values.cotangents, values.gradients))
    taken = [proxy.storage for proxy in others if isinstance(proxy, TensorProxy)]
    sums, gradients = _by_name(bound, values.gradients, min([0, *taken]))
    return Derivative(bound, (forward,), (backward, *sums), values.cotangents, gradients, executor)


def _by_name(
    bound: BoundSymbol, gradients: Iterable[TensorProxy | None], lowest_storage: int
) -> tuple[list[BoundSymbol], dict[str, Proxy]]:
    """The gradients by the names of the arguments, with lines that sum those of an argument that stands twice."""
    lines: list[BoundSymbol] = []
    found: dict[str, TensorProxy] = {}
    for proxy, gradient in zip(tensor_inputs_of(bound), gradients, strict=True):
        if gradient is None:
            continue
        if proxy.name in found:
            symbol, args, kwargs = registry.resolve(torch.add, (found[proxy.name], gradient), {})
            storage = lowest_storage - 1 - len(lines)
            gradient = sum_stand_in(found[proxy.name], gradient, f":sum_{len(lines)}", storage)
            lines.append(BoundSymbol(symbol, args, kwargs, gradient, context=PLAIN, location=bound.location))
        found[proxy.name] = gradient
    return lines, {**found}
