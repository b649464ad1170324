"""What a functional transformation records: a function's lines and those of its gradients, simplified."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from thunder_core.autodiff.checkpoint import inline_checkpoints
from thunder_core.autodiff.differentiate import differentiated
from thunder_core.autodiff.joint import Joint
from thunder_core.errors import UnsupportedError
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.proxy import Proxy, TensorProxy
from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Trace
from thunder_core.passes.dead_code import without_dead_code
from thunder_core.passes.functionalize import FromComputation, FromInput, Functionalized, functional_form

# Python functions of PyTorch's that cut the autograd graph inside. The operators that they consist of do not show
# where, so these are no substitute for the function if it is differentiated again.
_CUT_INSIDE = frozenset({torch.nn.functional.gumbel_softmax})


@dataclass(frozen=True, slots=True)
class Plan:
    """How to run a function together with its gradients.

    Attributes:
        joint: the function's lines, then those of the gradients.
        epilogue: writes to tensors from outside of the function, after all that; None when there are none.
        sources: for each output of the function's trace, by name, the name of its value.
        cotangents: inputs of the joint trace, with the positions of the outputs of which each is the summed gradient.
        gradients: by name of an input its gradient's name; inputs without a gradient are absent.
        constant: names of values that the function computed while gradients were not recorded.
        originals: the function's lines, by name of an output.
    """

    joint: Joint
    epilogue: Trace | None
    sources: dict[str, str]
    cotangents: tuple[tuple[TensorProxy, tuple[int, ...]], ...]
    gradients: dict[str, str]
    constant: frozenset[str]
    originals: Mapping[str, BoundSymbol]

    @classmethod
    def of(cls, trace: Trace, outputs: Sequence[str], *, again: bool) -> Plan:
        """The plan for a function recorded as ``trace``.

        Args:
            outputs: names of the values, among the outputs of the trace, from which is differentiated.
            again: whether the gradients may be differentiated in turn.

        Raises:
            UnsupportedError: one of ``outputs`` is a view of memory from outside of the function that it wrote.
        """
        functional = functional_form(trace)
        sources = _sources(trace, functional)
        values = [_value(name, sources, functional) for name in outputs]
        distinct = list({proxy.name: proxy for proxy in values}.values())
        computation = inline_checkpoints(functional.computation).trace
        computation = replace(computation, output=tuple(distinct))
        if again:
            computation = computation.with_symbols(map(_uncut, computation.symbols), computation.provenance)
        kept = tuple({proxy.name: proxy for proxy in (*functional.computation.output, *distinct)}.values())
        joint = _simplified(_differentiated(computation), kept)
        positions = [tuple(i for i, value in enumerate(values) if value.name == own.name) for own in distinct]
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
    found: dict[str, Proxy] = {}
    for proxy, source in zip(trace.output, functional.results, strict=True):
        if isinstance(source, FromInput):
            found[proxy.name] = trace.inputs[source.index]
        elif isinstance(source, FromComputation):
            found[proxy.name] = functional.computation.output[source.index]
        else:
            assert functional.epilogue is not None
            found[proxy.name] = functional.epilogue.output[source.index]  # type: ignore[union-attr]
    return found


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


def _uncut(line: BoundSymbol) -> BoundSymbol:
    """The line, marked to be differentiated by eager if its operators are no substitute for it."""
    if line.symbol.target not in _CUT_INSIDE:
        return line
    return replace(line, symbol=replace(line.symbol, tags=line.symbol.tags | {Tag.LOCAL}))


def _simplified(joint: Joint, kept: tuple[Proxy, ...]) -> Joint:
    """Without dead lines; ``kept`` becomes what the program computes."""
    return joint.with_trace(without_dead_code(replace(joint.trace, output=(kept, joint.gradients))))


def _constant(computation: Trace) -> frozenset[str]:
    return frozenset(
        proxy.name
        for line in computation.symbols
        if not (line.context or computation.context).grad_enabled
        for proxy in line.outputs()
    )
