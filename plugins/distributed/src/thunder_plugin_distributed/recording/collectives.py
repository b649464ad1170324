"""Communication between processes: recorded where the program starts it, and where it waits for it.

The functions of `torch.distributed` call operators of ``torch.ops.c10d``, which return a handle. While a program is
recorded nothing is sent: the handle is a `RecordedWork`, and waiting for it is an op of the trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from inspect import signature
from itertools import count
from typing import Any, Final, NoReturn

import torch

from thunder_core.errors import UnsupportedError
from thunder_core.ir.effects import WAITS
from thunder_core.ir.proxy import OpaqueProxy
from thunder_core.ir.symbol import Symbol
from thunder_core.ir.tree import iterate_leaves, tensors_in
from thunder_core.pytorch_internals import DisableTorchFunction, OpOverload, peek_interpreter_stack, schema_of
from thunder_core.symbols.channels import channels_of
from thunder_core.tracing.frames import user_location
from thunder_frontend.observe.observer import Observer
from thunder_frontend.record.arguments import CallArguments
from thunder_frontend.record.communication import Communication
from thunder_frontend.record.recorder import Recorder
from thunder_plugin_distributed.recording import object_collectives
from thunder_plugin_distributed.recording.operations import RECEIVE, START, START_TOGETHER, WAIT


def _copies(tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    return tuple([tensor.detach().clone() for tensor in tensors])


_COPIES: Final = Symbol("copies", _copies)
_ids: Final = count(10**9 + 1)  # larger than PyTorch's
_REDUCTION: Final = "reduction"
"""The key, in `Recorder.notes`, of the reduction that the program passes to the current call."""
_WORKS: Final = "works"
"""The key, in `Recorder.notes`, of the handles that the program has."""
_TOGETHER: Final = "together"
"""The key, in `Recorder.notes`, of the calls since the program began to coalesce; absent outside of that."""
_COALESCED: Final = "coalesced"
"""The key, in `Recorder.notes`, of the handles of these calls: `wait` of a handle whose Python object died hangs."""


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
    call = _Call(operator, _written(operator, args, names), args)
    together = recorder.notes.get(_TOGETHER)
    if together is None:
        reduction = recorder.notes.get(_REDUCTION, "")
        options = {"reduction": reduction} if reduction else {}
        work = _record_start(recorder, START, call.arguments, [call], options)
    else:
        work = _recorded_work()(recorder, [], [], coalesced=True)
        together.append(call)
        recorder.notes.setdefault(_COALESCED, []).append(work)
    if schema_of(operator).name == "c10d::barrier":
        # 2.11 keeps it in a static variable of ProcessGroup.barrier
        recorder.tensors.exempt_from_leak_check(call.tensors[0])
    returns = len(schema_of(operator).returns)
    if returns == 0:
        return None
    return work.boxed() if returns == 1 else (args[0], work.boxed())


@dataclass(frozen=True)
class _Call:
    """A call of an operator of ``torch.ops.c10d``.

    Attributes:
        places: which of the tensors in ``args`` the operator writes, in the order of their appearance.
    """

    operator: OpOverload
    places: tuple[int, ...]
    args: tuple[Any, ...]

    @property
    def arguments(self) -> tuple[Any, ...]:
        """As `start` takes them."""
        return (self.operator, self.places, *self.args)

    @property
    def tensors(self) -> list[torch.Tensor]:
        return tensors_in(self.args)

    @property
    def written(self) -> list[torch.Tensor]:
        tensors = self.tensors
        return [tensors[place] for place in self.places]

    @property
    def read(self) -> list[torch.Tensor]:
        return [tensor for place, tensor in enumerate(self.tensors) if place not in self.places]


def _record_start(
    recorder: Recorder, symbol: Symbol, args: tuple[Any, ...], calls: Sequence[_Call], options: dict[str, Any]
) -> Any:
    """Record an op that starts the communication of calls; the handle to wait for it."""
    handle_proxy = OpaqueProxy(recorder.trace.names.intermediate(), "Work")
    written = [tensor for call in calls for tensor in call.written]
    channels = channels_of(calls[0].operator, calls[0].args, {})  # those of a coalescing manager have one group
    buffers = _record(recorder, symbol, args, written, channels, handle_proxy, options)
    read = [tensor for call in calls for tensor in call.read]
    work = _recorded_work()(recorder, list(zip(written, buffers, strict=True)), read)
    recorder.inputs.bind(work, handle_proxy)
    if recorder.trace.outer_ops:  # handles must not leave a checkpoint region, for example
        work.wait()
    else:
        recorder.notes.setdefault(_WORKS, []).append(work)
    return work


def start_coalescing(recorder: Recorder, original: Callable[..., None], group: Any, device: torch.device, /) -> None:
    """The interception of ``ProcessGroup._start_coalescing``, which `batch_isend_irecv` calls for NCCL, for example."""
    recorder.notes[_TOGETHER] = []


def end_coalescing(recorder: Recorder, original: Callable[..., Any], group: Any, device: torch.device, /) -> Any:
    """The interception of ``ProcessGroup._end_coalescing``: the calls since the start are recorded as one op."""
    calls: list[_Call] = recorder.notes.pop(_TOGETHER)
    if not calls:
        return None
    args = (group.group_name, device, *[call.arguments for call in calls])
    return _record_start(recorder, START_TOGETHER, args, calls, {})


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
            ops = recorder.trace.ops
            ops[-1] = replace(ops[-1], output=(first, *(ops[-1].output or ())))
        return made


@cache
def _recorded_work() -> Any:
    """The class of handles, created on first use: PyTorch may be built without its base class."""

    class RecordedWork(torch.distributed.Work):
        """The handle of a communication that is recorded and not performed."""

        def __init__(
            self,
            recorder: Recorder,
            written: list[tuple[torch.Tensor, torch.Tensor]],
            read: list[torch.Tensor],
            *,
            coalesced: bool = False,
        ) -> None:
            super().__init__()
            self._coalesced = coalesced
            self._recorder = recorder
            self._written = written
            self._read = read
            self._waiting = True

        def wait(self, timeout: Any = None) -> bool:
            """Record that the program waits: from here on, its tensors contain the received data."""
            if self._coalesced:
                _refuse("wait", "inside of a coalescing manager", "wait for the handle of the manager")
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


def _refuse(method: str, where: str = "", advice: str = "use wait()") -> NoReturn:
    handle = f"the handle of a communication {where}".rstrip()
    raise UnsupportedError(
        f"{method}() of {handle}: nothing is sent while the program is recorded",
        location=user_location(),
        advice=(advice, "communicate outside of the compiled function"),
    )
