"""Values that decide what the program does: those of this call, with a check that each run makes.

A value that Python reads becomes a literal of the trace, and the shape of a result that depends on values a constant.
The line after it raises `thunder_core.errors.WrongGuess` in a run with another value, and another program runs instead:
see `thunder_core.runtime.outcomes`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import torch

from thunder_core.acquire.defined_sizes import DefinedSizes
from thunder_core.acquire.prefix import NotEvaluated
from thunder_core.acquire.probe import Probed, as_outcome, of_geometry, other_geometries, outcome_of
from thunder_core.acquire.recorder import GraphNeeded, Recorder
from thunder_core.acquire.traced_number import TracedNumber
from thunder_core.acquire.traced_size import traced_size
from thunder_core.acquire.traced_tensor import is_traced
from thunder_core.acquire.value_request import Declined, Resolved, ValueRequest
from thunder_core.errors import UnsupportedError
from thunder_core.ir.bound_symbol import tensors_written_by
from thunder_core.ir.effects import Effects
from thunder_core.ir.proxy import NumberProxy, TensorProxy
from thunder_core.ir.size import SizeExpr, hint_of, on_fakes
from thunder_core.ir.symbol import Symbol, Tag
from thunder_core.ir.tree import iterate_leaves, map_leaves
from thunder_core.pytorch_internals import DisableTorchFunction, OpOverload, disable_current_modes
from thunder_core.symbols.checks import CHECK_SHAPES, CHECK_VALUE, READERS, SHAPES
from thunder_core.tracing.fake_tensors import computed

if TYPE_CHECKING:
    import numpy as np

Tensor: Any = torch.Tensor  # its methods are descriptors, which the stubs do not say
_READERS: Final = {
    **{reader: name for name, reader in READERS.items() if name != "number"},
    Tensor.is_nonzero: "bool",
    torch.is_nonzero: "bool",
    Tensor.__nonzero__: "bool",
}
_ARRAYS: Final = frozenset({Tensor.numpy, Tensor.__array__})
_OF_ONE_ELEMENT: Final = frozenset({"bool", "item", "int", "float", "complex", "index", "contains"})
_TEXTS: Final = frozenset({"repr", "format"})
_MOST_ELEMENTS: Final = 4096  # of what becomes a literal of the trace
_EXTERNAL: Final = Effects(external=True)

_NODES_OF_FAKES: Final = frozenset({"_ResultsBackward", "_DerivedBackward"})
"""Names of the nodes of autograd graphs that `thunder_core.tracing.fake_tensors` creates; eager has others."""


class Speculation:
    """Takes the value, or the shape, that a call gives this time, and records a check that it is so in each run."""

    def resolve(self, recorder: Recorder, request: ValueRequest) -> Resolved | Declined:
        """As `thunder_core.acquire.recorder.Resolver`."""
        if recorder.attempt.guesses is None:
            return Declined("this recording takes no value of this call for that of all calls")
        try:
            if not request.reads and isinstance(request.kwargs.get("out"), tuple | list):
                return Declined("it has several results to write to")
            if not request.reads:
                return _into_out(recorder, request) or _with_shapes(recorder, request)
            return _value(recorder, request)
        except NotEvaluated as reason:
            return Declined(str(reason), blocking=True)


def _value(recorder: Recorder, request: ValueRequest) -> Resolved | Declined:
    """A value that the program's Python gets of tensors."""
    call, target = request.call, request.symbol.target
    reader = _READERS.get(target)
    if not call.proxies or (target not in _ARRAYS and any(value is not None for value in call.kwargs.values())):
        return Declined("it takes arguments that no check of a value has")
    if (
        sum(math.prod(map(hint_of, proxy.shape)) for proxy in call.proxies) > _MOST_ELEMENTS
        and reader not in _OF_ONE_ELEMENT | _TEXTS
    ):
        return Declined(f"it reads more than {_MOST_ELEMENTS} elements")
    if target in _ARRAYS:
        return Resolved(_array(recorder, request))
    if reader is None:
        return Declined("only numbers, texts and nested lists of numbers are checked in each run")
    if reader == "repr":
        return _text(recorder, request)
    return Resolved(speculate(recorder, reader, call.args))


def _text(recorder: Recorder, request: ValueRequest) -> Resolved | Declined:
    """The text of a tensor. That of one which requires grad names the node of the autograd graph that computes it."""
    (proxy,), (tensor, *_) = request.call.proxies, request.args
    if not proxy.requires_grad:
        return Resolved(speculate(recorder, "repr", (proxy,)))
    if is_traced(tensor) and not recorder.attempt.graph:
        raise GraphNeeded
    with DisableTorchFunction():
        node = recorder.tensors.fake(recorder.tensors.variable(tensor)).grad_fn if is_traced(tensor) else tensor.grad_fn
    if node is not None and not is_traced(tensor):
        return Declined("the text names the function that computed a tensor before the program ran")
    if type(node).__name__ in _NODES_OF_FAKES:
        return Declined("the text names the function that computed the tensor, which is another in a compiled program")
    return Resolved(speculate(recorder, "text", (proxy, type(node).__name__ if node is not None else "")))


