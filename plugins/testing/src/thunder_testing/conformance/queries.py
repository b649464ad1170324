"""Queries of an executor for the operations of a call, and checks of its decisions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from thunder_core.executors import Claimed, Decision, Declined, Executor
from thunder_core.executors.configured import ConfiguredExecutor
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.context import Context
from thunder_core.ir.tree import tensors_in
from thunder_core.pytorch_internals import FakeTensor, TorchDispatchMode
from thunder_fusion import FusionExecutor
from thunder_testing.conformance.call import Call
from thunder_testing.conformance.failure import Breach, NotApplicable
from thunder_testing.conformance.recording import ops_of, record
from thunder_testing.conformance.running import quietly
from thunder_testing.conformance.subject import Subject


@dataclass(frozen=True, slots=True)
class Query:
    """An operation that was offered to an executor, and its decision.

    Attributes:
        op: the recorded op.
        context: the modes of the whole program.
        decision: the executor's decision.
        positions: positions of the operation's inputs among the tensors of the call, by name, if they are arguments of
            it.
    """

    op: BoundSymbol
    context: Context
    decision: Decision
    positions: Mapping[str, int] = field(default_factory=dict)


def query(executor: Executor, subject: Subject, call: Call) -> tuple[Query, ...]:
    """The operations of a recorded call that belong to the subject, with the executor's decisions.

    Raises:
        Breach: a decision is invalid, or the query has side effects.
        NotApplicable: the call has no such operation.
    """
    acquired = record(call)
    ops = ops_of(subject, acquired)
    if not ops:
        raise NotApplicable(f"the program does not record {subject.name} for this call")
    if subject.symbols and all(op.effects.mutates for op in ops):
        raise NotApplicable("it writes to its arguments, and executors only get functional programs")
    places = {id(tensor): index for index, tensor in enumerate(call.tensors())}
    positions = {
        proxy.name: places[id(value)]
        for proxy, value in zip(acquired.trace.inputs, acquired.inputs, strict=True)
        if id(value) in places
    }
    return tuple([Query(op, acquired.trace.context, decision_of(executor, op), positions) for op in ops])


def is_claimed(executor: Executor, subject: Subject, call: Call) -> bool:
    """Whether the executor claims an operation of the call. Invalid decisions count as no; other tests report them."""
    try:
        return any(isinstance(one.decision, Claimed) for one in query(executor, subject, call))
    except Breach:
        return True
    except NotApplicable:
        return False


def decision_of(executor: Executor, op: BoundSymbol) -> Decision:
    """The executor's decision for an operation.

    Raises Breach if the query raises, computes, or draws random numbers, or if a decline has no reason.
    """
    name = op.symbol.name
    unconfigured = executor.executor if isinstance(executor, ConfiguredExecutor) else executor
    if isinstance(unconfigured, FusionExecutor):
        reason = watched(f"can_fuse for {name}", unconfigured.can_fuse, op)
        refuse_unreasoned(f"can_fuse for {name}", reason)
    decision = watched(f"the query about {name}", executor.claim, op)
    if not isinstance(decision, Claimed | Declined):
        raise Breach("decisions", f"claim returns {decision!r} for {name}, not Claimed or Declined")
    if isinstance(decision, Declined):
        refuse_unreasoned(f"the reason of the decision for {name}", decision.reason)
    return decision


def refuse_unreasoned(what: str, result: object) -> None:
    """Raise `Breach` unless a result is True or a reason."""
    if result is True or (isinstance(result, str) and result.strip()):
        return
    raise Breach("decline reasons", f"{what} is {result!r}: it must be True, or a text that says why not")


def watched(what: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The result of a query. Raises Breach if it raises, computes, or draws random numbers."""
    __tracebackhide__ = True
    watch = _Watch()
    with quietly():
        before = torch.get_rng_state()
        try:
            with watch:
                result = function(*args, **kwargs)
        except Exception as error:
            raise Breach("decisions", f"{what} raises {type(error).__name__}: {error}") from error
        drawn = not torch.equal(before, torch.get_rng_state())
    if watch.seen or drawn:
        computed = ", ".join(dict.fromkeys(watch.seen)) or "random numbers"
        raise Breach("pure queries", f"{what} computes {computed}; a query must look at metadata alone")
    return result


class _Watch(TorchDispatchMode):
    """Records operators that compute, which excludes those on fake and meta tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        involved = tensors_in((args, kwargs, result))
        if not any(isinstance(tensor, FakeTensor) or tensor.is_meta for tensor in involved):
            self.seen.append(str(func))
        return result
