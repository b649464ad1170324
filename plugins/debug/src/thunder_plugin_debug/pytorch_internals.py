"""The private names of PyTorch that this plugin uses, each with its purpose."""

from __future__ import annotations

from typing import Any, Final

from thunder_core.private_names import Kind, Name, PrivateNames

ROWS: Final = (
    Name("torch.Tensor._version", "noticing arguments that lines write", name="version_of", kind=Kind.ATTRIBUTE),
)  # fmt: skip

NAMES: Final = PrivateNames(__name__, ROWS)


def __getattr__(name: str) -> Any:
    """The value of the row ``name``, which becomes an attribute of the module."""
    return NAMES.bind(name)
