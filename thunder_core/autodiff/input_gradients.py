"""Functions that get the gradients of inputs of a program, all together: lines `on_input_gradients`."""

from __future__ import annotations

from collections.abc import Sequence

from thunder_core.autodiff.by_hook import INPUT_HOOK, metadata_of
from thunder_core.autodiff.derivative import PLAIN, stand_in
from thunder_core.autodiff.emitter import JointEmitter
from thunder_core.errors import UnsupportedError
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.effects import Effects
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.trace import Trace
from thunder_core.symbols.gradient_hooks import INPUT_GRADIENTS


def split_requests(trace: Trace) -> tuple[Trace, tuple[BoundSymbol, ...]]:
    """The trace without the lines that ask for such functions, and these lines."""
    requests = tuple([bound for bound in trace.symbols if bound.symbol is INPUT_GRADIENTS])
    if not requests:
        return trace, ()
    lines = [bound for bound in trace.symbols if bound.symbol is not INPUT_GRADIENTS]
    return trace.with_symbols(lines, trace.provenance), requests


def handed_over(
    emitter: JointEmitter,
    requests: Sequence[BoundSymbol],
    sources: Sequence[TensorProxy],
    gradients: Sequence[TensorProxy | None],
) -> tuple[TensorProxy | None, ...]:
    """The gradients of ``sources`` after the lines, written to the end of the joint trace, that call the functions."""
    found = {source.name: gradient for source, gradient in zip(sources, gradients, strict=True)}
    for request in requests:
        hook, tensors, *options = request.args
        given = tuple([found.get(tensor.name) for tensor in tensors])
        if not any(given):
            continue
        reached = tuple([gradient is not None for gradient in given])
        results = tuple(
            [_gradient(emitter, tensor) if reach else None for tensor, reach in zip(tensors, reached, strict=True)]
        )
        arguments = (hook, given, tuple(map(metadata_of, tensors)), reached, *options)
        line = BoundSymbol(INPUT_HOOK, arguments, {}, results, Effects(external=True), PLAIN, request.location)
        emitter.add(emitter.line(line))
        found.update({t.name: result for t, result in zip(tensors, results, strict=True) if result is not None})
    return tuple([found[source.name] for source in sources])


def check_no_requests(trace: Trace, reason: str) -> None:
    """Raise `UnsupportedError` where a program with such lines runs as it was recorded: PyTorch computes its gradients.

    Args:
        reason: why it runs so.
    """
    for program in trace.programs():
        _, requests = split_requests(program)
        for request in requests:
            raise UnsupportedError(
                f"{request.args[0].__name__} replaces gradients while backward runs, and this program leaves them to "
                f"PyTorch's autograd: {reason}",
                location=request.location,
                advice=("compile the module inside of the wrapper: DistributedDataParallel(thunder.jit(module))",),
            )


def _gradient(emitter: JointEmitter, value: TensorProxy) -> TensorProxy:
    return stand_in(value, emitter.builder.name(f"{value.name}_gradient"), emitter.builder.new_storage())
