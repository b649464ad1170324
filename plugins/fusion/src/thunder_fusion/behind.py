"""Regions that another process compiles while PyTorch's kernels run them: ``compile="behind"``.

A `Candidate` is one distinct region. Its code arrives from a worker process (`worker_process`), is compared once with
PyTorch's kernels, whose results that call returns, and runs from then on. If there is no code, or it computes something
else, PyTorch's kernels continue to run the region, after a warning.

Regions that were compiled together, those of a program, are replaced together, between two calls of the program
(`Swap`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

import torch

from thunder_core.errors import ExecutorWarning
from thunder_core.executors.executor import RegionCall
from thunder_core.forking import renew_in_child
from thunder_core.ir.aliases import Aliases
from thunder_core.ir.location import at
from thunder_core.ir.program import compile_trace
from thunder_core.ir.result_checks import differences
from thunder_core.ir.trace import Trace
from thunder_core.passes.delete_last_use import with_deletions
from thunder_core.passes.operations import strided_copy, with_strides
from thunder_core.tracing.frames import warn_user
from thunder_fusion.comparison import Comparison, allowed_difference
from thunder_fusion.worker_process import Job, encoded

if TYPE_CHECKING:
    from thunder_fusion.executor import FusionExecutor

_waiting: Final[dict[Hashable, Candidate]] = {}
"""The candidates whose code has not arrived, by the keys of their regions."""


class State(Enum):
    """What runs a region."""

    WAITS = "PyTorch's kernels run it until another process has compiled it"
    ARRIVED = "PyTorch's kernels run it until the code that another process compiled is compared with them"
    COMPARED = "its code is being compared with PyTorch's kernels"
    REPLACED = "code of another process runs it"
    STAYS = "PyTorch's kernels run it"


def candidates(
    executor: FusionExecutor,
    regions: Sequence[Trace],
    keys: Sequence[Hashable | None],
    store: Callable[[Hashable, RegionCall], object],
) -> list[Candidate | None]:
    """For each region its candidate, whose compilation starts now or has started; None if it must be compiled here.

    That is the case for regions with sizes that vary (conditions on them, which the compilation finds, are guards of
    the program) and for regions or executors that cannot be sent to another process.

    Args:
        executor: as it compiles here.
        keys: equal keys are keys of equal regions; None for a region without one.
        store: receives the code of a region with its key.
    """
    found: list[Candidate | None] = [None if key is None else _waiting.get(key) for key in keys]
    new = [
        index
        for index, (key, known) in enumerate(zip(keys, found, strict=True))
        if known is None and key is not None and not regions[index].sizes
    ]
    request = encoded(executor, [regions[index] for index in new]) if new else None
    if request is None:
        return found
    for index in new:
        found[index] = _waiting[keys[index]] = Candidate(executor, regions[index], keys[index], store)
    Job(request, [candidate for index in new if (candidate := found[index]) is not None], warn_of)
    return found


def replaced_together(calls: Sequence[RegionCall | str]) -> list[RegionCall | str]:
    """The calls of a program's regions, with a call for each use of a candidate."""
    swap = Swap(tuple(dict.fromkeys([call for call in calls if isinstance(call, Candidate)])))
    return [BehindRegion(call, swap) if isinstance(call, Candidate) else call for call in calls]


