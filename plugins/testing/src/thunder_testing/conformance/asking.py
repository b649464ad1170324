"""Ask an executor about the lines of a call, and check how it answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from thunder_core.executors import Claimed, Decision, Declined, Executor
from thunder_core.executors.configured import ConfiguredExecutor
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.context import Context
from thunder_core.ir.tree import iterate_leaves
from thunder_core.pytorch_internals import FakeTensor, TorchDispatchMode
from thunder_fusion import FusionExecutor
from thunder_testing.conformance.call import Call
from thunder_testing.conformance.failure import Breach, NotApplicable
from thunder_testing.conformance.recording import lines_of, record
from thunder_testing.conformance.running import quietly
from thunder_testing.conformance.subject import Subject


@dataclass(frozen=True, slots=True)
class Asked:
    """A line that was offered, and the answer.

    Attributes:
        line: as it was recorded.
        context: the modes of the whole program.
        answer: the executor's.
        positions: of the line's inputs among the tensors of the call, by name, where they are arguments of the call.
    """

    line: BoundSymbol
    context: Context
    answer: Decision
    positions: Mapping[str, int] = field(default_factory=dict)


def ask(executor: Executor, subject: Subject, call: Call) -> tuple[Asked, ...]:
    """The lines of a recorded call that are the subject's, and what the executor says to each.

    Raises:
        Breach: an answer is none, or asking does more than answer.
        NotApplicable: there is no such line.
    """
    acquired = record(call)
    lines = lines_of(subject, acquired)
    if not lines:
        raise NotApplicable(f"the program records no line of {subject.name} for this call")
    if subject.symbols and all(line.effects.mutates for line in lines):
        raise NotApplicable("it writes to its arguments, and executors are asked about programs in functional form")
    places = {id(tensor): index for index, tensor in enumerate(call.tensors())}
    positions = {
        proxy.name: places[id(value)]
        for proxy, value in zip(acquired.trace.inputs, acquired.inputs, strict=True)
        if id(value) in places
    }
    return tuple([Asked(line, acquired.trace.context, answer_of(executor, line), positions) for line in lines])


def is_claimed(executor: Executor, subject: Subject, call: Call) -> bool:
    """Whether the executor claims a line of the call. What is wrong with its answer is for other tests to say."""
    try:
        return any(isinstance(one.answer, Claimed) for one in ask(executor, subject, call))
    except Breach:
        return True
    except NotApplicable:
        return False


def answer_of(executor: Executor, line: BoundSymbol) -> Decision:
    """What the executor says to a line.

    Raises Breach if asking fails, computes, or draws random numbers, or if a decline has no reason.
    """
    name = line.symbol.name
    own = executor.executor if isinstance(executor, ConfiguredExecutor) else executor
    if isinstance(own, FusionExecutor):
        reason = watched(f"can_fuse for {name}", own.can_fuse, line)
        refuse_unreasoned(f"can_fuse for {name}", reason)
    answer = watched(f"asking about {name}", executor.claim, line)
    if not isinstance(answer, Claimed | Declined):
        raise Breach("answers", f"asked about {name} it answers {answer!r}, which is no decision")
    if isinstance(answer, Declined):
        refuse_unreasoned(f"the answer to {name}", answer.reason)
    return answer


def refuse_unreasoned(what: str, answer: object) -> None:
    """Raise `Breach` unless an answer is True or a reason."""
    if answer is True or (isinstance(answer, str) and answer.strip()):
        return
    raise Breach("decline reasons", f"{what} is {answer!r}: it must be True, or a text that says why not")


def watched(what: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The result of a query. Raises Breach if it raises, computes, or draws random numbers."""
    __tracebackhide__ = True
    watch = _Watch()
    with quietly():
        before = torch.get_rng_state()
        try:
            with watch:
                answer = function(*args, **kwargs)
        except Exception as error:
            raise Breach("answers", f"{what} raises {type(error).__name__}: {error}") from error
        drawn = not torch.equal(before, torch.get_rng_state())
    if watch.seen or drawn:
        computed = ", ".join(dict.fromkeys(watch.seen)) or "random numbers"
        raise Breach("pure queries", f"{what} computes {computed}; a query must look at metadata alone")
    return answer


class _Watch(TorchDispatchMode):
    """Notes the operators that compute: those on fake and meta tensors do not."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        made = [leaf for leaf in iterate_leaves((args, kwargs, result)) if isinstance(leaf, torch.Tensor)]
        if not any(isinstance(tensor, FakeTensor) or tensor.is_meta for tensor in made):
            self.seen.append(str(func))
        return result
