"""PyTorch's OpInfo database as cases: each operator as function, method, operator, in place and with ``out=``.

Each differentiable operator is also a case with gradients, as function and in place.

Requires numpy and expecttest, which torch.testing imports; no other module of Thunder imports this one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from thunder_core.pytorch_internals import tree_map
from thunder_testing.compare import Arguments, assert_same_behaviour, observe
from thunder_testing.difference import Comparison
from thunder_testing.opinfo_samples import sample_inputs
from thunder_testing.outcome import Outcome, Status, outcome_of
from thunder_testing.pytorch_internals import op_db
from thunder_testing.seeding import seed_generators

SAMPLES_PER_OPERATOR = 2
# Operators whose results contain uninitialized memory.
_UNINITIALISED = frozenset(
    (
        "empty",
        "empty_like",
        "empty_permuted",
        "empty_strided",
        "new_empty",
        "new_empty_strided",
        "resize_",
        "resize_as_",
    )
)


@dataclass(frozen=True)
class Program:
    """One sample of an operator in one spelling."""

    variant: str
    sample: int
    call: Callable[..., Any]
    make_arguments: Callable[[], Arguments]


def operator_names(dtype: torch.dtype | None = torch.float32) -> list[str]:
    """Names of the operators with CPU support of ``dtype``; None: of the operators without support of float32."""
    return [
        name
        for name, operator in OPERATORS.items()
        if (_dtype(operator) is dtype if dtype else _dtype(operator) is not torch.float32)
    ]


def run_operator(
    name: str,
    compile: Callable[[Any], Any],
    *,
    samples: int = SAMPLES_PER_OPERATOR,
    seconds: int = 60,
    rtol: float = 0.0,
    atol: float = 0.0,
) -> Outcome:
    """The worst outcome of the programs of the operator's first samples; SKIPPED if eager passes none of them."""
    operator = OPERATORS[name]
    comparison = Comparison(rtol, atol, values=operator.name not in _UNINITIALISED)
    return run_programs(_programs(operator, samples), compile, comparison, seconds=seconds)


def run_programs(
    programs: Iterable[Program], compile: Callable[[Any], Any], comparison: Comparison, *, seconds: int
) -> Outcome:
    """The worst outcome of the programs that eager passes; SKIPPED if there is none."""
    worst = Outcome(Status.SKIPPED)
    for program in programs:
        if not _eager_passes(program, comparison):
            continue

        def check(program: Program = program) -> None:
            assert_same_behaviour(program.call, program.make_arguments, compile, comparison=comparison)

        outcome = outcome_of(check, seconds=seconds)
        if outcome.status > worst.status:
            note = f"  [{program.variant}, sample {program.sample}]" if outcome.message else ""
            worst = Outcome(outcome.status, outcome.headline + note + outcome.message.removeprefix(outcome.headline))
    return worst


def spelling(callee: Any) -> Any:
    """A Python function that calls ``callee``, like a user's program; None for None."""
    if callee is None:
        return None

    def program(*args: Any, **kwargs: Any) -> Any:
        return callee(*args, **kwargs)

    return program


def _programs(operator: Any, samples: int) -> Iterator[Program]:
    calls = {
        "function": spelling(operator.op),
        "method": spelling(operator.method_variant),
        "operator": spelling(operator.operator_variant),
    }
    in_place = {
        "in place": spelling(operator.inplace_variant),
        "in-place operator": spelling(operator.inplace_operator_variant),
    }
    for index, sample, make_sample in _samples(operator, _dtype(operator), samples):

        def make_arguments(make_sample: Callable[[], Any] = make_sample) -> Arguments:
            sample = make_sample()
            return Arguments(sample.input, *sample.args, **sample.kwargs)

        for variant, call in (calls if sample.broadcasts_input else calls | in_place).items():
            if call is not None:
                yield Program(variant, index, call, make_arguments)
        if operator.supports_out:
            make = _with_out(operator.op, make_arguments)
            yield Program("out=", index, spelling(operator.op), make)


