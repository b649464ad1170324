"""Forward and backward of a training step as one program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import torch

from thunder_core.autodiff.differentiate import differentiated
from thunder_core.autodiff.joint import Joint
from thunder_core.executors.executor import Executor
from thunder_core.ir.bound_symbol import BoundSymbol, tensor_outputs_of
from thunder_core.ir.builder import Builder
from thunder_core.ir.context import Context
from thunder_core.ir.proxy import TensorProxy, storages_of
from thunder_core.ir.trace import Trace
from thunder_core.ir.tree import map_leaves
from thunder_core.symbols.registry import registry
from thunder_plugin_training.operations import GRADIENT_LIKE, GRADIENTS, ONES, STORE_GRADIENTS
from thunder_plugin_training.renaming import Renaming

_NAME: Final = "inline_backward"


def with_backward(trace: Trace, executors: Sequence[Executor], overwritten: frozenset[str]) -> Trace:
    """The program with the ops of backward in place of each op `GRADIENTS`. Nothing in it is recorded by autograd.

    Args:
        executors: executors whose derivatives take precedence for the ops that they claim.
        overwritten: names of inputs that the program writes.
    """
    for call in reversed([op for op in trace.symbols if op.symbol is GRADIENTS]):
        trace = _expanded(trace, call, executors, overwritten)
    return trace.with_symbols([_without_grad(op, trace.context) for op in trace.symbols], _NAME)


def _without_grad(op: BoundSymbol, ambient: Context) -> BoundSymbol:
    return replace(op, context=replace(op.context or ambient, grad_enabled=False))


def _expanded(trace: Trace, call: BoundSymbol, executors: Sequence[Executor], overwritten: frozenset[str]) -> Trace:
    """The program with one of its ops `GRADIENTS` expanded."""
    output, leaves, *given = call.args
    computed = _Computed(trace, leaves)
    joint = differentiated(computed.program(output), executors, overwritten)
    if joint is None:
        ops = list(trace.symbols)
        position = ops.index(call)
        return trace.with_symbols(_without_gradients(ops[:position], ops[position + 1 :], call, call.outputs()), _NAME)
    joint = replace(joint, trace=joint.trace.with_symbols(map(computed.op, joint.trace.symbols), _NAME))
    own = {_key(op): op for op in trace.symbols}
    # ops that were not differentiated stay as they are, for another call of backward
    forward = [own.get(_key(op), op) for op in joint.trace.symbols[: joint.backward_start]]
    position = next(index for index, op in enumerate(forward) if op.symbol is GRADIENTS and _key(op) == _key(call))
    backward = _Backward(joint, call, leaves, given[0] if given else None)
    before = [*forward[:position], *backward.ops]
    return trace.with_symbols(_without_gradients(before, forward[position + 1 :], call, backward.absent), _NAME)


class _Computed:
    """Parameters that the program has computed, by a step of an optimizer, as inputs of the differentiated program.

    Args:
        leaves: the parameters to differentiate for; those that are inputs of the program stay as they are.
    """

    def __init__(self, trace: Trace, leaves: list[TensorProxy]) -> None:
        self._trace = trace
        inputs = {proxy.name for proxy in trace.inputs}
        self._values = {leaf.name: leaf for leaf in leaves if leaf.name not in inputs}
        self._inputs = {name: replace(leaf, requires_grad=True) for name, leaf in self._values.items()}
        builder = Builder.of(trace)
        self._results = {
            name: replace(leaf, name=builder.name(name, numbered=True), storage=builder.new_storage())
            for name, leaf in self._values.items()
        }

    def program(self, output: TensorProxy) -> Trace:
        """The program, with the result ``output`` alone."""
        if not self._values:
            return replace(self._trace, output=(output,))
        ops = [self._mapped(op, self._inputs, self._results) for op in self._trace.symbols]
        inputs = (*self._trace.inputs, *self._inputs.values())
        return replace(self._trace.with_symbols(ops, _NAME), inputs=inputs, output=(output,))

    def op(self, op: BoundSymbol) -> BoundSymbol:
        """An op of the differentiated program as one of the program."""
        results = {proxy.name: self._values[name] for name, proxy in self._results.items()}
        return self._mapped(op, self._values, results) if self._values else op

    @staticmethod
    def _mapped(
        op: BoundSymbol, arguments: Mapping[str, TensorProxy], results: Mapping[str, TensorProxy]
    ) -> BoundSymbol:
        def by(values: Mapping[str, TensorProxy]) -> Callable[[Any], Any]:
            return lambda leaf: values.get(leaf.name, leaf) if isinstance(leaf, TensorProxy) else leaf

        return replace(op.map_arguments(by(arguments)), output=map_leaves(by(results), op.output))


def _key(op: BoundSymbol) -> Any:
    """Equal for an op of the program and for what differentiation made of it, if that is the same call."""
    return op.symbol, tuple([proxy.name for proxy in op.outputs() or op.inputs()])


def _without_gradients(
    before: list[BoundSymbol], after: list[BoundSymbol], call: BoundSymbol, absent: Sequence[Any]
) -> list[BoundSymbol]:
    """The ops, where gradients that do not exist are not assigned, and are zeros where they are added."""
    names = {proxy.name for proxy in absent}
    if not names:
        return [*before, *after]
    stored = [
        op.map_arguments(lambda leaf: None if isinstance(leaf, TensorProxy) and leaf.name in names else leaf)
        if op.symbol is STORE_GRADIENTS
        else op
        for op in after
    ]
    read = {proxy.name for op in stored for proxy in op.inputs()}
    zeros = [filled(torch.zeros, proxy, call) for proxy in absent if proxy.name in read]
    return [*before, *zeros, *stored]


def filled(function: Any, proxy: TensorProxy, at: BoundSymbol) -> BoundSymbol:
    """The op that creates a tensor by ``function``, `torch.zeros` or `torch.ones`, with the modes of another op."""
    kwargs = {"dtype": proxy.dtype, "device": proxy.device}
    symbol, args, kwargs = registry.resolve(function, (tuple(proxy.shape),), kwargs)
    return BoundSymbol(symbol, args, kwargs, proxy, context=at.context, location=at.location)


class _Backward:
    """The ops of backward, whose results have the names of the results of a call of `GRADIENTS`.

    Attributes:
        ops: the ops.
        absent: the results of the call for which no gradient flows.
    """

    def __init__(
        self, joint: Joint, call: BoundSymbol, leaves: list[TensorProxy], cotangent: TensorProxy | None
    ) -> None:
        (seed,) = joint.cotangents
        renaming = Renaming()
        if cotangent is not None:
            renaming.replace(seed, cotangent)
        ops = joint.trace.symbols[joint.backward_start :]
        found = dict(zip([proxy.name for proxy in joint.differentiable], joint.gradients, strict=True))
        results = dict(zip([leaf.name for leaf in leaves], tensor_outputs_of(call), strict=True))
        made = _made_by(ops)
        copies: list[tuple[TensorProxy, TensorProxy]] = []
        self.absent: list[TensorProxy] = []
        for name, result in results.items():
            gradient = found.get(name)
            if gradient is None:
                self.absent.append(result)
            elif made.get(gradient.name) is gradient and gradient.stride == result.stride and gradient.offset == 0:
                renaming.replace(gradient, result)
                made = {key: value for key, value in made.items() if value.storage != gradient.storage}
            else:
                copies.append((gradient, result))
        start = [] if cotangent is not None else [BoundSymbol(ONES, (call.args[0],), {}, seed, location=call.location)]
        self.ops = [*start, *[renaming.op(op) for op in ops]]
        for gradient, result in copies:
            args = (renaming.value(gradient), tuple(result.stride))
            self.ops.append(BoundSymbol(GRADIENT_LIKE, args, {}, result, location=call.location))


def _made_by(ops: Sequence[BoundSymbol]) -> dict[str, TensorProxy]:
    """The results of ops whose storage is new and that of no other value."""
    seen: dict[int, int] = {}
    made: dict[str, TensorProxy] = {}
    for op in ops:
        inputs = storages_of(op.inputs())
        for proxy in tensor_outputs_of(op):
            seen[proxy.storage] = seen.get(proxy.storage, 0) + 1
            if proxy.storage not in inputs:
                made[proxy.name] = proxy
    return {name: proxy for name, proxy in made.items() if seen[proxy.storage] == 1}
