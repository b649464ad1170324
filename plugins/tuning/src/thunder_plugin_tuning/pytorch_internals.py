"""The private names of PyTorch that this plugin uses, each with its purpose."""

from __future__ import annotations

from typing import Any, Final

from thunder_core.private_names import Kind, Name, PrivateNames

_HOOKS = "refusing parameters with hooks"

ROWS: Final = (
    Name("torch.Tensor._version", "noticing tensors that a program writes", name="version_of", kind=Kind.ATTRIBUTE),
    Name("torch.Tensor._backward_hooks", _HOOKS, kind=Kind.NAME_ONLY),
    Name("torch.Tensor._post_accumulate_grad_hooks", _HOOKS, kind=Kind.NAME_ONLY),
)

NAMES: Final = PrivateNames(__name__, ROWS)


def __getattr__(name: str) -> Any:
    """The value of the row ``name``, which becomes an attribute of the module."""
    return NAMES.bind(name)
