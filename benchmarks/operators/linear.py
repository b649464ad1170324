"""Linear layers, with the limits of their dtype and of float8. Sizes are tokens, input and output features."""

from __future__ import annotations

import torch
from torch import nn

from benchmarks.operators.case import Case, Problem, normal, work_of


def linear(dtype: torch.dtype, tokens: int, inputs: int, outputs: int, *, float8: bool = False) -> Problem:
    """A linear layer inside of another module, because float8 converters replace submodules."""
    module = nn.Sequential(nn.Linear(inputs, outputs, bias=False)).to(dtype)
    work = work_of([(tokens, outputs, inputs)], [(tokens, inputs, outputs), (outputs, inputs, tokens)], float8)
    return Problem(module, (normal(tokens, inputs, dtype=dtype),), work=work)


def linear_float8(dtype: torch.dtype, tokens: int, inputs: int, outputs: int) -> Problem:
    """The same, with the limit of float8 matmuls."""
    return linear(dtype, tokens, inputs, outputs, float8=True)


CUDA = ((8192, 2048, 5632), (8192, 5632, 2048), (4096, 4096, 11008))

CASES = (
    Case("linear", "nn.Linear", linear, CUDA[::2], ((32, 64, 128),)),
    Case("linear_float8", "nn.Linear, limit of float8", linear_float8, CUDA),
)
