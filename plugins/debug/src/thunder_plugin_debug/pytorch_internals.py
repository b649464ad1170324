"""The private names of PyTorch that this plugin uses: what for."""

from __future__ import annotations

from typing import Any, Final

from thunder_core.private_names import Kind, PrivateNames, Row

ROWS: Final = (
    Row("torch.Tensor._version", "noticing arguments that lines write", name="version_of", kind=Kind.ATTRIBUTE),
)  # fmt: skip

NAMES: Final = PrivateNames(__name__, ROWS)


def __getattr__(name: str) -> Any:
    """What the row ``name`` gives; the module has it as an attribute from then on."""
    return NAMES.bind(name)
