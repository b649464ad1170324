"""The gradients of PyTorch's OpInfo database as cases: each differentiable operator as function and in place."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from thunder_core.pytorch_internals import tree_map
from thunder_testing.compare import Arguments
from thunder_testing.difference import Comparison
from thunder_testing.opinfo import OPERATORS, SAMPLES_PER_OPERATOR, Program, run_programs, spelling
from thunder_testing.opinfo_samples import sample_inputs
from thunder_testing.outcome import Outcome

DTYPE = torch.float64
_COMPARISON = Comparison(rtol=1e-7, atol=1e-7, gradients=True, gradient_rtol=1e-7, gradient_atol=1e-7)


def differentiable_operator_names() -> list[str]:
    """Names of the operators that eager differentiates in float64 on a CPU."""
    return [name for name, operator in OPERATORS.items() if DTYPE in operator.supported_backward_dtypes("cpu")]


def run_backward(
    name: str, compile: Callable[[Any], Any], *, samples: int = SAMPLES_PER_OPERATOR, seconds: int = 60
) -> Outcome:
    """The worst outcome of the operator's programs, each called and differentiated with random cotangents.

    The results, their ``requires_grad``, and the gradient of each input are compared: whether it exists, its shape,
    dtype and values. SKIPPED if eager differentiates none of the samples.
    """
    return run_programs(_programs(OPERATORS[name], samples), compile, _COMPARISON, seconds=seconds)


def _programs(operator: Any, samples: int) -> Iterator[Program]:
    in_place = operator.inplace_variant if operator.supports_inplace_autograd else None
    for index in range(samples):

        def make_sample(index: int = index) -> Any:
            inputs = sample_inputs(operator, "cpu", DTYPE, requires_grad=True)
            return next(itertools.islice(inputs, index, None), None)

        def make_arguments(make_sample: Callable[[], Any] = make_sample) -> Arguments:
            sample = make_sample()
            args, kwargs = _with_leaves(((sample.input, *sample.args), sample.kwargs))
            return Arguments(*args, **kwargs)

        if (sample := make_sample()) is None:
            return
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
