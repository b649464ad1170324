"""Communication between processes: recorded where the program starts it, and where it waits for it.

The functions of `torch.distributed` call operators of ``torch.ops.c10d``, which return a handle. While a program is
recorded nothing is sent: the handle is a `RecordedWork`, and waiting for it is an op of the trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from inspect import signature
from itertools import count
from typing import Any, Final, NoReturn

import torch

from thunder_core.acquire.arguments import CallArguments
from thunder_core.acquire.communication import Communication
from thunder_core.acquire.recorder import Recorder
from thunder_core.errors import UnsupportedError
from thunder_core.guards.observer import Observer
from thunder_core.ir.effects import WAITS
from thunder_core.ir.proxy import OpaqueProxy
from thunder_core.ir.symbol import Symbol
from thunder_core.ir.tree import iterate_leaves
from thunder_core.pytorch_internals import DisableTorchFunction, OpOverload, peek_interpreter_stack, schema_of
from thunder_core.symbols.channels import channels_of
from thunder_core.tracing.user_frames import user_location
from thunder_plugin_distributed.recording import object_collectives
from thunder_plugin_distributed.recording.operations import RECEIVE, START, WAIT


def _copies(tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    return tuple([tensor.detach().clone() for tensor in tensors])


_COPIES: Final = Symbol("copies", _copies)
_ids: Final = count(10**9 + 1)  # larger than PyTorch's
_REDUCTION: Final = "reduction"
"""The key, in `Recorder.notes`, of the reduction that the program passes to the current call."""
_WORKS: Final = "works"
"""The key, in `Recorder.notes`, of the handles that the program has."""


def unique_id(recorder: Recorder, original: Callable[[], int], /) -> int:
    """The interception of the ids of handles on fake tensors, which PyTorch draws from Python's random numbers."""
    return next(_ids)


def reducing() -> Iterator[tuple[Any, str]]:
    """The functions that take a reduction (a ``ReduceOp``), with their modules."""
    names = ("all_reduce", "all_reduce_coalesced", "reduce", "reduce_scatter", "reduce_scatter_tensor")
    for name in (*names, "reduce_scatter_single"):
        if hasattr(torch.distributed, name):
            yield torch.distributed, name


def call_with_reduction(
    name: str, recorder: Recorder, original: Callable[..., Any], /, *args: Any, **kwargs: Any
) -> Any:
    """The interception of one of `reducing`: notes the reduction, as the operators take it as an opaque object."""
    given = signature(getattr(torch.distributed, name)).bind(*args, **kwargs)
    given.apply_defaults()
    operation: Any = given.arguments["op"]
    before = recorder.notes.get(_REDUCTION, "")
    recorder.notes[_REDUCTION] = getattr(operation, "op", operation).name.lower()
    try:
        return original(*args, **kwargs)
    finally:
        recorder.notes[_REDUCTION] = before


