"""The arguments and results of an operation by their names in the trace."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from thunder_core.ir.proxy import PROXY_TYPES


def named_values(written: Any, given: Any) -> Iterator[tuple[str, Any]]:
    """Names and values from left to right; values that are not proxies in the trace are omitted.

    Args:
        written: arguments or output of an operation in the trace.
        given: the same at run time.
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
    """The tensors among `named_values`."""
    return [(name, value) for name, value in named_values(written, given) if isinstance(value, torch.Tensor)]
