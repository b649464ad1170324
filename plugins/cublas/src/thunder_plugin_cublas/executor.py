"""The executor: a table of PyTorch's functions for products."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, Final

import torch
import torch.nn.functional as F

from thunder_core.executors import Claim, OperatorExecutor
from thunder_plugin_cublas import checks, products
from thunder_plugin_cublas.options import CANDIDATES, CublasOptions

Function = Callable[..., Any]

FUNCTIONS: Final[tuple[tuple[Function, Function, Function], ...]] = (
    (F.linear, products.linear, checks.linear),
    (torch.matmul, products.matmul, checks.matmul),
    (torch.mm, products.mm, checks.mm),
    (torch.addmm, products.addmm, checks.addmm),
)
"""What is claimed, what runs it, and which calls are taken."""


class CublasExecutor(OperatorExecutor):
    """Runs products by algorithms that were timed.

    Args:
        options: as configured.
        device: the type of device that they run on.
    """

    def __init__(self, options: CublasOptions | None = None, device: str = "cuda") -> None:
        options = options or CublasOptions()
        limits = checks.Limits(device, options.least_operations)
        claims = [
            Claim(function, _with_candidates(run, options.candidates), partial(check, limits))
            for function, run, check in FUNCTIONS
        ]
        super().__init__("cublas", tuple(claims))


def _with_candidates(run: Function, candidates: int) -> Function:
    # A function at the top level of a module is printed by its name in traces, and they can be saved.
    return run if candidates == CANDIDATES else partial(run, candidates=candidates)


@lru_cache(maxsize=64)
def from_options(options: CublasOptions) -> CublasExecutor:
    """The executor for these options; the same one for equal ones."""
    return CublasExecutor(options)
