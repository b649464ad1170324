"""The memory of a step: values of forward that backward computes again instead of keeping."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from thunder_core.autodiff.joint import Joint, Partitioned
from thunder_core.autodiff.partitioning.dependence import of_backward
from thunder_core.autodiff.partitioning.partition import Partition
from thunder_core.ir.bound_symbol import BoundSymbol, tensor_inputs_of, tensor_outputs_of
from thunder_core.ir.builder import Builder, Inlining
from thunder_core.ir.proxy import PROXY_TYPES, TensorProxy
from thunder_core.ir.trace import Trace
from thunder_core.passes.transform import TransformContext
from thunder_plugin_training.joint_step import filled
from thunder_plugin_training.operations import AFTER, ONES


def with_recomputation(trace: Trace, context: TransformContext) -> Trace:
    """The program in which backward recomputes what the policy of `Partition` would not save for it.

    What depends on the cotangent of the loss counts as backward, the optimizer too. A program with several backwards
    stays as it is: its parts would be moved.
    """
    starts = [index for index, op in enumerate(trace.symbols) if op.symbol is ONES]
    if len(starts) != 1:
        return trace
    joint = _joint(trace, starts[0])
    policy: Mapping[str, float] | str = context.recompute
    partitioned = Partition(joint, policy).run(joint.trace, context)
    return _one_program(trace, trace.symbols[starts[0]], joint, partitioned)


def _joint(trace: Trace, start: int) -> Joint:
    """The program with the cotangent as an input, and results that depend on it as gradients.

    So are those of later ops with effects, such as random ones, which `Partition` runs in backward.
    """
    (cotangent,) = tensor_outputs_of(trace.symbols[start])
    ops = (*trace.symbols[:start], *trace.symbols[start + 1 :])
    _, dependent = of_backward(ops, (cotangent,), start)
    late = [proxy for proxy in trace.output if isinstance(proxy, PROXY_TYPES) and proxy.name in dependent]
    early = [proxy for proxy in trace.output if isinstance(proxy, PROXY_TYPES) and proxy.name not in dependent]
    whole = replace(
        trace.with_symbols(ops, trace.provenance), inputs=(*trace.inputs, cotangent), output=(tuple(early), tuple(late))
    )
    returned = frozenset(range(len(early)))
    return Joint(whole, start, (cotangent,), (), (), returned=returned)


def _one_program(trace: Trace, start: BoundSymbol, joint: Joint, partitioned: Partitioned) -> Trace:
    """Forward and backward in one trace; the values that backward recomputes get new names."""
    forward, backward = partitioned.forward, partitioned.backward
    builder = Builder.of(trace)
    computed = {proxy.name for op in forward.symbols for proxy in op.outputs()}
    waiting, late = _late_inputs(joint, partitioned, computed, builder)
    mine = [proxy for op in backward.symbols for proxy in op.outputs() if proxy.name not in computed]
    inlining = Inlining(
        [(proxy, proxy) for proxy in (*backward.inputs, *mine, *late.values())],
        lambda proxy: builder.name(proxy.name, numbered=True),
        builder.new_storage,
    )
    ops = [inlining.op(_with(late, op) if _is_again(op, computed) else op) for op in backward.symbols]
    results: dict[str, Any] = {proxy.name: proxy for proxy in joint.outputs}
    for before, after in zip(joint.gradients, backward.output, strict=True):
        assert isinstance(before, TensorProxy)
        results[before.name] = inlining.value(after)
    output = tuple([results.get(leaf.name, leaf) if isinstance(leaf, PROXY_TYPES) else leaf for leaf in trace.output])
    (cotangent,) = tensor_outputs_of(start)
    ones = filled(torch.ones, cotangent, start)  # without the loss, which nothing else may need
    whole = [*forward.symbols, ones, *waiting, *ops]
    return replace(trace.with_symbols(whole, "inline_backward"), output=output)


def _late_inputs(
    joint: Joint, partitioned: Partitioned, computed: set[str], builder: Builder
) -> tuple[list[BoundSymbol], dict[str, TensorProxy]]:
    """An op that passes on what recomputed ops read, and its results by the names of its arguments.

    It takes a value that forward computes late. Without it nothing keeps recomputed ops in backward: an executor that
    fuses would run them with the ops of forward, and keep the results.
    """
    inputs = {proxy.name for proxy in joint.primals}
    again = [op for op in partitioned.backward.symbols if _is_again(op, computed)]
    inside = {proxy.name for op in again for proxy in op.outputs()}
    read = {
        proxy.name: proxy
        for op in again
        for proxy in tensor_inputs_of(op)
        if proxy.name not in inside and not (op.is_view() and proxy.name in inputs)
    }
    saved = {proxy.name for proxy in partitioned.saved} & computed
    last = [p for op in partitioned.forward.symbols for p in tensor_outputs_of(op) if p.name in saved][-1:]
    if not read or not last:
        return [], {}
    late = {name: replace(proxy, name=builder.name(name, numbered=True)) for name, proxy in read.items()}
    return [BoundSymbol(AFTER, (list(read.values()), last[0]), {}, list(late.values()))], late


def _is_again(op: BoundSymbol, computed: set[str]) -> bool:
    """Whether an op of backward computes values of forward again."""
    return any(proxy.name in computed for proxy in op.outputs())


def _with(values: Mapping[str, TensorProxy], op: BoundSymbol) -> BoundSymbol:
    return op.map_arguments(lambda leaf: values.get(leaf.name, leaf) if isinstance(leaf, TensorProxy) else leaf)
