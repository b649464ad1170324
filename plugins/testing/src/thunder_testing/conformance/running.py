"""Calls under reproducible conditions."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from thunder_core.pytorch_internals import tree_leaves
from thunder_testing.conformance.call import Call, can_require_grad
from thunder_testing.seeding import seed_generators


@contextmanager
def quietly() -> Iterator[None]:
    """A context with a fixed seed and without warnings, which restores the state of the random generators."""
    python_state = random.getstate()
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    with torch.random.fork_rng(devices=devices), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        seed_generators(0)
        try:
            yield
        finally:
            random.setstate(python_state)


@dataclass(frozen=True, eq=False)
class Run:
    """A call and its result.

    Attributes:
        call: the call, with its arguments after the call.
        result: as returned.
    """

    call: Call
    result: Any

    def tensors(self) -> list[torch.Tensor]:
        """The tensors in the result, in order."""
        return [leaf for leaf in tree_leaves(self.result) if isinstance(leaf, torch.Tensor)]

    def differentiable(self) -> list[torch.Tensor]:
        """The tensors in the result that require grad."""
        return [tensor for tensor in self.tensors() if tensor.requires_grad]


def run(call: Call, program: Callable[..., Any] | None = None) -> Run:
    """Call with the given tensors, not with copies, eager PyTorch or a compiled program."""
    __tracebackhide__ = True
    with quietly():
        return Run(call, (program or call.function)(*call.args, **call.kwargs))


def tensors_of(call: Call) -> list[torch.Tensor]:
    """The tensors that eager PyTorch returns."""
    return run(call).tensors()


def in_double(call: Call) -> Call:
    """A copy of the call in double precision; the same tensors require grad."""

    def widened(tensor: torch.Tensor) -> torch.Tensor:
        if not can_require_grad(tensor):
            return tensor.clone()
        wide = torch.complex128 if tensor.is_complex() else torch.float64
        return tensor.detach().to(wide, copy=True).requires_grad_(tensor.requires_grad)

    return call.map_tensors(widened)
