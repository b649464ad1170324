"""Errors against float64, as multiples of eager's own."""

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
    """Those of a module; none of a function."""
    return list(program.parameters()) if isinstance(program, nn.Module) else []


def exact_results(problem: Problem, cotangents: Results) -> tuple[Results, Results]:
    """Outputs and gradients in float64, of the very numbers that the problem has."""
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
    wanted = [tensor for tensor in (*arguments, *parameters) if tensor.requires_grad]
    gradients = torch.autograd.grad(outputs, wanted, [cotangent.double() for cotangent in cotangents])
    return [output.detach() for output in outputs], gradients


def _exact(tensor: torch.Tensor) -> torch.Tensor:
    if not tensor.is_floating_point():
        return tensor
    return tensor.detach().double().requires_grad_(tensor.requires_grad)


def relative_errors(found: Results, exact: Results) -> list[float]:
    """The norm of the error divided by that of the exact result, of each tensor, in units of its dtype's rounding.

    Raises:
        ValueError: another number of results, or another shape: it is not the same computation.
    """
    errors = []
    for tensor, right in zip(found, exact, strict=True):
        if tensor.shape != right.shape:
            raise ValueError(f"a result has the shape {tuple(tensor.shape)}, not {tuple(right.shape)}")
        error = torch.linalg.vector_norm(tensor.detach().double() - right)
        scale = torch.linalg.vector_norm(right).clamp_min(torch.finfo(torch.float64).tiny)
        errors.append((error / scale).item() / torch.finfo(tensor.dtype).eps)
    return errors


def multiple(errors: Sequence[float], eager: Sequence[float]) -> float:
    """The largest ratio to eager's errors.

    An error of eager's below a quarter of the distance of two numbers counts as that: what is rounded once has it, and
    a single number, as a loss is one, may be exact by chance.
    """
    return max(error / max(own, 0.25) for error, own in zip(errors, eager, strict=True))
