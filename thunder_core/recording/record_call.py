"""Record a function of tensors with the tracer of the core."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import torch

from thunder_core.checks.check import Check
from thunder_core.checks.conditions import ALIAS
from thunder_core.checks.global_state import GlobalState
from thunder_core.checks.guard import Guard
from thunder_core.checks.source import Source
from thunder_core.contract import Recording
from thunder_core.errors import LoweringError, UnsupportedError
from thunder_core.ir.location import SourceLocation
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.trace import Stage, Trace
from thunder_core.pytorch_internals import DataDependentOutputException, DynamicOutputShapeException
from thunder_core.recording.input_fakes import InputFakes
from thunder_core.recording.program_tracer import ProgramTracer
from thunder_core.recording.trees import Results
from thunder_core.recording.value_names import ValueNames
from thunder_core.tracing.fake_tensors import lazy_bits, storage_address

_PLAIN: Final = (torch.Tensor, torch.nn.Parameter)
_VALUES: Final = (DataDependentOutputException, DynamicOutputShapeException)


def _nowhere() -> SourceLocation | None:
    return None


def record_call(
    function: Callable[..., Any],
    inputs: Sequence[tuple[Source, torch.Tensor]],
    guards: Iterable[Guard] = (),
    *,
    location: Callable[[], SourceLocation | None] = _nowhere,
) -> Recording:
    """Record ``function`` of the tensors of ``inputs`` as the program of a call, under the current modes.

    ``function`` is called once, with a fake tensor for each input that has its metadata, and that shares storage and
    autograd history with the others as the inputs do. Its calls of PyTorch become ops: computations, writes (also to
    the inputs), random functions, and regions of `torch.no_grad`, `torch.enable_grad` and
    `thunder_core.recording.autocast_region`. It must not have other effects: they would happen once, and not in runs.

    Args:
        function: a function of as many tensors as there are inputs.
        inputs: the path to each tensor, and the tensor in this call. A tensor that has several paths becomes one input,
            and a guard requires that these paths lead to the same tensor.
        guards: the conditions on all that the program depends on besides the metadata of its inputs and PyTorch's
            modes, both of which the runtime guards.
        location: returns the line of the user's program that makes the current call; None if it is unknown.

    Returns:
        The recording. Its result is what ``function`` returns: nested pytrees of tensors and other objects. A run
        returns the tensors that it computes, an input itself where ``function`` returns this, new containers, and the
        other objects as they are.

    Raises:
        UnsupportedError: an input is a sparse tensor, or of a subclass; or a call cannot be recorded, since it needs
            values of tensors or acts outside of tensors.
        Exception: whatever ``function`` raises.
    """
    state = GlobalState.current()
    tracer = ProgramTracer(location)
    fakes = InputFakes(tracer.mode)
    names, storages = ValueNames(), dict[int, int]()
    known: dict[int, tuple[Source, torch.Tensor]] = {}
    given, checks = [], list(guards)
    sources, values = [], []
    for source, tensor in inputs:
        if id(tensor) in known:
            first, fake = known[id(tensor)]
            if first != source:
                checks.append(Check(source, ALIAS, first))
        else:
            _check_input(source, tensor)
            storage = storages.setdefault(storage_address(tensor), len(storages))
            fake = _add_input(tracer, fakes, tensor, names.for_input(source.describe()), storage)
            known[id(tensor)] = source, fake
            sources.append(source)
            values.append(tensor)
        given.append(fake)
    results = Results(tracer.proxy)
    try:
        with tracer.running():
            result = results.reconstruction(function(*given))
    except _VALUES as error:
        what = f"the program needs the values of tensors: {str(error).partition(chr(10))[0]}"
        advice = ("compute on tensors instead (torch.where, masks)", "compile the original function or module instead")
        raise UnsupportedError(what, location=location(), advice=advice) from error
    except LoweringError as error:
        advice = ("move the call out of the program", "compile the original function or module instead")
        raise UnsupportedError(f"a call cannot be recorded: {error}", location=location(), advice=advice) from error
    trace = Trace(
        "computation",
        tuple(tracer.inputs),
        tuple(tracer.ops),
        tuple(results.outputs),
        Stage.ACQUIRED,
        "acquisition",
        tracer.context,
    )
    return Recording(trace, tuple(sources), tuple(values), tuple(checks), state, result, saw_strides=True)


def _check_input(source: Source, tensor: torch.Tensor) -> None:
    """Raise UnsupportedError for a tensor that this recording does not represent."""
    what, advice = "", ""
    if type(tensor) not in _PLAIN:
        what = f"of the class {type(tensor).__qualname__}"
        plain = type(tensor).__torch_dispatch__ is torch.Tensor.__torch_dispatch__
        advice = "pass a plain tensor, " + (
            "x.as_subclass(torch.Tensor)" if plain else "as to_local() and dequantize() do"
        )
    elif tensor.layout is not torch.strided:
        what, advice = f"a tensor of the layout {tensor.layout}", "pass a dense tensor: x.to_dense()"
    elif any(lazy_bits(tensor)):
        what, advice = "a lazily conjugated or negated tensor", "pass x.resolve_conj().resolve_neg()"
    if what:
        raise UnsupportedError(
            f"{source.describe()} is {what}, which this front end does not record",
            advice=(advice, "compile the original function or module instead"),
        )


def _add_input(tracer: ProgramTracer, fakes: InputFakes, tensor: torch.Tensor, name: str, storage: int) -> torch.Tensor:
    """Add an input with the metadata of a tensor to the trace; returns its fake."""
    shape, offset = tuple(tensor.shape), int(tensor.storage_offset())
    proxy = TensorProxy(
        name, shape, tensor.stride(), tensor.dtype, tensor.device, tensor.requires_grad, storage, offset
    )
    fake = fakes.make(tensor, proxy)
    tracer.input(fake, proxy)
    return fake
