"""Comparison of gradients of compiled calls with those of eager PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from thunder_testing.conformance.call import Call
from thunder_testing.conformance.differentiation import (
    LAYOUTS,
    backward,
    cancelling,
    compiled_backward,
    cotangents_for,
    differentiates,
    eager,
    eager_backward,
)
from thunder_testing.conformance.failure import Breach, NotApplicable, check_applicable
from thunder_testing.conformance.queries import Query, query
from thunder_testing.conformance.results import ValueCheck, compare, compare_arguments, compare_metadata
from thunder_testing.conformance.running import run, tensors_of
from thunder_testing.conformance.subject import Subject
from thunder_testing.conformance.tested import Tested
from thunder_testing.conformance.tolerance import same_bits


def check_gradient(tested: Tested, subject: Subject, call: Call, others: Sequence[Call] = ()) -> None:
    """Check the gradients of all inputs, and of each alone, with cotangents of each layout."""
    positions = tuple(call.differentiable())
    if not differentiates(call):
        raise NotApplicable("eager PyTorch has no gradients for this call")
    alone = [(position,) for position in positions] if len(positions) > 1 else []
    parts = [(positions, layout) for layout in LAYOUTS] + [(wanted, LAYOUTS[0]) for wanted in alone]
    check_applicable([partial(check_gradients_of, tested, subject, call, *part) for part in parts])


def check_gradients_of(
    tested: Tested, subject: Subject, call: Call, wanted: tuple[int, ...], layout: str = "dense"
) -> None:
    """Check the gradients if only the tensors at these positions require grad.

    Raises NotApplicable if eager PyTorch raises in forward or backward.
    """
    expected = eager(call.copy(wanted))
    if expected is None or not expected.differentiable():
        raise NotApplicable("eager PyTorch has no gradients for these tensors")
    queries = query(tested.executor, subject, call.copy(wanted))
    program = tested.compile(call)
    cotangents = cotangents_for(expected.differentiable(), layout)
    given = [cotangent.clone() for cotangent in cotangents]
    try:
        actual = tested.run(program, call.copy(wanted))
        compare(expected, actual, tested.value_check(subject, queries, call, tensors_of))
        tested.must_have_differentiated(program, queries)
        theirs = eager_backward(expected, cotangents)
        ours = compiled_backward(actual, cotangents)
        check_values = gradient_check(tested, subject, queries, call.copy(wanted), cotangents, layout)
        _compare(call.copy(wanted), ours, theirs, check_values)
        compare_arguments(actual.call, expected.call, "backward")
        if not all(map(same_bits, cotangents, given)):
            raise Breach("arguments unchanged", "backward writes to the gradients of the results")
    except Breach as breach:
        breach.call, breach.cotangents = call.copy(wanted), tuple(cotangents)
        raise


def gradient_check(
    tested: Tested,
    subject: Subject,
    queries: Sequence[Query],
    call: Call,
    cotangents: Sequence[torch.Tensor],
    layout: str,
) -> ValueCheck:
    """The comparison of the gradients of a call, depending on which tensors require grad."""

    def double(wide: Call) -> Sequence[Any]:
        performed = run(wide)
        return backward(performed, [given.to(out.dtype) for given, out in zip(cotangents, performed.differentiable())])

    return tested.value_check(subject, queries, call, double, scale=cancelling(cotangents, layout))


def _compare(
    call: Call,
    ours: Sequence[torch.Tensor | None],
    theirs: Sequence[torch.Tensor | None],
    check_values: ValueCheck,
) -> None:
    inputs = [index for index, tensor in enumerate(call.tensors()) if tensor.requires_grad]
    for position, (index, one, other) in enumerate(zip(inputs, ours, theirs, strict=True)):
        name = f"the gradient of tensor {index} among the arguments"
        if one is None or other is None:
            if one is not other:
                raise Breach("gradients", f"{name} is {_there(one)}; with eager PyTorch it is {_there(other)}")
            continue
        compare_metadata(name, one, other, strides=False)
        check_values(name, position, one, other)


def _there(gradient: torch.Tensor | None) -> str:
    return "missing" if gradient is None else "there"
