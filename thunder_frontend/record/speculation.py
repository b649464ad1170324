"""Speculation: the program is recorded with the values of this call, which each run checks.

A value that Python reads becomes a literal of the trace, and a data-dependent shape becomes a constant. The next op
raises `thunder_core.errors.WrongGuess` in a run with another value, and another program runs instead: see
`thunder_core.runtime.outcomes`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import torch

from thunder_core.ir.effects import Effects
from thunder_core.ir.proxy import NumberProxy, TensorProxy
from thunder_core.ir.size import Size, SizeExpr, hint_of, on_fakes
from thunder_core.ir.symbol import Symbol
from thunder_core.ir.tree import iterate_leaves, map_leaves, tensors_in
from thunder_core.pytorch_internals import DisableTorchFunction, disable_current_modes
from thunder_core.symbols.checks import CHECK_SHAPES, CHECK_VALUE, READERS, SHAPES
from thunder_core.symbols.opaque import is_of_pytorch
from thunder_core.tracing.fake_tensors import computed
from thunder_core.tracing.frames import calls_program
from thunder_frontend.record.arguments import CallArguments
from thunder_frontend.record.attempt import RecordAgain
from thunder_frontend.record.data_dependence import Declined, Resolved, ValueRequest
from thunder_frontend.record.prefix import NotEvaluated
from thunder_frontend.record.recorder import Recorder
from thunder_frontend.record.result_sizes import geometry_of
from thunder_frontend.record.sampling import CallMetadata, as_outcome, run_metadata, sampled_geometries
from thunder_frontend.record.traced_number import TracedNumber
from thunder_frontend.record.traced_size import traced_size
from thunder_frontend.record.traced_tensor import is_traced

if TYPE_CHECKING:
    import numpy as np

Tensor: Any = torch.Tensor  # its methods are descriptors; the stubs declare functions
_READERS: Final = {
    **{reader: name for name, reader in READERS.items() if name != "number"},
    Tensor.is_nonzero: "bool",
    torch.is_nonzero: "bool",
    Tensor.__nonzero__: "bool",
}
_ARRAYS: Final = frozenset({Tensor.numpy, Tensor.__array__})
_OF_ONE_ELEMENT: Final = frozenset({"bool", "item", "int", "float", "complex", "index", "contains"})
_TEXTS: Final = frozenset({"repr", "format"})
_MOST_ELEMENTS: Final = 4096  # of a value that becomes a literal of the trace
_EXTERNAL: Final = Effects(external=True)
NO_VALUES: Final = 'sharp_edges="error" refuses programs that depend on values'
"""The reason in a recording without guesses, after which there is another one unless values are refused."""

_NODES_OF_FAKES: Final = frozenset({"_ResultsBackward", "_DerivedBackward"})
"""Names of autograd nodes that `thunder_core.tracing.fake_tensors` creates; eager has nodes with other names."""


class Speculation:
    """Resolver that takes the value, or the shape, of a call's result in this call, and records a check of it."""

    def resolve(self, recorder: Recorder, request: ValueRequest) -> Resolved | Declined:
        """As `thunder_frontend.record.data_dependence.Resolver`."""
        reply = _resolve(recorder, request)
        return replace(reply, blocking=True) if isinstance(reply, Declined) else reply


def _resolve(recorder: Recorder, request: ValueRequest) -> Resolved | Declined:
    if recorder.attempt.guesses is None:
        return Declined(NO_VALUES)
    try:
        if not request.reads and isinstance(request.kwargs.get("out"), tuple | list):
            return Declined("it has several results to write to")
        if not request.reads:
            return _into_out(recorder, request) or _with_shapes(recorder, request)
        return _value(recorder, request)
    except NotEvaluated as reason:
        return Declined(str(reason))


def _value(recorder: Recorder, request: ValueRequest) -> Resolved | Declined:
    """Resolve a call that returns a value to Python."""
    call, target = request.call, request.symbol.target
    reader = _READERS.get(target)
    if not call.proxies or (target not in _ARRAYS and any(value is not None for value in call.kwargs.values())):
        return Declined("a check of a value does not support its arguments")
    if (
        sum(math.prod(map(hint_of, proxy.shape)) for proxy in call.proxies) > _MOST_ELEMENTS
        and reader not in _OF_ONE_ELEMENT | _TEXTS
    ):
        return Declined(f"it reads more than {_MOST_ELEMENTS} elements")
    if target in _ARRAYS:
        return Resolved(_array(recorder, request))
    if reader is None:
        return Declined("only numbers, texts and nested lists of numbers are checked in each run")
    if reader in ("int", "float") and recorder.suspension.active == 1:  # the program calls it
        recorder.convert(reader, sys._getframe())
    if reader == "repr":
        return _text(recorder, request)
    return Resolved(speculate(recorder, reader, call.args))


