"""The derivative of an op that was recorded with one: the ops of its forward and backward programs replace it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from typing import Any, Final

import torch

from thunder_core.autodiff.derivatives.derivative import PLAIN, Derivative, Query, stand_in
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.builder import Inlining
from thunder_core.ir.proxy import Proxy, TensorProxy
from thunder_core.ir.trace import OpPrograms, Trace, op_programs, with_bodies
from thunder_core.passes.operations import with_strides
from thunder_core.symbols.registry import registry

SOURCE: Final = "recorded with it"


def derive_by_programs(query: Query) -> Derivative | None:
    """The derivative whose ops are those of the programs of the op (`thunder_core.ir.trace.OpPrograms`).

    Returns:
        None if it has no backward program, if a program writes to tensors, or if a cotangent or gradient has another
        shape or dtype than its value, as some of wrapper subclasses have: only autograd can pass those on.
    """
    bound = query.bound
    programs = op_programs(bound.symbol)
    if programs is None or not _is_suitable(programs, bound):
        return None
    forward, backward = programs.traces
    results = bound.outputs()
    values, saved = forward.output[: programs.returned], forward.output[programs.returned :]
    names, storages = count(), count(-1, -1)

    def inlining(pairs: list[tuple[Proxy, Proxy]]) -> Inlining:
        return Inlining(pairs, lambda _: f":{next(names)}", lambda: next(storages))

    of_forward = inlining(list(zip(forward.inputs, bound.args, strict=True)))
    taken, aliases = {proxy.name for proxy in forward.inputs}, []
    for value, result in zip(values, results, strict=True):
        if value.name in taken:  # an argument, or another result
            aliases.append(_call(torch.ops.aten.alias.default, (of_forward.value(value),), result))
        taken.add(value.name)
        of_forward.add([(value, result)])
    forward_ops = [*_inlined(forward, of_forward), *aliases]

    of_backward = inlining(
        list(zip(backward.inputs[programs.differentiable :], map(of_forward.value, saved), strict=True))
    )
    cotangents: dict[str, TensorProxy] = {}
    backward_ops: list[BoundSymbol] = []
    for result, inner in zip(results, programs.cotangents):
        assert isinstance(result, TensorProxy)
        assert isinstance(inner, TensorProxy)
        cotangent = stand_in(result, f":{result.name}_cotangent", next(storages))
        cotangent = replace(cotangent, stride=query.cotangent_strides.get(result.name, cotangent.stride))
        cotangents[result.name] = cotangent
        if cotangent.stride == inner.stride:
            of_backward.add([(inner, cotangent)])
        else:
            strided = of_backward.value(inner)
            backward_ops.append(_call(with_strides, (cotangent, inner.stride), strided))
    backward_ops += _inlined(backward, of_backward)
    gradients = {
        bound.args[place].name: of_backward.value(gradient)
        for place, gradient in zip(programs.places, backward.output, strict=True)
        if bound.args[place].name in query.wanted
    }
    return Derivative(bound, tuple(forward_ops), tuple(backward_ops), cotangents, gradients, SOURCE)


def _is_suitable(programs: OpPrograms, bound: BoundSymbol) -> bool:
    if len(programs.traces) != 2 or len(bound.outputs()) != programs.returned:
        return False
    forward, backward = programs.traces
    if any(op.effects.mutates for trace in programs.traces for op in with_bodies(trace.symbols)):
        return False
    differentiated = [bound.args[place] for place in programs.places]
    if len({proxy.name for proxy in differentiated}) != len(differentiated):
        return False
    pairs = [*zip(differentiated, backward.output, strict=True), *zip(bound.outputs(), programs.cotangents)]
    return len(forward.inputs) == len(bound.args) and all(map(_are_alike, pairs))


def _are_alike(pair: tuple[Proxy, Proxy]) -> bool:
    one, other = pair
    if not isinstance(one, TensorProxy) or not isinstance(other, TensorProxy):
        return False
    return one.shape == other.shape and one.dtype == other.dtype and one.layout is other.layout


def _inlined(trace: Trace, inlining: Inlining) -> Iterator[BoundSymbol]:
    for op in trace.symbols:
        context = replace(op.context or trace.context, grad_enabled=False, inference=False)
        yield replace(inlining.op(op), context=context)


def _call(function: Callable[..., Any], args: tuple[Any, ...], output: Proxy) -> BoundSymbol:
    symbol, args, kwargs = registry.resolve(function, args, {})
    return BoundSymbol(symbol, args, kwargs, output, context=PLAIN)
