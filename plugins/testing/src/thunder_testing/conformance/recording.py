"""Recording of calls, to determine the operations of a call in traces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from thunder_core.contract import Recording
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_frontend.record.front_end import front_end
from thunder_testing.conformance.call import Call
from thunder_testing.conformance.failure import NotApplicable
from thunder_testing.conformance.running import quietly
from thunder_testing.conformance.subject import Subject


def record(call: Call) -> Recording:
    """The call as a trace. Raises NotApplicable if it cannot be recorded."""
    with quietly():
        try:
            acquired = front_end.record(program_of(call.function), call.args, call.kwargs)
            if acquired.raised is not None:
                raise acquired.raised
        except Exception as error:
            raise NotApplicable(f"the call cannot be recorded: {type(error).__name__}: {error}") from error
    return acquired


def ops_of(subject: Subject, acquired: Recording) -> list[BoundSymbol]:
    """The operations that belong to the subject; all operations for a program."""
    return [op for op in acquired.trace.symbols if not subject.symbols or op.symbol in subject.symbols]


def is_offered(subject: Subject, call: Call) -> bool:
    """Whether executors are queried about an operation of the subject: not if it is recorded as another, or writes."""
    try:
        ops = ops_of(subject, record(call))
    except NotApplicable:
        return False
    return not subject.symbols or any(not op.effects.mutates for op in ops)


def program_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """A program that calls ``function``."""

    def program(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return program
