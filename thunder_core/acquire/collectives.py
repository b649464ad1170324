"""Communication between processes: recorded where the program starts it, and where it waits for it.

The functions of `torch.distributed` end in operators of ``torch.ops.c10d``, which return a handle. While a program is
recorded nothing is sent: the handle is a `RecordedWork`, and waiting for it is a line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Final, NoReturn

import torch

from thunder_core.acquire.arguments import Call
from thunder_core.acquire.interception import refusal
from thunder_core.acquire.recorder import Recorder
from thunder_core.errors import UnsupportedError
from thunder_core.ir.effects import WAITS
from thunder_core.ir.proxy import OpaqueProxy
from thunder_core.ir.symbol import Symbol
from thunder_core.ir.tree import iterate_leaves
from thunder_core.pytorch_internals import DisableTorchFunction, OpOverload, peek_interpreter_stack, schema_of
from thunder_core.symbols.collectives import RECEIVE, START, WAIT, channels_of
from thunder_core.tracing.user_frames import user_location


def _copies(tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    return tuple([tensor.detach().clone() for tensor in tensors])


_COPIES: Final = Symbol("copies", _copies)


def _refused() -> Iterator[tuple[Any, str]]:
    """What would communicate while a program is recorded, beside the operators that are recorded."""
    distributed = torch.distributed
    if not distributed.is_available():
        return
    names = [name for name in dir(distributed) if name.endswith(("_object_list", "_object"))]
    for owner in (distributed, distributed.distributed_c10d):
        yield from [(owner, name) for name in names if name in vars(owner)]
    for name in ("init_process_group", "destroy_process_group"):
        yield distributed, name
    if "_start_coalescing" in vars(distributed.ProcessGroup):
        yield distributed.ProcessGroup, "_start_coalescing"


REFUSED: Final = tuple(_refused())
"""Functions, with their owners, that are refused inside of a compiled program."""


def refusal_of(name: str) -> Callable[..., Any]:
    """The interception of one of `REFUSED`."""
    return refusal(
        f"{name} inside a compiled function would run once, at compile time",
        "call it outside of the compiled function",
        "collectives of single tensors are part of the program: all_reduce, broadcast, isend and the like",
    )


def record(recorder: Recorder, operator: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Record a call of an operator of ``torch.ops.c10d``, and return what its schema says.

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
    buffers = _record(
        recorder, START, (operator, places, *args), written, channels_of(operator, args, {}), handle_proxy
    )
    read = [tensor for place, tensor in enumerate(tensors) if place not in places]
    if schema_of(operator).name == "c10d::barrier":
        recorder.tensors.kept_by_pytorch(tensors[0])  # of 2.11, in a static variable of ProcessGroup.barrier
    work = _recorded_work()(recorder, list(zip(written, buffers, strict=True)), read)
    recorder.inputs.made(work, handle_proxy)
    if recorder.trace.outer_lines:  # of a checkpoint region, say, that handles must not leave
        work.wait()
    else:
        recorder.works.append(work)
    returns = len(schema_of(operator).returns)
    if returns == 0:
        return None
    return work.boxed() if returns == 1 else (args[0], work.boxed())


def finish(recorder: Recorder) -> None:
    """Wait for what the program started and never waited for."""
    for work in recorder.works:
        work.wait()


def _written(operator: OpOverload, args: tuple[Any, ...], names: list[str]) -> tuple[int, ...]:
    """Which of the tensors of a call are written. Schemas of these operators do not say it; names of arguments do."""
    outputs = {name for name in names if name.startswith("output")}
    if not outputs and schema_of(operator).name.endswith("_"):
        outputs = {"tensors"}
    places: list[int] = []
    count = 0
    for name, value in zip(names, args, strict=False):
        size = sum(isinstance(leaf, torch.Tensor) for leaf in iterate_leaves(value))
        if name in outputs:
            places += range(count, count + size)
        count += size
    return tuple(places)


def _record(
    recorder: Recorder,
    symbol: Symbol,
    args: tuple[Any, ...],
    like: Sequence[Any],
    channels: tuple[str, ...],
    first: OpaqueProxy | None = None,
) -> tuple[Any, ...]:
    """Record a line that returns new tensors like those in ``like``, after ``first`` if that is given."""
    with recorder.suspension, DisableTorchFunction(), torch.no_grad():
        call = Call(recorder.inputs, args, {})
        outcome, fakes = recorder.infer(_COPIES, (list(like),), {}, call.variables)
        outcome = replace(outcome, channels=channels)
        context = recorder.trace.context_of(symbol)
        made: tuple[Any, ...] = recorder.writer.record(symbol, call, outcome, fakes, context)
        if first is not None:
            lines = recorder.trace.lines
            lines[-1] = replace(lines[-1], output=(first, *(lines[-1].output or ())))
        return made


@cache
def _recorded_work() -> Any:
    """The class of handles. PyTorch may be built without the class that it is derived from."""

    class RecordedWork(torch.distributed.Work):
        """The handle of a communication that is recorded and not made."""

        def __init__(
            self, recorder: Recorder, written: list[tuple[torch.Tensor, torch.Tensor]], read: list[torch.Tensor]
        ) -> None:
            super().__init__()
            self._recorder = recorder
            self._written = written
            self._read = read
            self._waiting = True

        def wait(self, timeout: Any = None) -> bool:
            """Record that the program waits: from here on, tensors have what was received."""
            if not self._waiting:
                return True
            recorder, written, read = self._recorder, self._written, self._read
            # the collector does not see what objects of this class hold, and traced tensors must not stay alive
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
