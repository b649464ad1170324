"""The private names of PyTorch that this plugin uses, each with its purpose."""

from __future__ import annotations

from typing import Any, Final

from thunder_core.private_names import Name, PrivateNames

ROWS: Final = (
    Name("torch._C._cuda_getCurrentRawStream", "streams of cuDNN's handles", name="current_raw_stream",
        only_with="torch.backends.cuda.is_built()"),
)  # fmt: skip

NAMES: Final = PrivateNames(__name__, ROWS)


def __getattr__(name: str) -> Any:
    """The value of the row ``name``, which becomes an attribute of the module."""
    return NAMES.bind(name)
