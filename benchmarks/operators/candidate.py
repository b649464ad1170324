"""A problem compiled by an implementation."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from benchmarks.implementations import compile_with, executors_of
from benchmarks.operators.accuracy import outputs_of, parameters_of
from benchmarks.operators.case import NotAvailable, Problem
from benchmarks.operators.claims import Claims, claims_of
from benchmarks.operators.command import LIGER


class Candidate:
    """A problem compiled by an implementation, with copies of the problem's tensors.

    Raises:
        NotAvailable: the implementation is Liger, which has no kernel for the problem.
    """

    def __init__(self, name: str, problem: Problem, cotangents: list[torch.Tensor]) -> None:
        self.name = name
        self.arguments = [_copy(argument) for argument in problem.arguments]
        # Some kernels compute gradients in forward if an argument requires grad.
        self.detached = [argument.detach() for argument in self.arguments]
        self.cotangents = [cotangent.clone() for cotangent in cotangents]
        program = copy.deepcopy(problem.program)
        if name == LIGER:
            self.program: Any = _by_liger(problem, program)
        else:
            self.program = compile_with(name, program)
        self.inputs = [tensor for tensor in (*self.arguments, *parameters_of(program)) if tensor.requires_grad]
        self._originals = list(zip(self._tensors(), [tensor.detach().clone() for tensor in self._tensors()]))

    def forward(self) -> list[torch.Tensor]:
        """Run without gradients, and return the outputs."""
        with torch.no_grad():
            return outputs_of(self.program(*self.detached))

    def both(self) -> tuple[torch.Tensor, ...]:
        """Run forward and backward, and return the gradients."""
        outputs = outputs_of(self.program(*self.arguments))
        return torch.autograd.grad(outputs, self.inputs, self.cotangents)

    def restore(self) -> None:
        """Restore tensors that the program has overwritten; some kernels write gradients to their inputs."""
        with torch.no_grad():
            for tensor, original in self._originals:
                tensor.copy_(original)

    def claims(self) -> Claims | None:
        """The claims of the implementation's executors in the last compilation; None if it has none."""
        executors = executors_of(self.name)
        if not executors:
            return None
        import thunder

        return claims_of(thunder.explain(self.program).decisions, executors)

    def _tensors(self) -> list[torch.Tensor]:
        # Only Liger's kernels overwrite their inputs.
        return [*self.arguments, *self.cotangents] if self.name == LIGER else []


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)


def _by_liger(problem: Problem, program: Any) -> Any:
    kernel = problem.liger
    if kernel is None:
        raise NotAvailable("Liger has no kernel for this operator")
    from liger_kernel.transformers import functional

    parameters = parameters_of(program) if isinstance(program, nn.Module) else []
    return lambda *arguments: kernel(functional, *arguments, *parameters)
