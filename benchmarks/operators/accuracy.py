"""Errors relative to float64 results, as multiples of eager's errors."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import nn

from benchmarks.operators.case import Problem

Results = Sequence[torch.Tensor]


def outputs_of(result: object) -> list[torch.Tensor]:
    """The tensors that a program returns."""
    return [result] if isinstance(result, torch.Tensor) else list(result)  # type: ignore[call-overload]


def parameters_of(program: object) -> list[nn.Parameter]:
    """The parameters of a module; empty for a function."""
    return list(program.parameters()) if isinstance(program, nn.Module) else []


def exact_results(problem: Problem, cotangents: Results) -> tuple[Results, Results]:
    """Outputs and gradients in float64, computed from the values of the problem's tensors."""
    arguments = [_exact(argument) for argument in problem.arguments]
    if problem.exact is not None:
        parameters = [_exact(parameter) for parameter in parameters_of(problem.program)]
        outputs = outputs_of(problem.exact(*arguments, *parameters))
    else:
        program = copy.deepcopy(problem.program)
        if isinstance(program, nn.Module):
            program.double()
        parameters = list(parameters_of(program))
        outputs = outputs_of(program(*arguments))
    inputs = [tensor for tensor in (*arguments, *parameters) if tensor.requires_grad]
    gradients = torch.autograd.grad(outputs, inputs, [cotangent.double() for cotangent in cotangents])
    return [output.detach() for output in outputs], gradients


def _exact(tensor: torch.Tensor) -> torch.Tensor:
    if not tensor.is_floating_point():
        return tensor
    return tensor.detach().double().requires_grad_(tensor.requires_grad)


def relative_errors(results: Results, exact: Results) -> list[float]:
    """For each tensor, the norm of its error divided by the norm of the exact result, in units of ``eps`` of its dtype.

    Raises:
        ValueError: the number of results or a shape differs.
    """
    errors = []
    for tensor, right in zip(results, exact, strict=True):
        if tensor.shape != right.shape:
            raise ValueError(f"a result has the shape {tuple(tensor.shape)}, not {tuple(right.shape)}")
        error = torch.linalg.vector_norm(tensor.detach().double() - right)
        scale = torch.linalg.vector_norm(right).clamp_min(torch.finfo(torch.float64).tiny)
        errors.append((error / scale).item() / torch.finfo(tensor.dtype).eps)
    return errors


def multiple(errors: Sequence[float], eager: Sequence[float]) -> float:
    """The largest ratio of an error to eager's error.

    An error of eager below a quarter of ``eps``, which a single rounding causes, counts as a quarter: a scalar such as
    a loss may be exact by chance.
    """
    return max(error / max(reference, 0.25) for error, reference in zip(errors, eager, strict=True))
