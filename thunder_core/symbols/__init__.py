"""Symbols: map a call of a torch function to its operation and canonical arguments.

`thunder_core.symbols.registry.registry` holds the symbols. The tables in `tables` have a row for each common operation,
with all of its spellings: ``x.add(y)``, ``x + y`` and ``torch.add(x, y)`` are one symbol. A torch function without a
row becomes an opaque symbol (`opaque`), whose metadata, effects and derivative are derived from PyTorch. `admitted`
lists the symbols that files may name.

This module exports the functions that printed traces call, and `recorded`, for authors of operations.
"""

from thunder_core.symbols.functions import (
    delete_attribute,
    set_attribute,
    set_data,
    set_grad,
    set_requires_grad,
    setitem,
    setitem_copy,
)
from thunder_core.symbols.recording import recorded

__all__ = [
    "delete_attribute",
    "recorded",
    "set_attribute",
    "set_data",
    "set_grad",
    "set_requires_grad",
    "setitem",
    "setitem_copy",
]