def _array(recorder: Recorder, request: ValueRequest) -> np.ndarray[Any, Any]:
    """The values of a tensor for NumPy. Writes to it, which eager's tensor would see, raise.

    Raises:
        Exception: what eager raises, as for a tensor that requires grad.
    """
    (proxy,) = request.call.proxies
    target, options = request.symbol.target, (request.args[1:], request.kwargs)
    with disable_current_modes(), DisableTorchFunction():
        target(torch.empty(0, requires_grad=proxy.requires_grad), *options[0], **options[1])
    value = speculate(recorder, "tolist", (proxy,))
    recorder.prefix.shared[proxy.storage] = len(recorder.trace.lines)
    with disable_current_modes(), DisableTorchFunction():
        tensor = torch.tensor(value, dtype=proxy.dtype).reshape([int(on_fakes(size)) for size in proxy.shape])
        array: np.ndarray[Any, Any] = target(tensor, *options[0], **options[1])
    array.flags.writeable = False
    return array


def check_arrays(recorder: Recorder) -> None:
    """Refuse writes to memory that the program has shown to NumPy before.

    Raises:
        UnsupportedError: the array that it holds would not see the write.
    """
    for storage, position in recorder.prefix.shared.items():
        for line in recorder.trace.lines[position:]:
            if any(proxy.storage == storage for proxy in tensors_written_by(line)):
                raise UnsupportedError(
                    f"{line.symbol.name} writes to a tensor whose memory a NumPy array shows",
                    location=line.location,
                    advice=("copy it before: tensor.clone().numpy()",),
                )


def speculate(recorder: Recorder, reader: str, args: tuple[Any, ...]) -> Any:
    """The value of this call, after recording the line that checks it.

    Args:
        reader: a name in `thunder_core.symbols.checks.READERS`.
        args: what it is called with: proxies and literals.

    Raises:
        NotEvaluated: the program so far cannot be run while it is recorded.
        Exception: what eager raises, as for the truth of a tensor of several elements.
    """
    position, known = _next_guess(recorder, reader)
    value = known[0] if known else recorder.prefix.call(recorder, READERS[reader], args, {})
    _write(recorder, CHECK_VALUE, (position, reader, args, value))
    return value


def speculate_size(recorder: Recorder, number: NumberProxy) -> Any:
    """An int that a line computes as a size, which varies, after the line that defines it; a constant without symbols.

    Raises:
        NotEvaluated: the program so far cannot be run while it is recorded.
    """
    defined = _defined_sizes(recorder)
    if defined is None:
        return speculate(recorder, "number", (number,))
    before = defined.known(number)
    if before is not None:
        return traced_size(before)
    position, known = _next_guess(recorder, "number")
    value = known[0] if known else recorder.prefix.call(recorder, READERS["number"], (number,), {})
    size = defined.of_number(number, value)
    _write(recorder, CHECK_VALUE, (position, "number", (number,), size))
    return traced_size(size)


def _into_out(recorder: Recorder, request: ValueRequest) -> Resolved | None:
    """A call with ``out=`` as one without, whose result is copied; None for others."""
    out = request.kwargs.get("out")
    if not isinstance(out, torch.Tensor):
        return None
    others = {name: value for name, value in request.kwargs.items() if name != "out"}
    result = recorder.call_symbol(request.symbol, request.args, others)
    if not isinstance(result, torch.Tensor) or (out.shape and not result.shape):
        return None
    if result.shape:
        recorder.call(torch.cat, ([result],), {"out": out})  # it gives ``out`` another size where that is needed
    else:
        recorder.call(torch.Tensor.copy_, (out, result), {})
    return Resolved(out)


