"""Checks of the forward of a call: its results, its memory accesses, and its determinism."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from thunder.compiled.function import ThunderFunction
from thunder_core.executors import Declined
from thunder_testing.conformance.call import Call
from thunder_testing.conformance.differentiation import compiled_backward, cotangents_for, differentiates
from thunder_testing.conformance.failure import Breach, NotApplicable
from thunder_testing.conformance.guarded import PATTERNS, GuardedMemory
from thunder_testing.conformance.queries import Query, is_claimed, query
from thunder_testing.conformance.recording import is_offered
from thunder_testing.conformance.results import compare
from thunder_testing.conformance.running import run, tensors_of
from thunder_testing.conformance.samples import accepts
from thunder_testing.conformance.subject import Subject
from thunder_testing.conformance.tested import Tested
from thunder_testing.conformance.tolerance import same_bits
from thunder_testing.conformance.variants import with_other_values


def check_forward(tested: Tested, subject: Subject, call: Call, others: Sequence[Call] = ()) -> None:
    """Check that the compiled call equals eager PyTorch, and that the executor runs what it claims."""
    queries = query(tested.executor, subject, call)
    expected = run(call.copy())
    program = tested.compile(call)
    actual = tested.run(program, call.copy())
    compare(expected, actual, tested.value_check(subject, queries, call, tensors_of))
    tested.must_have_run(program, queries)


def check_memory(tested: Tested, subject: Subject, call: Call, others: Sequence[Call] = ()) -> None:
    """Check that forward and backward do not access memory out of bounds, write to arguments, or read uninitialized
    memory.
    """
    queries = claimed(tested, subject, call)
    requiring = tuple(call.differentiable()) if differentiates(call) else ()
    for wanted in dict.fromkeys(((), requiring)):
        outcomes = [_guarded(tested, call, wanted, queries, pattern) for pattern in PATTERNS]
        if subject.is_uninitialised or subject.has_state:
            continue
        for index, (one, other) in enumerate(zip(*outcomes, strict=True)):
            if not same_bits(one, other):
                raise Breach(
                    "memory reads",
                    f"value {index} of results and gradients depends on bytes that belong to no argument, "
                    "or that nobody wrote",
                    call=call.copy(wanted),
                )


def _guarded(
    tested: Tested, call: Call, wanted: tuple[int, ...], queries: Sequence[Query], pattern: int
) -> list[torch.Tensor]:
    """Results and gradients of a call in guarded memory."""
    guard = GuardedMemory(pattern)
    guarded_call = guard.place(call, wanted, written=any(one.op.effects.mutates for one in queries))
    try:
        entry = tested.entry(guarded_call)
        inputs = entry.prologue.function(guarded_call.args, guarded_call.kwargs)
        if inputs is None:
            raise NotApplicable("the compiled program does not serve the call that it was compiled for")
        # compiled programs do not run under such modes, so the executor's functions are called
        with guard.allocations():
            performed = tested.run(lambda *args, **kwargs: entry.run(inputs, args, kwargs), guarded_call)
            gradients = compiled_backward(performed, cotangents_for(performed.differentiable(), "dense"))
        guard.check()
    except Breach as breach:
        breach.call = breach.call or call.copy(wanted)
        raise
    return [tensor.detach() for tensor in (*performed.tensors(), *gradients) if tensor is not None]


def check_determinism(tested: Tested, subject: Subject, call: Call, others: Sequence[Call]) -> None:
    """Check that equal calls give equal bits, whatever runs in between, and do not change earlier results."""
    if subject.has_state:
        raise NotApplicable("the claim keeps a state, so that equal calls may differ")
    claimed(tested, subject, call)
    if not _same(tensors_of(call.copy()), tensors_of(call.copy())) or subject.is_uninitialised:
        raise NotApplicable("eager PyTorch gives other bits each time")
    program = tested.compile(call)
    first = _all_of(tested, program, call)
    copies = [tensor.clone() for tensor in first]
    if not _same(_all_of(tested, program, call), copies):
        raise Breach("determinism", "two equal calls give different bits")
    for other in (with_other_values(call), *others[:2]):
        if other.function is call.function and accepts(other) and is_offered(subject, other):
            _all_of(tested, program, other)
    if not _same(first, copies):
        raise Breach("results live on", "a later call of the program changes an earlier result")
    if not _same(_all_of(tested, program, call), copies):
        raise Breach("no state between calls", "a call gives other bits after calls with other arguments")
    if not _same(_all_of(tested, tested.compile(call), call), copies):
        raise Breach("determinism", "the program, compiled anew, gives different bits")


def claimed(tested: Tested, subject: Subject, call: Call) -> tuple[Query, ...]:
    """The decisions for a call. Raises `NotApplicable` if all operations are declined, with gradients and without."""
    queries = query(tested.executor, subject, call)
    variants = (call, call.copy(tuple(call.differentiable())))
    if subject.symbols and not any(is_claimed(tested.executor, subject, variant) for variant in variants):
        reasons = [one.decision.reason for one in queries if isinstance(one.decision, Declined)]
        raise NotApplicable(f"declined, because {'; '.join(dict.fromkeys(reasons))}")
    return queries


def _all_of(tested: Tested, program: ThunderFunction, call: Call) -> list[torch.Tensor]:
    """The results, and the gradients if any, computed twice from one graph."""
    performed = tested.run(program, call.copy(tuple(call.differentiable()) if differentiates(call) else ()))
    cotangents = cotangents_for(performed.differentiable(), "dense")
    gradients = compiled_backward(performed, cotangents, retain_graph=True)
    again = compiled_backward(performed, cotangents)
    if not _same([g for g in gradients if g is not None], [g for g in again if g is not None]):
        raise Breach("determinism", "two backward passes through one graph give different bits")
    return [tensor.detach() for tensor in (*performed.tensors(), *gradients) if tensor is not None]


def _same(one: Sequence[torch.Tensor], other: Sequence[torch.Tensor]) -> bool:
    return len(one) == len(other) and all(map(same_bits, one, other))
