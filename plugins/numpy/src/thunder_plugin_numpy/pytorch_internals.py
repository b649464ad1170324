"""The private names of PyTorch that this plugin uses, each with its purpose."""

from __future__ import annotations

from typing import Any, Final

from thunder_core.private_names import Name, PrivateNames

_LAYER: Final = "PyTorch's implementation of NumPy's functions on tensors"

ROWS: Final = (
    Name("torch._numpy", _LAYER, name="torch_numpy"),
    Name("torch._numpy.ndarray", _LAYER, name="LayerArray"),
)

NAMES: Final = PrivateNames(__name__, ROWS)


def __getattr__(name: str) -> Any:
    """The value of the row ``name``, which becomes an attribute of the module."""
    return NAMES.bind(name)
