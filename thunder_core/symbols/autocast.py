"""What autocast does to each symbol, from the operator lists that PyTorch documents."""

from __future__ import annotations

from collections.abc import Mapping

from thunder_core.ir.symbol import Autocast


def autocast_of(name: str) -> Mapping[str, Autocast]:
    """Autocast classes by device type, for the symbol that is printed as ``name``."""
    return {}
