"""The private names of PyTorch that this plugin uses: what for."""

from __future__ import annotations

from typing import Any, Final

from thunder_core.private_names import PrivateNames, Row

ROWS: Final = (Row("torch._C._dynamo.guards._reinterpret_tensor", "views without cost in compiled programs"),)

NAMES: Final = PrivateNames(__name__, ROWS)


def __getattr__(name: str) -> Any:
    """What the row ``name`` gives; the module has it as an attribute from then on."""
    return NAMES.bind(name)
