"""The trace of a function that a functional transformation differentiates, and its joint trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from thunder_core.autodiff.differentiate import differentiated
from thunder_core.autodiff.joint import Joint
from thunder_core.autodiff.tensor_hooks import sets_hook
from thunder_core.errors import UnsupportedError
from thunder_core.ir.bound_symbol import BoundSymbol, tensor_inputs_of
from thunder_core.ir.proxy import Proxy, TensorProxy
from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Stage, Trace
from thunder_core.passes.checkpoint_regions import inline_checkpoints
from thunder_core.passes.dead_code import without_dead_code
from thunder_core.passes.functionalize import FromComputation, FromInput, Functionalized, functional_form
from thunder_frontend.record.open_trace import Region


def function_trace(region: Region, inputs: Sequence[TensorProxy], outputs: Sequence[torch.Tensor]) -> Trace:
    """The trace of the ops recorded in ``region``.

    Its inputs are ``inputs``, then the other values from outside, which do not require grad; its outputs are all
    tensors of the region that are still alive, then ``outputs``.

    Raises:
        UnsupportedError: the function reads or changes the autograd graph.
    """
    region.restore_names()
    names = {proxy.name for proxy in inputs}
    for op in region.ops:
        _refuse(op, names)
    defined = region.defined()
    free = [_not_differentiated(proxy) for proxy in region.free() if proxy.name not in names]
    live = [region.tensors.proxy_of(tensor) for tensor in region.live_tensors()]
    live = [proxy for proxy in live if proxy.name in defined]
    result = [region.tensors.proxy_of(output) for output in outputs]
    known = defined | names | {proxy.name for proxy in free}
    free += [_not_differentiated(proxy) for proxy in result if proxy.name not in known]
    return Trace(
        "function",
        (*inputs, *{proxy.name: proxy for proxy in free}.values()),
        tuple(region.ops),
        tuple({proxy.name: proxy for proxy in (*live, *result)}.values()),
        Stage.ACQUIRED,
        "acquisition",
        region.trace.ambient,
    )


def registers_inside(op: BoundSymbol, outside: set[str]) -> bool:
    """Whether an op only registers a hook on a tensor of the function. The ops of the gradients then call the hook.

    Args:
        outside: names of the values from outside of the function.
    """
    return sets_hook(op) and outside.isdisjoint(proxy.name for proxy in tensor_inputs_of(op))


def _refuse(op: BoundSymbol, inputs: set[str]) -> None:
    if Tag.AUTOGRAD in op.symbol.tags:
        raise UnsupportedError(
            f"{op.symbol.name} inside a function that a functional transformation differentiates",
            location=op.location,
            advice=("use thunder.grad or thunder.vjp for gradients inside of it",),
        )
    if sets_hook(op) and any(proxy.name in inputs for proxy in tensor_inputs_of(op)):
        raise UnsupportedError(
            f"{op.symbol.name} on an argument with respect to which is differentiated",
            location=op.location,
            advice=("register the hook on x.view_as(x), and go on with that",),
        )


def _not_differentiated(proxy: Proxy) -> Proxy:
    """The proxy without ``requires_grad``."""
    return replace(proxy, requires_grad=False) if isinstance(proxy, TensorProxy) else proxy


@dataclass(frozen=True, slots=True)
class FunctionJoint:
    """The joint trace of a function, without dead code, and what its caller needs to run it.

    Attributes:
        joint: the joint trace of the function.
        epilogue: the writes to tensors from outside of the function, which run last; None if there are none.
        sources: the name of the value of each output of the function's trace, by name of the output.
        cotangents: inputs of the joint trace, with the positions of the outputs whose gradients are summed in each.
        gradients: the name of each input's gradient, by name of the input; inputs without gradient are absent.
        constant: names of values that the function computes with grad mode off.
        originals: the ops of the function, by name of an output.
    """

    joint: Joint
    epilogue: Trace | None
    sources: dict[str, str]
    cotangents: tuple[tuple[TensorProxy, tuple[int, ...]], ...]
    gradients: dict[str, str]
    constant: frozenset[str]
    originals: Mapping[str, BoundSymbol]

    @classmethod
    def of(cls, trace: Trace, outputs: Sequence[str], *, again: bool) -> FunctionJoint:
        """The joint trace of a function recorded as ``trace``.

        Args:
            outputs: names of the outputs of the trace to differentiate.
            again: whether the gradients may be differentiated in turn.

        Raises:
            UnsupportedError: one of ``outputs`` is a tensor from outside of the function, or a view of one, to which
                the function writes.
        """
        functional = functional_form(trace)
        sources = _sources(trace, functional)
        values = [_value(name, sources, functional) for name in outputs]
        distinct = list({proxy.name: proxy for proxy in values}.values())
        computation = inline_checkpoints(functional.computation).trace
        computation = replace(computation, output=tuple(distinct))
        if again:
            computation = computation.with_symbols(map(_undecomposed, computation.symbols), computation.provenance)
        results = tuple({proxy.name: proxy for proxy in (*functional.computation.output, *distinct)}.values())
        joint = _simplified(_differentiated(computation), results)
        positions = [tuple(i for i, value in enumerate(values) if value.name == proxy.name) for proxy in distinct]
        return cls(
            joint,
            functional.epilogue,
            {name: proxy.name for name, proxy in sources.items()},
            tuple([(p, positions[index]) for p, index in zip(joint.cotangents, joint.cotangent_of, strict=True)]),
            {
                proxy.name: gradient.name
                for proxy, gradient in zip(joint.differentiable, joint.gradients, strict=True)
                if gradient is not None
            },
            _constant(computation),
            computation.producers,
        )


def _sources(trace: Trace, functional: Functionalized) -> dict[str, Proxy]:
    """For each output of the trace its value: an input or output of the computation, or an output of the epilogue."""
    values: dict[str, Proxy] = {}
    for proxy, source in zip(trace.output, functional.results, strict=True):
        if isinstance(source, FromInput):
            values[proxy.name] = trace.inputs[source.index]
        elif isinstance(source, FromComputation):
            values[proxy.name] = functional.computation.output[source.index]
        else:
            assert functional.epilogue is not None
            values[proxy.name] = functional.epilogue.output[source.index]  # type: ignore[union-attr]
    return values


def _value(name: str, sources: dict[str, Proxy], functional: Functionalized) -> TensorProxy:
    proxy = sources[name]
    computation = functional.computation
    if not any(proxy.name == known.name for known in (*computation.inputs, *computation.output)):
        raise UnsupportedError(
            "a function that is differentiated returns a tensor from outside of it that it wrote",
            advice=("return its clone()",),
        )
    assert isinstance(proxy, TensorProxy)
    return proxy


def _differentiated(computation: Trace) -> Joint:
    joint = differentiated(computation)
    if joint is None:  # nothing depends on the inputs
        trace = replace(computation, output=(computation.output, ()))
        return Joint(trace, len(computation.symbols), (), (), ())
    return joint


def _undecomposed(op: BoundSymbol) -> BoundSymbol:
    """The op, marked for differentiation by eager autograd if its operators have another derivative."""
    if Tag.STRAIGHT_THROUGH not in op.symbol.tags:
        return op
    return replace(op, symbol=replace(op.symbol, tags=op.symbol.tags | {Tag.LOCAL}))


def _simplified(joint: Joint, results: tuple[Proxy, ...]) -> Joint:
    """The joint trace with ``results`` as the outputs of the program, and without dead ops."""
    return joint.with_trace(without_dead_code(replace(joint.trace, output=(results, joint.gradients))))


def _constant(computation: Trace) -> frozenset[str]:
    return frozenset(
        proxy.name
        for op in computation.symbols
        if not (op.context or computation.context).grad_enabled
        for proxy in op.outputs()
    )
