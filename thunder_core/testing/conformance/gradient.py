"""Checks of gradients of compiled calls, against those of eager PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from thunder_core.executors import Claimed
from thunder_core.runtime.function import ThunderFunction
from thunder_core.testing.conformance.asking import Asked, ask
from thunder_core.testing.conformance.call import Call
from thunder_core.testing.conformance.failure import Breach, NotApplicable
from thunder_core.testing.conformance.results import Run, compare, compare_arguments, compare_metadata, quietly, run
from thunder_core.testing.conformance.subject import Subject
from thunder_core.testing.conformance.tested import Tested, raised
from thunder_core.testing.conformance.tolerance import same_bits

LAYOUTS = ("dense", "expanded", "transposed")
"""Of cotangents."""


def check_gradient(tested: Tested, subject: Subject, call: Call, others: Sequence[Call] = ()) -> None:
    """Gradients are those of eager PyTorch, of all inputs and of each alone, from cotangents of any layout."""
    positions = tuple(call.differentiable())
    if not differentiates(call):
        raise NotApplicable("eager PyTorch has no gradients for this call")
    alone = [(position,) for position in positions] if len(positions) > 1 else []
    for number, wanted in enumerate([positions, *alone]):
        for layout in LAYOUTS if number == 0 else LAYOUTS[:1]:
            check_gradients_of(tested, subject, call, wanted, layout)


def check_gradients_of(
    tested: Tested, subject: Subject, call: Call, wanted: tuple[int, ...], layout: str = "dense"
) -> None:
    """The same where only the tensors in those positions require grad."""
    expected = _eager(call.copy(wanted))
    if expected is None or not expected.differentiable():
        return
    asked = ask(tested.executor, subject, call.copy(wanted))
    program = tested.compile(call)
    cotangents = cotangents_for(expected.differentiable(), layout)
    given = [cotangent.clone() for cotangent in cotangents]
    try:
        actual = tested.run(program, call.copy(wanted))
        double = lambda wide: run(wide).tensors()  # noqa: E731
        compare(expected, actual, tested.value_check(subject, asked, call, double))
        _must_be_used(tested, program, asked)
        theirs = backward(expected, cotangents)
        ours = _backward(actual, cotangents)
        _compare(tested, subject, asked, call.copy(wanted), cotangents, ours, theirs)
        compare_arguments(actual.call, expected.call, "backward")
        if not all(map(same_bits, cotangents, given)):
            raise Breach("arguments unchanged", "backward writes to the gradients of the results")
    except Breach as breach:
        breach.call, breach.cotangents = call.copy(wanted), tuple(cotangents)
        raise


def differentiates(call: Call) -> bool:
    """Whether eager PyTorch has gradients for this call."""
    made = _eager(call.copy(tuple(call.differentiable())))
    if made is None or not made.differentiable():
        return False
    try:
        with quietly():
            backward(made, cotangents_for(made.differentiable(), "dense"))
    except Exception:  # noqa: BLE001 - whatever eager refuses is no case
        return False
    return True


def backward(made: Run, cotangents: Sequence[torch.Tensor], *, retain_graph: bool = False) -> list[torch.Tensor | None]:
    """The gradient of each tensor among the arguments that requires grad; None where there is none."""
    outputs, inputs = made.differentiable(), [t for t in made.call.tensors() if t.requires_grad]
    if not outputs or not inputs:
        return []
    return list(torch.autograd.grad(outputs, inputs, cotangents, retain_graph=retain_graph, allow_unused=True))


def cotangents_for(outputs: Sequence[torch.Tensor], layout: str) -> list[torch.Tensor]:
    """Random gradients of results, the same whenever asked: dense, expanded from one element, or transposed.

    Multiples of a quarter, which all floating-point types hold.
    """
    generator = torch.Generator().manual_seed(1)
    return [_cotangent(output.detach(), layout, generator) for output in outputs]


def _cotangent(output: torch.Tensor, layout: str, generator: torch.Generator) -> torch.Tensor:
    shape = tuple(output.shape)
    if layout == "expanded":
        return _quarters((1,) * output.ndim, output, generator).expand(shape)
    if layout == "transposed":
        return _quarters(shape[::-1], output, generator).permute(tuple(range(output.ndim))[::-1])
    return torch.empty_like(output).copy_(_quarters(shape, output, generator))


def _quarters(shape: tuple[int, ...], like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    made = torch.randint(1, 9, shape, generator=generator) * torch.randint(0, 2, shape, generator=generator).mul(2).sub(
        1
    )
    wide = torch.complex(made / 4, made.flip(0) / 4 if shape else made / 4) if like.is_complex() else made / 4
    return wide.to(like.device, like.dtype)


def _eager(call: Call) -> Run | None:
    try:
        return run(call)
    except Exception:  # noqa: BLE001 - whatever eager refuses is no case
        return None


def _backward(made: Run, cotangents: Sequence[torch.Tensor]) -> list[torch.Tensor | None]:
    with quietly():
        try:
            return backward(made, cotangents)
        except Exception as error:
            raise raised("backward of the compiled program", error) from error


def _compare(
    tested: Tested,
    subject: Subject,
    asked: Sequence[Asked],
    call: Call,
    cotangents: Sequence[torch.Tensor],
    ours: Sequence[torch.Tensor | None],
    theirs: Sequence[torch.Tensor | None],
) -> None:
    def double(wide: Call) -> Sequence[Any]:
        made = run(wide)
        return backward(made, [given.to(out.dtype) for given, out in zip(cotangents, made.differentiable())])

    inputs = [index for index, tensor in enumerate(call.tensors()) if tensor.requires_grad]
    check_values = tested.value_check(subject, asked, call, double)
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


def _must_be_used(tested: Tested, program: ThunderFunction, asked: Sequence[Asked]) -> None:
    """Raise `Breach` if the executor has a pair for a line that it claims, and the pair failed."""
    if program.last is None or program.last.report.training is None:
        return
    symbols = {one.line.symbol.name for one in asked if isinstance(one.answer, Claimed)}
    for derivative in program.last.report.training.derivatives:
        if derivative.symbol in symbols and derivative.reason.startswith(f"the pair of {tested.executor.name} failed"):
            raise Breach("derivative pair", f"it is not used: {derivative.reason}")