def _text(recorder: Recorder, request: ValueRequest) -> Resolved | Declined:
    """Resolve the text of a tensor, which names the autograd node that computes it if the tensor requires grad."""
    (proxy,), (tensor, *_) = request.call.proxies, request.args
    if not proxy.requires_grad:
        return Resolved(speculate(recorder, "repr", (proxy,)))
    if is_traced(tensor) and not recorder.attempt.graph:
        raise RecordAgain("the text of a tensor names the autograd node that computes it", graph=True)
    with DisableTorchFunction():
        node = recorder.tensors.fake(recorder.tensors.variable(tensor)).grad_fn if is_traced(tensor) else tensor.grad_fn
    if node is not None and not is_traced(tensor):
        return Declined("the text names the function that computed a tensor before the program ran")
    if type(node).__name__ in _NODES_OF_FAKES:
        return Declined("the text names the function that computed the tensor, which differs in a compiled program")
    return Resolved(speculate(recorder, "text", (proxy, type(node).__name__ if node is not None else "")))


@calls_program
def _array(recorder: Recorder, request: ValueRequest) -> np.ndarray[Any, Any]:
    """The values of a tensor as a read-only array: in eager a write to the array would change the tensor.

    Raises:
        Exception: the exception of eager, as for a tensor that requires grad.
    """
    (proxy,) = request.call.proxies
    target, options = request.symbol.target, (request.args[1:], request.kwargs)
    with disable_current_modes(), DisableTorchFunction():
        target(torch.empty(0, requires_grad=proxy.requires_grad), *options[0], **options[1])
    value = speculate(recorder, "tolist", (proxy,))
    recorder.prefix.shared[proxy.storage] = len(recorder.trace.ops)
    with disable_current_modes(), DisableTorchFunction():
        tensor = torch.tensor(value, dtype=proxy.dtype).reshape([int(on_fakes(size)) for size in proxy.shape])
        array: np.ndarray[Any, Any] = target(tensor, *options[0], **options[1])
    array.flags.writeable = False
    return array


def speculate(recorder: Recorder, reader: str, args: tuple[Any, ...]) -> Any:
    """The value of this call, after recording the op that checks it.

    Args:
        reader: a name in `thunder_core.symbols.checks.READERS`.
        args: its arguments: proxies and literals.

    Raises:
        NotEvaluated: the program so far cannot be run while it is recorded.
        Exception: the exception of eager, as for ``bool()`` of a tensor with several elements.
    """
    position, value = _read(recorder, reader, args)
    _write_check(recorder, CHECK_VALUE, (position, reader, args, value))
    return value


def speculate_size(recorder: Recorder, number: NumberProxy) -> Any:
    """A varying size for an int that an op computes, after writing the op that defines it.

    A constant, with a check, where sizes are not symbols.

    Raises:
        NotEvaluated: the program so far cannot be run while it is recorded.
    """
    defined = recorder.definable_sizes
    if defined is None:
        return speculate(recorder, "number", (number,))
    size: Size | None = defined.size_of(number)
    if size is None:
        position, value = _read(recorder, "number", (number,))
        size = defined.define(number, value)
        _write_check(recorder, CHECK_VALUE, (position, "number", (number,), size))
    return traced_size(size)


def _read(recorder: Recorder, reader: str, args: tuple[Any, ...]) -> tuple[int, Any]:
    """The position of a read among those of the program, and its value: a known one, or that of this call."""
    position, known = _next_guess(recorder, reader)
    return position, known[0] if known else recorder.prefix.call(READERS[reader], args, {})


def _into_out(recorder: Recorder, request: ValueRequest) -> Resolved | None:
    """Record a call with ``out=`` as a call without it, whose result is copied; None for other calls."""
    out = request.kwargs.get("out")
    if not isinstance(out, torch.Tensor):
        return None
    others = {name: value for name, value in request.kwargs.items() if name != "out"}
    result = recorder.call_symbol(request.symbol, request.args, others)
    if not isinstance(result, torch.Tensor) or (out.shape and not result.shape):
        return None
    if result.shape:
        recorder.call(torch.cat, ([result],), {"out": out})  # it resizes ``out`` where that is needed
    else:
        recorder.call(torch.Tensor.copy_, (out, result), {})
    return Resolved(out)


