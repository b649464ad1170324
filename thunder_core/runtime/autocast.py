"""Run programs that need no autocast where the caller has it on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from thunder_core.ir.context import Context


def without_autocast(function: Callable[..., Any], context: Context) -> Callable[..., Any]:
    """``function`` with autocast off while it runs; the function itself where autocast is off anyway.

    Unlike `torch.autocast` it is no region: PyTorch's cache of converted weights, which belongs to the caller, stays.

    Args:
        function: takes positional arguments.
        context: the modes of the caller, the same in each call.
    """
    kinds = tuple(kind for kind, _ in context.autocast)
    if not kinds:
        return function

    def run(*args: Any) -> Any:
        try:
            for kind in kinds:
                torch.set_autocast_enabled(kind, False)
            return function(*args)
        finally:
            for kind in kinds:
                torch.set_autocast_enabled(kind, True)

    return run
