"""The values that a line takes and gives, by their names in the trace."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from thunder_core.ir.proxy import PROXY_TYPES


def named_values(written: Any, given: Any) -> Iterator[tuple[str, Any]]:
    """Names and values, left to right; what is no proxy in the trace is left out.

    Args:
        written: arguments or output of a line, as they stand in the trace.
        given: the same when the program runs.
    """
    if isinstance(written, PROXY_TYPES):
        yield written.name, given
    elif isinstance(written, tuple | list):
        for one, other in zip(written, given, strict=True):
            yield from named_values(one, other)
    elif isinstance(written, dict):
        for key, one in written.items():
            yield from named_values(one, given[key])
    elif isinstance(written, slice):
        parts = (written.start, written.stop, written.step)
        yield from named_values(parts, (given.start, given.stop, given.step))


def named_tensors(written: Any, given: Any) -> list[tuple[str, torch.Tensor]]:
    """The tensors among them."""
    return [(name, value) for name, value in named_values(written, given) if isinstance(value, torch.Tensor)]