def _with_shapes(recorder: Recorder, request: ValueRequest) -> Resolved | Declined:
    """Record a call with the shapes of its results in this call, and a check of these."""
    call = request.call
    if not is_of_pytorch(request.symbol):
        return Declined("a function that is not PyTorch's may do more than compute")
    position, known = _next_guess(recorder, SHAPES)
    metadata = _metadata_in_prefix(recorder, call, request.symbol.target)
    if metadata is None or metadata.views:
        return _with_numbers(recorder, request, also_fractions=metadata is None) or Declined(
            "its results are not all new tensors"
        )
    shapes = tuple(map(geometry_of, tensors_in(metadata.result)))
    if known and known[0] != shapes:  # the rounding of an executor led to another shape than PyTorch's
        shapes = known[0]
        metadata = metadata.with_geometries(shapes)
    metadata, shapes, dimensions = _with_symbols(recorder, request, metadata, shapes)
    outcome, fakes = as_outcome(recorder, metadata, call)
    context = recorder.trace.context_of(request.symbol)
    result = recorder.writer.record(request.symbol, call, outcome, fakes, context)
    outputs = recorder.trace.ops[-1].outputs()
    if dimensions and recorder.defined_sizes is not None:
        recorder.defined_sizes.define_in(outputs, dimensions)
    _write_check(recorder, CHECK_SHAPES, (position, outputs, shapes))
    return Resolved(result)


def _metadata_in_prefix(recorder: Recorder, call: CallArguments, target: Callable[..., Any]) -> CallMetadata | None:
    """The metadata of the results of ``target`` with the values of this call; see `run_metadata`."""
    leaves = iterate_leaves((call.args, call.kwargs))
    recorded = [leaf.requires_grad for leaf in leaves if isinstance(leaf, TensorProxy)]
    grad_enabled = torch.is_grad_enabled()

    def run(*args: Any, **kwargs: Any) -> CallMetadata | None:
        needs = iter(recorded)

        def marked(leaf: Any) -> Any:
            if not isinstance(leaf, torch.Tensor):
                return leaf
            copy = leaf.clone()  # the call may write it
            return computed(copy.requires_grad_()) if next(needs) else copy

        with torch.set_grad_enabled(grad_enabled):
            return run_metadata(target, map_leaves(marked, args), map_leaves(marked, kwargs))

    metadata: CallMetadata | None = recorder.prefix.call(run, call.args, call.kwargs)
    return metadata


def _with_symbols(
    recorder: Recorder, request: ValueRequest, metadata: CallMetadata, shapes: Any
) -> tuple[CallMetadata, Any, dict[SizeExpr, tuple[int, int]]]:
    """A result and its shapes with symbols for data-dependent sizes, and the dimension where each symbol is read."""
    defined = recorder.definable_sizes
    if defined is None:
        return metadata, shapes, {}
    samples = sampled_geometries(recorder, request)
    arguments = [proxy.shape for proxy in request.call.proxies]
    geometries, dimensions = defined.geometries(shapes, samples, arguments)
    return metadata.with_geometries(geometries), tuple(geometries), dimensions


def _with_numbers(recorder: Recorder, request: ValueRequest, *, also_fractions: bool) -> Resolved | None:
    """Record the call with numbers, or lists of these, in place of tensors that are sizes or bounds: ``x[:n]``.

    Args:
        also_fractions: whether to convert floats among the positional arguments, too: weights of an in-place update.
    """

    def number(leaf: Any, *, also_fractions: bool) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        proxy = recorder.tensors.proxy_of(leaf)
        fraction = proxy.dtype.is_floating_point
        if len(proxy.shape) > (0 if fraction else 1) or proxy.dtype.is_complex or (fraction and not also_fractions):
            return leaf
        constant = recorder.attempt.guesses is None or not recorder.attempt.guesses.numbers
        if proxy.shape or fraction or proxy.dtype is torch.bool or constant:
            return speculate(recorder, "tolist", (proxy,))
        value = recorder.call(Tensor.item, (leaf,), {})
        return value.size() if type(value) is TracedNumber else value

    first = map_leaves(lambda leaf: number(leaf, also_fractions=False), request.args[:1])
    others = map_leaves(lambda leaf: number(leaf, also_fractions=also_fractions), request.args[1:])
    kwargs = map_leaves(lambda leaf: number(leaf, also_fractions=True), request.kwargs)  # alpha=lr
    return request.recorded_with(recorder, (*first, *others), kwargs)


def _next_guess(recorder: Recorder, reader: str) -> tuple[int, tuple[Any, ...]]:
    """The number of values speculated on before, and the known value for this read as a tuple, empty if unknown."""
    position = recorder.prefix.guesses
    assert recorder.attempt.guesses is not None
    known = recorder.attempt.guesses.values[position : position + 1]
    return position, tuple([value for how, value in known if how == reader])


def _write_check(recorder: Recorder, symbol: Symbol, args: tuple[Any, ...]) -> None:
    sizes = recorder.defined_sizes.before_check() if recorder.defined_sizes is not None else ()
    recorder.trace.write(symbol, (*args, sizes) if sizes else args, {}, effects=_EXTERNAL)
    recorder.prefix.guesses += 1
