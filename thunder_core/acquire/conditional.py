"""``torch.cond``: recorded as one symbol with both branches."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import torch

from thunder_core.acquire.recorder import Recorder
from thunder_core.acquire.region import Region
from thunder_core.acquire.variable import Variable
from thunder_core.errors import UnsupportedError
from thunder_core.ir.effects import joined
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.tree import iterate_leaves, map_leaves
from thunder_core.symbols import control_flow
from thunder_core.tracing.outcome import Slot
from thunder_core.tracing.user_frames import user_location


def cond(
    recorder: Recorder,
    original: Callable[..., Any],
    pred: Any,
    true_fn: Callable[..., Any],
    false_fn: Callable[..., Any],
    operands: Iterable[Any] = (),
) -> Any:
    """The interception of `torch.cond`: both branches are recorded. Returns tensors with the metadata they agree on.

    Raises:
        UnsupportedError: the branches differ in structure or metadata, or write to tensors from outside.
    """
    operands = tuple(operands)
    if isinstance(pred, bool):
        return true_fn(*operands) if pred else false_fn(*operands)
    bodies, results = [], []
    for function in (true_fn, false_fn):
        region = Region(recorder.trace, recorder.tensors)
        with region.recording():
            result = function(*operands)
        if region.effects().mutates:
            raise UnsupportedError(
                "a branch of torch.cond writes to a tensor from outside of it",
                location=user_location(),
                advice=("return the new value from both branches instead",),
            )
        bodies.append(region)
        results.append(result)
    proxies = [map_leaves(lambda leaf: _proxy_of(recorder, leaf), result) for result in results]
    _check_agreement(*proxies)
    free = tuple({p.name: p for region in bodies for p in region.free()}.values())
    outside = {p.name: p for side in proxies for p in iterate_leaves(side) if isinstance(p, TensorProxy)}
    free += tuple(p for name, p in outside.items() if not any(name in r.defined() for r in bodies) and p not in free)
    traces = [
        region.body(f"{side}_branch", free, output)
        for region, side, output in zip(bodies, ("true", "false"), proxies, strict=True)
    ]
    effects = joined([region.effects() for region in bodies])
    variables: list[Variable] = []

    def fresh(leaf: Any) -> Any:
        if not isinstance(leaf, TensorProxy):
            return leaf
        storage = recorder.trace.storages.new()
        variables.append(Variable(replace(leaf, name=recorder.trace.names.intermediate(), storage=storage, offset=0)))
        return Slot(len(variables) - 1)

    structure = map_leaves(fresh, proxies[0])
    output = map_leaves(lambda leaf: variables[leaf.index].proxy if isinstance(leaf, Slot) else leaf, structure)
    predicate = recorder.tensors.proxy_of(pred)
    recorder.trace.write(control_flow.COND, (predicate, *traces, free), {}, output, effects)
    return map_leaves(
        lambda leaf: recorder.tensors.traced(variables[leaf.index]) if isinstance(leaf, Slot) else leaf, structure
    )


def _proxy_of(recorder: Recorder, leaf: Any) -> Any:
    return recorder.tensors.proxy_of(leaf) if isinstance(leaf, torch.Tensor) else leaf


def _check_agreement(first: Any, second: Any) -> None:
    def describe(leaf: Any) -> Any:
        if isinstance(leaf, TensorProxy):
            return (tuple(leaf.shape), tuple(leaf.stride), leaf.dtype, leaf.device)
        return leaf

    one, other = map_leaves(describe, first), map_leaves(describe, second)
    if one != other:
        raise UnsupportedError(
            f"the branches of torch.cond return different things: {one} and {other}",
            location=user_location(),
            advice=("make both branches return tensors of the same shape, strides and dtype",),
        )