def _with_shapes(recorder: Recorder, request: ValueRequest) -> Resolved | Declined:
    """Record a call with the shapes that its results have this time, and a check of them."""
    call, target = request.call, request.symbol.target
    namespace = getattr(target, "namespace", "aten") if isinstance(target, OpOverload) else "aten"
    if namespace != "aten" or Tag.LOCAL in request.symbol.tags:
        return Declined("a function that is not PyTorch's may do more than compute")
    leaves = iterate_leaves((call.args, call.kwargs))
    recorded = [leaf.requires_grad for leaf in leaves if isinstance(leaf, TensorProxy)]
    grad_enabled = torch.is_grad_enabled()

    def run(*args: Any, **kwargs: Any) -> Probed | None:
        needs = iter(recorded)

        def marked(leaf: Any) -> Any:
            if not isinstance(leaf, torch.Tensor):
                return leaf
            copy = leaf.clone()  # the call may write it
            return computed(copy.requires_grad_()) if next(needs) else copy

        with torch.set_grad_enabled(grad_enabled):
            return outcome_of(target, map_leaves(marked, args), map_leaves(marked, kwargs))

    position, known = _next_guess(recorder, SHAPES)
    found = recorder.prefix.call(recorder, run, call.args, call.kwargs)
    if found is None or found.views:
        return _with_numbers(recorder, request, also_fractions=found is None) or Declined(
            "its results are not all new tensors"
        )
    results = [leaf for leaf in iterate_leaves(found.result) if isinstance(leaf, torch.Tensor)]
    shapes = tuple([(tuple(leaf.shape), leaf.stride()) for leaf in results])
    if known and known[0] != shapes:  # an executor's rounding has decided otherwise than PyTorch's
        shapes = known[0]
        others = iter(shapes)
        found = replace(found, result=map_leaves(lambda leaf: of_geometry(leaf, *next(others)), found.result))
    found, shapes, places = _with_symbols(recorder, request, found, shapes)
    outcome, fakes = as_outcome(recorder, found, call)
    context = recorder.trace.context_of(request.symbol)
    result = recorder.writer.record(request.symbol, call, outcome, fakes or None, context)
    outputs = recorder.trace.lines[-1].outputs()
    if places and recorder.defined_sizes is not None:
        recorder.defined_sizes.write_lines(outputs, places)
    _write(recorder, CHECK_SHAPES, (position, outputs, shapes))
    return Resolved(result)


def _with_symbols(
    recorder: Recorder, request: ValueRequest, found: Probed, shapes: Any
) -> tuple[Probed, Any, dict[SizeExpr, tuple[int, int]]]:
    """A result and its shapes with symbols for the sizes that values decide, and where each of these is read."""
    defined = _defined_sizes(recorder)
    if defined is None:
        return found, shapes, {}
    samples = other_geometries(recorder, request)
    arguments = [proxy.shape for proxy in request.call.proxies]
    geometries, places = defined.geometries(shapes, samples, arguments)
    others = iter(geometries)
    changed = map_leaves(lambda leaf: of_geometry(leaf, *next(others)), found.result)
    return replace(found, result=changed), tuple(geometries), places


def _with_numbers(recorder: Recorder, request: ValueRequest, *, also_fractions: bool) -> Resolved | None:
    """The call with numbers, or lists of them, in the place of tensors that are sizes or bounds: ``x[:n]``.

    Args:
        also_fractions: floats among the positional arguments are numbers, too: the weights of an update in place.
    """
    changed = False

    def number(leaf: Any, *, also_fractions: bool) -> Any:
        nonlocal changed
        if not isinstance(leaf, torch.Tensor):
            return leaf
        proxy = recorder.tensors.proxy_of(leaf)
        fraction = proxy.dtype.is_floating_point
        if len(proxy.shape) > (0 if fraction else 1) or proxy.dtype.is_complex or (fraction and not also_fractions):
            return leaf
        changed = True
        if proxy.shape or fraction or proxy.dtype is torch.bool:
            return speculate(recorder, "tolist", (proxy,))
        value = recorder.call(Tensor.item, (leaf,), {})
        return value.size() if type(value) is TracedNumber else value

    first, *others = request.args or (None,)
    args = [
        map_leaves(lambda leaf: number(leaf, also_fractions=False), first),
        *map_leaves(lambda leaf: number(leaf, also_fractions=also_fractions), others),
    ]
    kwargs = map_leaves(lambda leaf: number(leaf, also_fractions=True), request.kwargs)  # alpha=lr
    if not changed:
        return None
    try:
        return Resolved(recorder.call_symbol(request.symbol, tuple(args[: len(request.args)]), kwargs))
    except TypeError:  # it takes a tensor there
        request.cause.__traceback__ = None
        return None


def _next_guess(recorder: Recorder, reader: str) -> tuple[int, tuple[Any, ...]]:
    """How many values were taken before, and the one that is known to come now, if any."""
    position = recorder.prefix.guesses
    assert recorder.attempt.guesses is not None
    known = recorder.attempt.guesses.values[position : position + 1]
    return position, tuple([value for how, value in known if how == reader])


def _defined_sizes(recorder: Recorder) -> DefinedSizes | None:
    """The sizes that lines of the program define; None where those are constants."""
    defined = recorder.defined_sizes
    return defined if defined is not None and defined.allowed else None


def _write(recorder: Recorder, symbol: Symbol, args: tuple[Any, ...]) -> None:
    sizes = recorder.defined_sizes.before_check() if recorder.defined_sizes is not None else ()
    recorder.trace.write(symbol, (*args, sizes) if sizes else args, {}, effects=_EXTERNAL)
    recorder.prefix.guesses += 1
