"""Checks of what a call computes: its result, its memory, and whether it does the same again."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from thunder_core.executors import Declined
from thunder_core.runtime.function import ThunderFunction
from thunder_testing.conformance.asking import Asked, ask, is_claimed
from thunder_testing.conformance.call import Call
from thunder_testing.conformance.differentiation import compiled_backward, cotangents_for, differentiates
from thunder_testing.conformance.failure import Breach, NotApplicable
from thunder_testing.conformance.guarded import PATTERNS, GuardedMemory
from thunder_testing.conformance.recording import is_offered
from thunder_testing.conformance.results import compare
from thunder_testing.conformance.running import run, tensors_of
from thunder_testing.conformance.samples import accepts
from thunder_testing.conformance.subject import Subject
from thunder_testing.conformance.tested import Tested
from thunder_testing.conformance.tolerance import same_bits
from thunder_testing.conformance.variants import with_other_values


def check_forward(tested: Tested, subject: Subject, call: Call, others: Sequence[Call] = ()) -> None:
    """The compiled call does what eager PyTorch does, and the executor runs it if it claims it."""
    asked = ask(tested.executor, subject, call)
    expected = run(call.copy())
    program = tested.compile(call)
    actual = tested.run(program, call.copy())
    compare(expected, actual, tested.value_check(subject, asked, call, tensors_of))
    tested.must_have_run(program, asked)


def check_memory(tested: Tested, subject: Subject, call: Call, others: Sequence[Call] = ()) -> None:
    """Neither forward nor backward writes outside of its memory, or to its arguments, or depends on what lies there."""
    asked = claimed(tested, subject, call)
    requiring = tuple(call.differentiable()) if differentiates(call) else ()
    for wanted in dict.fromkeys(((), requiring)):
        found = [_guarded(tested, call, wanted, asked, pattern) for pattern in PATTERNS]
        if subject.is_uninitialised or subject.has_state:
            continue
        for index, (one, other) in enumerate(zip(*found, strict=True)):
            if not same_bits(one, other):
                raise Breach(
                    "memory reads",
                    f"value {index} of results and gradients depends on bytes that belong to no argument, "
                    "or that nobody wrote",
                    call=call.copy(wanted),
                )


def _guarded(
    tested: Tested, call: Call, wanted: tuple[int, ...], asked: Sequence[Asked], pattern: int
) -> list[torch.Tensor]:
    """Results and gradients of one call in guarded memory."""
    guard = GuardedMemory(pattern)
    placed = guard.place(call, wanted, written=any(one.line.effects.mutates for one in asked))
    try:
        entry = tested.entry(placed)
        inputs = entry.prologue.function(placed.args, placed.kwargs)
        if inputs is None:
            raise NotApplicable("the compiled program does not serve the call that it was compiled for")
        with guard.allocations():  # compiled programs do not run under such modes: this is what they do themselves
            made = tested.run(lambda *args, **kwargs: entry.run(inputs, args, kwargs), placed)
            gradients = compiled_backward(made, cotangents_for(made.differentiable(), "dense"))
        guard.check()
    except Breach as breach:
        breach.call = breach.call or call.copy(wanted)
        raise
    return [tensor.detach() for tensor in (*made.tensors(), *gradients) if tensor is not None]


def check_determinism(tested: Tested, subject: Subject, call: Call, others: Sequence[Call]) -> None:
    """Equal calls give equal bits, whatever was called in between, and leave earlier results as they were."""
    if subject.has_state:
        raise NotApplicable("the claim keeps a state, so that equal calls may differ")
    claimed(tested, subject, call)
    if not _same(tensors_of(call.copy()), tensors_of(call.copy())) or subject.is_uninitialised:
        raise NotApplicable("eager PyTorch gives other bits each time")
    program = tested.compile(call)
    first = _all_of(tested, program, call)
    kept = [tensor.clone() for tensor in first]
    if not _same(_all_of(tested, program, call), kept):
        raise Breach("determinism", "two equal calls give different bits")
    for other in (with_other_values(call), *others[:2]):
        if other.function is call.function and accepts(other) and is_offered(subject, other):
            _all_of(tested, program, other)
    if not _same(first, kept):
        raise Breach("results live on", "a later call of the program changes an earlier result")
    if not _same(_all_of(tested, program, call), kept):
        raise Breach("no state between calls", "a call gives other bits after calls with other arguments")
    if not _same(_all_of(tested, tested.compile(call), call), kept):
        raise Breach("determinism", "the program, compiled anew, gives different bits")


def claimed(tested: Tested, subject: Subject, call: Call) -> tuple[Asked, ...]:
    """The answers for a call. Raises `NotApplicable` if all lines are declined, with gradients and without."""
    asked = ask(tested.executor, subject, call)
    variants = (call, call.copy(tuple(call.differentiable())))
    if subject.symbols and not any(is_claimed(tested.executor, subject, variant) for variant in variants):
        reasons = [one.answer.reason for one in asked if isinstance(one.answer, Declined)]
        raise NotApplicable(f"declined, because {'; '.join(dict.fromkeys(reasons))}")
    return asked


def _all_of(tested: Tested, program: ThunderFunction, call: Call) -> list[torch.Tensor]:
    """Results, and gradients where there are any, computed twice from one graph."""
    made = tested.run(program, call.copy(tuple(call.differentiable()) if differentiates(call) else ()))
    cotangents = cotangents_for(made.differentiable(), "dense")
    gradients = compiled_backward(made, cotangents, retain_graph=True)
    again = compiled_backward(made, cotangents)
    if not _same([g for g in gradients if g is not None], [g for g in again if g is not None]):
        raise Breach("determinism", "two backward passes through one graph give different bits")
    return [tensor.detach() for tensor in (*made.tensors(), *gradients) if tensor is not None]


def _same(one: Sequence[torch.Tensor], other: Sequence[torch.Tensor]) -> bool:
    return len(one) == len(other) and all(map(same_bits, one, other))