class Candidate:
    """A region that waits for its code. Calling it runs PyTorch's kernels.

    Attributes:
        region: the region.
        state: what runs it.
        code: the compiled region; None if there is none.
        reason: why PyTorch's kernels continue to run it.
        difference: the largest difference found by the comparison, as a share of the largest element; None without one.
    """

    def __init__(
        self,
        executor: FusionExecutor,
        region: Trace,
        key: Hashable = None,
        store: Callable[[Hashable, RegionCall], object] | None = None,
    ) -> None:
        self.executor = executor
        self.region = region
        self.state = State.WAITS
        self.code: RegionCall | None = None
        self.reason = ""
        self.difference: float | None = None
        self.job: Job | None = None
        self._key = key
        self._store = store
        self._strides = [tuple(proxy.stride) for proxy in region.output]
        self._written = Aliases.of(region).written_inputs
        self._kernels: Callable[..., Sequence[Any]] | None = None
        self._comparison: Comparison | None = None
        self._turn = threading.Lock()
        renew_in_child(self, "_turn")

    def __call__(self, *inputs: Any) -> Sequence[Any]:
        """The results of PyTorch's kernels."""
        if self._kernels is None:
            self._kernels = compile_trace(with_deletions(self.region))
        results = self._kernels(*inputs)
        return [with_strides(result, stride) for result, stride in zip(results, self._strides, strict=True)]

    def arrived(self) -> bool:
        """Whether the worker process is done with the region."""
        return self.state is not State.WAITS or self.job is None or self.job.poll()

    def receive(self, answer: bytes | str) -> None:
        """Load the code from an artifact, or stay with PyTorch's kernels for a reason. `warn_of` has to follow."""
        if isinstance(answer, str):
            return self.stay(answer)
        try:
            self.code = self.executor.load(answer, self.region)
        except Exception as error:  # noqa: BLE001 - becomes the reason
            return self.stay(f"its code cannot be loaded: {type(error).__name__}: {error}")
        _waiting.pop(self._key, None)
        self.state = State.ARRIVED

    def stay(self, reason: str) -> None:
        """Let PyTorch's kernels run the region from now on."""
        _waiting.pop(self._key, None)
        self.state, self.reason, self.code, self._comparison = State.STAYS, reason, None, None

    def run(self, inputs: tuple[Any, ...]) -> Sequence[Any]:
        """The results of a call after the code arrived: of PyTorch's kernels until the comparison has been read."""
        if self.state is not State.REPLACED and self._turn.acquire(blocking=False):  # else another thread compares
            try:
                if self.state is State.ARRIVED:
                    return self._compared(inputs)
                if self._comparison is not None:
                    self._decide(self._comparison)
            finally:
                self._turn.release()
        code = self.code if self.state is State.REPLACED else None
        return self(*inputs) if code is None else code(*inputs)

    def describe(self) -> str:
        """The state as text."""
        if self.state is State.STAYS:
            return f"{self.state.value}: {self.reason}"
        if self.state is State.REPLACED and self.difference is not None:
            return f"{self.state.value}; compared with PyTorch's kernels, it differs by {self.difference:.1e} at most"
        return f"{self.state.value}{f'; not compared, {self.reason}' if self.reason else ''}"

    def _compared(self, inputs: tuple[Any, ...]) -> Sequence[Any]:
        """The results of PyTorch's kernels; those of the code on copies of what they write are compared with them."""
        self.state, code = State.COMPARED, self.code
        assert code is not None, "it arrived"
        results: Sequence[Any] | None = None
        try:
            copies = [strided_copy(value) if index in self._written else value for index, value in enumerate(inputs)]
            results = self(*inputs)
            self._comparison = self._comparison_of(code, copies, results, inputs)
        except torch.OutOfMemoryError:
            if results is None:
                raise
            self.state, self.reason = State.REPLACED, "as there is no memory for both results"
        finally:
            if self._comparison is None and self.state is State.COMPARED:  # an exception: of PyTorch's kernels
                self.state = State.ARRIVED
        warn_of([self])
        return results

    def _comparison_of(
        self, code: RegionCall, copies: Sequence[Any], results: Sequence[Any], inputs: Sequence[Any]
    ) -> Comparison | None:
        """The comparison; None if PyTorch's kernels stay, because the code fails or returns other tensors."""
        try:
            others = code(*copies)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - PyTorch's kernels raised none
            self.stay(f"its code fails: {type(error).__name__}: {error}")
            return None
        problem = next((text for _, text in differences(self.region.output, tuple(others))), None)
        if problem is not None:
            self.stay(f"its code returns {problem}")
            return None
        with torch.no_grad():
            written = [(copies[index], inputs[index]) for index in self._written]
            return Comparison.of([*others, *[one for one, _ in written]], [*results, *[other for _, other in written]])

    def _decide(self, comparison: Comparison) -> None:
        problem = comparison.problem(allowed_difference(self.region))
        if problem is not None:
            self.stay(problem)
            return warn_of([self])
        self.difference, self._comparison, self.state = comparison.largest(), None, State.REPLACED
        if self._store is not None and self.code is not None:
            self._store(self._key, self.code)


def _capturing() -> bool:
    """Whether the program is captured as a CUDA graph, in which a comparison cannot wait for the device."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def warn_of(candidates: Sequence[Candidate]) -> None:
    """One warning for each reason for which PyTorch's kernels continue to run some of the regions."""
    staying = [candidate for candidate in candidates if candidate.state is State.STAYS]
    reasons = dict.fromkeys([candidate.reason for candidate in staying])
    for reason in reasons:
        first, *others = [candidate for candidate in staying if candidate.reason == reason]
        op = first.region.symbols[0]
        what = f"its region of {len(first.region.symbols)} operations that begins with {op.symbol.name}"
        more = f", and {len(others)} others" if others else ""
        warn_user(
            f"{first.executor.name}: PyTorch's kernels continue to run {what}{at(op.location, ' at ')}{more}: {reason}",
            ExecutorWarning,
        )


class Swap:
    """The decision when the regions of a program are replaced: when its first region runs, all codes having arrived.

    The first region is that which runs first in the first call, or another that runs twice without it in between.

    Attributes:
        finished: whether they are replaced.
    """

    def __init__(self, candidates: tuple[Candidate, ...]) -> None:
        self._candidates = candidates
        self._first: BehindRegion | None = None
        self._calls = 0
        self.finished = not candidates

    def done(self, region: BehindRegion) -> bool:
        """Whether ``region``, which is called now, is replaced."""
        if self.finished:
            return True
        if self._first is None or region.seen == self._calls:
            self._first = region
        if region is self._first:
            self._calls += 1
            self.finished = all(candidate.arrived() for candidate in self._candidates)
        region.seen = self._calls
        return self.finished


class BehindRegion:
    """One use of a candidate in a program."""

    __slots__ = ("_call", "_swap", "candidate", "seen")

    def __init__(self, candidate: Candidate, swap: Swap) -> None:
        self.candidate = candidate
        self.seen = -1
        self._swap = swap
        self._call: RegionCall | None = None

    def __call__(self, *inputs: Any) -> Sequence[Any]:
        call = self._call
        if call is not None:
            return call(*inputs)
        candidate = self.candidate
        if not self._swap.done(self) or _capturing():
            return candidate(*inputs)
        if self.settled():
            self._call = candidate if candidate.code is None else candidate.code
            return self._call(*inputs)
        return candidate.run(inputs)

    def settled(self) -> bool:
        """Whether later calls run the same code as the next one."""
        return self._swap.finished and self.candidate.state in (State.REPLACED, State.STAYS)

    def describe(self) -> str:
        """What runs it, for the report."""
        stays = self.candidate.state is State.STAYS
        return self.candidate.describe() if self._swap.finished or stays else State.WAITS.value

    def generated_code(self) -> str:
        """The code that runs, for people."""
        make = getattr(self.candidate.code, "generated_code", None) if self.settled() else None
        return "" if make is None else str(make())