def _samples(
    operator: Any, dtype: torch.dtype, count: int, *, requires_grad: bool = False
) -> Iterator[tuple[int, Any, Callable[[], Any]]]:
    """The first samples of an operator, each with its position and a function that makes it anew."""
    for index in range(count):

        def make(index: int = index) -> Any:
            inputs = sample_inputs(operator, "cpu", dtype, requires_grad=requires_grad)
            return next(itertools.islice(inputs, index, None), None)

        if (sample := make()) is None:
            return
        yield index, sample, make


def _with_out(callee: Any, make_arguments: Callable[[], Arguments]) -> Callable[[], Arguments]:
    """Arguments with an ``out`` that has the metadata of the result."""

    def make() -> Arguments:
        arguments = make_arguments()
        result = callee(*arguments.args, **arguments.kwargs)
        out = torch.empty_like(result) if isinstance(result, torch.Tensor) else tuple(map(torch.empty_like, result))
        for tensor in [out] if isinstance(out, torch.Tensor) else out:
            tensor.zero_()
        return Arguments(*arguments.args, **arguments.kwargs, out=out)

    return make


def _eager_passes(program: Program, comparison: Comparison) -> bool:
    """Whether eager runs the program and, if gradients are compared, computes gradients."""
    seed_generators(0)
    try:
        arguments = program.make_arguments()
    except Exception:  # noqa: BLE001 - whatever eager refuses is not a case
        return False
    observation = observe(program.call, None, arguments, comparison, seed=0)
    has_gradients = any(path.endswith(".grad") for path in observation.entries)
    return observation.exception is None and (has_gradients or not comparison.gradients)


def _dtype(operator: Any) -> torch.dtype:
    supported = operator.supported_dtypes("cpu")
    return torch.float32 if torch.float32 in supported else min(supported, key=str)


OPERATORS: dict[str, Any] = {operator.full_name: operator for operator in op_db if operator.supported_dtypes("cpu")}


# --- gradients

_GRADIENT_DTYPE = torch.float64
_GRADIENT_COMPARISON = Comparison(rtol=1e-7, atol=1e-7, gradients=True, gradient_rtol=1e-7, gradient_atol=1e-7)


def differentiable_operator_names() -> list[str]:
    """Names of the operators that eager differentiates in float64 on a CPU."""
    return [
        name for name, operator in OPERATORS.items() if _GRADIENT_DTYPE in operator.supported_backward_dtypes("cpu")
    ]


def run_backward(
    name: str, compile: Callable[[Any], Any], *, samples: int = SAMPLES_PER_OPERATOR, seconds: int = 60
) -> Outcome:
    """The worst outcome of the operator's programs, each called and differentiated with random cotangents.

    The results, their ``requires_grad``, and the gradient of each input are compared: whether it exists, its shape,
    dtype and values. SKIPPED if eager differentiates none of the samples.
    """
    return run_programs(_gradient_programs(OPERATORS[name], samples), compile, _GRADIENT_COMPARISON, seconds=seconds)


def _gradient_programs(operator: Any, samples: int) -> Iterator[Program]:
    in_place = operator.inplace_variant if operator.supports_inplace_autograd else None
    for index, sample, make_sample in _samples(operator, _GRADIENT_DTYPE, samples, requires_grad=True):

        def make_arguments(make_sample: Callable[[], Any] = make_sample) -> Arguments:
            sample = make_sample()
            args, kwargs = _with_leaves(((sample.input, *sample.args), sample.kwargs))
            return Arguments(*args, **kwargs)

        yield Program("function", index, spelling(operator.op), make_arguments)
        if in_place is not None and not sample.broadcasts_input:
            yield Program("in place", index, _on_copy(in_place), make_arguments)


def _on_copy(callee: Any) -> Callable[..., Any]:
    """Apply ``callee``, which writes to its first argument, to a copy: eager does not allow writes to a leaf."""

    def program(first: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return callee(first.clone(), *args, **kwargs)

    return program


def _with_leaves(values: Any) -> Any:
    """``values`` with the tensors that require grad replaced by leaves over the same memory."""
    leaves: dict[int, torch.Tensor] = {}

    def as_leaf(value: Any) -> Any:
        if not (isinstance(value, torch.Tensor) and value.requires_grad):
            return value
        return leaves.setdefault(id(value), value.detach().requires_grad_())

    return tree_map(as_leaf, values)
