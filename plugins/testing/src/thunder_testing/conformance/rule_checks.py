"""The checks of a derivative rule with one call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import torch

from thunder_core.autodiff.derivatives.by_rule import fit
from thunder_testing.conformance.call import Call, can_require_grad
from thunder_testing.conformance.differentiation import LAYOUTS, cotangents_for, differentiates, eager
from thunder_testing.conformance.failure import Breach, NotApplicable, check_applicable
from thunder_testing.conformance.gradient import check_gradient, check_gradients_of
from thunder_testing.conformance.results import compare
from thunder_testing.conformance.running import Run, quietly, run, tensors_of
from thunder_testing.conformance.samples import accepts, draws
from thunder_testing.conformance.tested_rule import Applied, TestedRule
from thunder_testing.conformance.tolerance import same_bits

_MOST_ELEMENTS: Final = 64
"""The most elements for numerical derivatives by each element; for more elements, their product with random vectors."""


def check_result(tested: TestedRule, call: Call) -> None:
    """Check what the rule itself returns: the operation's result, and gradients that fit the parameters.

    Neither the rule nor its backward writes to what it was given. Gradients have the shape of the argument, or one that
    the argument broadcasts to, and the dtype of the argument or of a result.
    """
    if draws(call):
        raise NotApplicable("eager PyTorch draws random numbers for the call")
    call = tested.canonical(call)
    given = call.copy()
    applied = tested.apply(given)
    expected = run(call.copy())
    compare(expected, Run(given, applied.result), tested.value_check(tested.subject, (), call, tensors_of))
    for layout in LAYOUTS:
        cotangents = _cotangents(applied, layout)
        before = [None if one is None else one.clone() for one in cotangents]
        for name, argument, gradient in applied.gradients(cotangents):
            _check_metadata(applied, name, argument, gradient)
        for one, other in zip(cotangents, before, strict=True):
            if one is not None and other is not None and not same_bits(one, other):
                raise Breach("arguments unchanged", f"backward writes to a cotangent ({layout})")
    for index, (one, other) in enumerate(zip(given.tensors(), call.tensors(), strict=True)):
        if not same_bits(one, other):
            raise Breach("arguments unchanged", f"backward writes to tensor {index} among the arguments")


def _cotangents(applied: Applied, layout: str) -> list[torch.Tensor | None]:
    """One cotangent for each tensor of the result; None for integers."""
    tensors = applied.tensors()
    made = iter(cotangents_for([tensor for tensor in tensors if can_require_grad(tensor)], layout))
    return [next(made) if can_require_grad(tensor) else None for tensor in tensors]


def _check_metadata(applied: Applied, name: str, argument: torch.Tensor, gradient: torch.Tensor) -> None:
    if not can_require_grad(argument):
        return  # programs ignore it
    try:
        fit(gradient, argument)
    except RuntimeError as error:
        raise Breach("shape", f"the gradient of {name}: {error}") from error
    allowed = list(dict.fromkeys([argument.dtype, *[tensor.dtype for tensor in applied.tensors()]]))
    if gradient.dtype not in allowed:
        text = " or ".join(map(str, allowed))
        raise Breach("dtype", f"the gradient of {name} has the dtype {gradient.dtype}, and not {text}")


def check_gradients(tested: TestedRule, call: Call) -> None:
    """Check gradients in compiled programs: of all inputs and of each alone, with cotangents of each layout."""
    check_gradient(tested, tested.subject, call)


def check_variant(tested: TestedRule, call: Call) -> None:
    """Check the gradients of a call that is derived from another: with other strides or other shapes."""
    if not differentiates(call):
        raise NotApplicable("eager PyTorch has no gradients for this call")
    check_gradients_of(tested, tested.subject, call, tuple(call.differentiable()))


def check_integers(tested: TestedRule, call: Call) -> None:
    """Check the gradients of the other tensors while one, at a time, has integers."""
    variants = [variant for variant in _with_integers(call) if accepts(variant) and differentiates(variant)]
    if not variants:
        raise NotApplicable("eager PyTorch differentiates the call with no tensor of integers")
    check_applicable([partial(check_variant, tested, variant) for variant in variants])


def _with_integers(call: Call) -> Iterator[Call]:
    tensors = call.tensors()
    for index in range(min(len(tensors), 3)) if len(tensors) > 1 else ():
        if can_require_grad(tensors[index]):
            others = [tensor.to(torch.int64) if place == index else tensor for place, tensor in enumerate(tensors)]
            yield call.with_tensors(others, f"integers as tensor {index}")


def check_outputs(tested: TestedRule, call: Call) -> None:
    """Check gradients while a program uses one of several results only: the cotangents of the others are None."""
    performed = eager(call.copy(tuple(call.differentiable())))
    results = [] if performed is None else [one for one in performed.tensors() if one.requires_grad]
    if performed is None or len(performed.tensors()) < 2 or not results:
        raise NotApplicable("the operation has one result")
    places = [place for place, one in enumerate(performed.tensors()) if one.requires_grad]
    check_applicable([partial(check_variant, tested, _alone(call, place)) for place in places])


def _alone(call: Call, place: int) -> Call:
    def one_result(*args: Any, **kwargs: Any) -> torch.Tensor:
        return Run(call, call.function(*args, **kwargs)).tensors()[place]

    return replace(call, function=one_result, what=f"{call.what}, result {place} alone")


def check_numerically(tested: TestedRule, call: Call) -> None:
    """Compare the gradients of the rule with numerical ones (`torch.autograd.gradcheck`), in double precision."""
    call = tested.canonical(call)
    inputs = _numerical_inputs(call)

    class ByRule(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            ctx.inputs = [tensor.detach() for tensor in tensors]
            ctx.applied = tested.apply(_replaced(call, ctx.inputs))
            return tuple([result.clone() for result in _differentiable(ctx.applied.tensors())])

        @staticmethod
        def backward(ctx: Any, *cotangents: torch.Tensor) -> Any:
            return tuple(_gradients(ctx.applied, ctx.inputs, cotangents))

    def by_eager(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(_differentiable(run(_replaced(call, tensors)).tensors()))

    _check_numerically("numerical gradients", ByRule.apply, by_eager, inputs)


def check_second_derivatives(tested: TestedRule, call: Call) -> None:
    """Compare the derivatives of the rule's gradients with numerical ones: those by arguments and by cotangents."""
    call = tested.canonical(call)
    inputs = _numerical_inputs(call)
    results = _differentiable(run(_replaced(call, inputs)).tensors())
    cotangents = [cotangent.requires_grad_() for cotangent in cotangents_for(results, "dense")]
    count = len(inputs)

    def by_rule(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        applied = tested.apply(_replaced(call, tensors[:count]))
        none = torch.stack([tensor.sum() for tensor in tensors]).sum() * 0  # so that autograd sees each gradient
        return tuple([one + none for one in _gradients(applied, tensors[:count], tensors[count:])])

    def by_eager(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        outputs = _differentiable(run(_replaced(call, tensors[:count])).tensors())
        found = torch.autograd.grad(outputs, tensors[:count], tensors[count:], create_graph=True, allow_unused=True)
        return tuple([one for one in found if one is not None])

    _check_numerically("second derivatives", by_rule, by_eager, [*inputs, *cotangents])


def _numerical_inputs(call: Call) -> list[torch.Tensor]:
    """Dense copies of the tensors to differentiate by. Raises NotApplicable if numerical gradients make no sense."""
    if draws(call) or not differentiates(call):
        raise NotApplicable("eager PyTorch draws random numbers for the call, or has no gradients for it")
    tensors = [call.tensors()[position] for position in call.differentiable()]
    if any(tensor.dtype is not torch.float64 for tensor in tensors):
        raise NotApplicable("numerical gradients need double precision")
    return [tensor.detach().clone(memory_format=torch.contiguous_format).requires_grad_() for tensor in tensors]


def _check_numerically(
    rule: str, by_rule: Callable[..., Any], by_eager: Callable[..., Any], inputs: Sequence[torch.Tensor]
) -> None:
    if _gradcheck(by_eager, inputs) is not None:
        raise NotApplicable("the derivatives of eager PyTorch differ from numerical ones, too")
    problem = _gradcheck(by_rule, inputs)
    if problem is not None:
        raise Breach(rule, problem)


def _gradcheck(function: Callable[..., Any], inputs: Sequence[torch.Tensor]) -> str | None:
    """How the derivatives of a function differ from numerical ones; None if they do not."""
    fast = any(tensor.numel() > _MOST_ELEMENTS for tensor in inputs)
    with quietly():
        try:
            torch.autograd.gradcheck(function, tuple(inputs), fast_mode=fast)
        except RuntimeError as error:  # GradcheckError among others
            return " ".join(str(error).split())
    return None


def _replaced(call: Call, inputs: Sequence[torch.Tensor]) -> Call:
    """The call with other tensors at the places of those that can require grad."""
    tensors = call.tensors()
    for position, tensor in zip(call.differentiable(), inputs, strict=True):
        tensors[position] = tensor
    return call.with_tensors(tensors)


def _differentiable(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [tensor for tensor in tensors if can_require_grad(tensor)]


def _gradients(
    applied: Applied, inputs: Sequence[torch.Tensor], cotangents: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """The gradient of each input, zeros where none flows. Cotangents are those of the results that can require grad."""
    given = iter(cotangents)
    every = [next(given) if can_require_grad(tensor) else None for tensor in applied.tensors()]
    gradients = {id(tensor): torch.zeros_like(tensor) for tensor in inputs}
    for _, argument, gradient in applied.gradients(every):
        if id(argument) in gradients:
            gradients[id(argument)] = gradients[id(argument)] + fit(gradient, argument)
    return [gradients[id(tensor)] for tensor in inputs]


Check = Callable[[TestedRule, Call], None]

CHECKS: Final[Mapping[str, tuple[str, Check]]] = {
    "result": ("base", check_result),
    "gradient": ("base", check_gradients),
    "layouts": ("layouts", check_variant),
    "shapes": ("shapes", check_variant),
    "integers": ("base", check_integers),
    "outputs": ("base", check_outputs),
    "numerical": ("base", check_numerically),
    "second": ("base", check_second_derivatives),
}
"""By word in test ids: the kind of calls, and the check."""