class RecordedCommunication(Communication):
    """Records the operators of ``torch.ops.c10d`` as two ops, one that starts a communication and one that waits."""

    def record(self, recorder: Recorder, operator: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return _record_operator(recorder, operator, args, kwargs)

    def finish(self, recorder: Recorder) -> None:
        for work in recorder.notes.pop(_WORKS, ()):
            work.wait()

    def check(self, recorder: Recorder, observer: Observer) -> None:
        object_collectives.check(recorder, observer)


def _record_operator(recorder: Recorder, operator: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Record a call of an operator of ``torch.ops.c10d``, and return results as its schema declares them.

    Raises:
        UnsupportedError: it is called under a transformation of ``torch.func``.
    """
    if peek_interpreter_stack() is not None:
        raise UnsupportedError(
            f"{operator} is called under a transformation of torch.func",
            location=user_location(),
            advice=("communicate outside of the transformation",),
        )
    names = [argument.name for argument in schema_of(operator).arguments]
    args = (*args, *[kwargs[name] for name in names[len(args) :] if name in kwargs])
    tensors = [leaf for leaf in iterate_leaves(args) if isinstance(leaf, torch.Tensor)]
    places = _written(operator, args, names)
    handle_proxy = OpaqueProxy(recorder.trace.names.intermediate(), "Work")
    written = [tensors[place] for place in places]
    reduction = recorder.notes.get(_REDUCTION, "")
    options = {"reduction": reduction} if reduction else {}
    buffers = _record(
        recorder, START, (operator, places, *args), written, channels_of(operator, args, {}), handle_proxy, options
    )
    read = [tensor for place, tensor in enumerate(tensors) if place not in places]
    if schema_of(operator).name == "c10d::barrier":
        recorder.tensors.exempt_from_leak_check(tensors[0])  # of 2.11, in a static variable of ProcessGroup.barrier
    work = _recorded_work()(recorder, list(zip(written, buffers, strict=True)), read)
    recorder.inputs.bind(work, handle_proxy)
    if recorder.trace.outer_ops:  # handles must not leave a checkpoint region, for example
        work.wait()
    else:
        recorder.notes.setdefault(_WORKS, []).append(work)
    returns = len(schema_of(operator).returns)
    if returns == 0:
        return None
    return work.boxed() if returns == 1 else (args[0], work.boxed())


def _written(operator: OpOverload, args: tuple[Any, ...], names: list[str]) -> tuple[int, ...]:
    """Indices of the tensors that a call writes, by argument names: schemas of these operators declare no writes."""
    outputs = {name for name in names if name.startswith("output")}
    if not outputs and schema_of(operator).name.endswith("_"):
        outputs = {"tensors"}
    places: list[int] = []
    position = 0
    for name, value in zip(names, args, strict=False):
        size = sum(isinstance(leaf, torch.Tensor) for leaf in iterate_leaves(value))
        if name in outputs:
            places += range(position, position + size)
        position += size
    return tuple(places)


def _record(
    recorder: Recorder,
    symbol: Symbol,
    args: tuple[Any, ...],
    like: Sequence[Any],
    channels: tuple[str, ...],
    first: OpaqueProxy | None = None,
    options: dict[str, Any] | None = None,
) -> tuple[Any, ...]:
    """Record an op that returns new tensors like ``like``, with ``first`` before them if given."""
    with recorder.suspension, DisableTorchFunction(), torch.no_grad():
        call = CallArguments(recorder.inputs, args, options or {})
        outcome, fakes = recorder.infer(_COPIES, (list(like),), {}, call.variables)
        outcome = replace(outcome, channels=channels)
        context = recorder.trace.context_of(symbol)
        made: tuple[Any, ...] = recorder.writer.record(symbol, call, outcome, fakes, context)
        if first is not None:
            lines = recorder.trace.ops
            lines[-1] = replace(lines[-1], output=(first, *(lines[-1].output or ())))
        return made


@cache
def _recorded_work() -> Any:
    """The class of handles, created on first use: PyTorch may be built without its base class."""

    class RecordedWork(torch.distributed.Work):
        """The handle of a communication that is recorded and not performed."""

        def __init__(
            self, recorder: Recorder, written: list[tuple[torch.Tensor, torch.Tensor]], read: list[torch.Tensor]
        ) -> None:
            super().__init__()
            self._recorder = recorder
            self._written = written
            self._read = read
            self._waiting = True

        def wait(self, timeout: Any = None) -> bool:
            """Record that the program waits: from here on, its tensors contain the received data."""
            if not self._waiting:
                return True
            recorder, written, read = self._recorder, self._written, self._read
            # the garbage collector does not traverse this class, and traced tensors must not stay alive
            self._waiting, self._written, self._read = False, [], []
            if not written:
                _record(recorder, WAIT, (self, *read), (), (WAITS,))
            for tensor, buffer in written:
                (value,) = _record(recorder, RECEIVE, (self, buffer, *read), (buffer,), (WAITS,))
                with DisableTorchFunction(), torch.no_grad():
                    recorder.call(torch.Tensor.copy_, (tensor, value), {})
            return True

        def synchronize(self) -> None:
            self.wait()

        def is_completed(self) -> bool:
            _refuse("is_completed")

        def is_success(self) -> bool:
            _refuse("is_success")

        def exception(self) -> Any:
            _refuse("exception")

        def result(self) -> Any:
            _refuse("result")

        def source_rank(self) -> int:
            _refuse("source_rank")

        def _source_rank(self) -> int:
            raise UnsupportedError(
                "recv from any rank inside a compiled function returns the rank that sent, which is not known while "
                "the program is recorded",
                location=user_location(),
                advice=("name the rank: src=0", "receive outside of the compiled function"),
            )

        def get_future(self) -> Any:
            _refuse("get_future")

        def get_future_result(self) -> Any:
            _refuse("get_future_result")

        def block_current_stream(self) -> None:
            _refuse("block_current_stream")

    return RecordedWork


def _refuse(method: str) -> NoReturn:
    raise UnsupportedError(
        f"{method}() of the handle of a communication: nothing is sent while the program is recorded",
        location=user_location(),
        advice=("use wait()", "communicate outside of the compiled function"),
    )
