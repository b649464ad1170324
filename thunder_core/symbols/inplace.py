"""In-place methods of Tensor and the functions that compute the same values out of place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

_NAMED_OTHERWISE: Final = {"normal_": "normal_functional"}


def functional_twin(method: Callable[..., Any]) -> Callable[..., Any] | None:
    """For the method ``Tensor.foo_`` the function that computes its result from the same arguments; None if unknown.

    That is ``Tensor.foo``, or the functional variant among the ATen operators, where its schemas agree.
    """
    name = getattr(method, "__name__", "")
    if not name.endswith("_") or name.endswith("__"):
        return None
    base = name[:-1]
    base = _NAMED_OTHERWISE.get(name, name[:-1])
    if not _schemas_agree(name, base):
        return None
    twin: Callable[..., Any] | None = getattr(torch.Tensor, base, None)
    return twin or torch.ops.aten.__getattr__(base)


def _schemas_agree(inplace: str, functional: str) -> bool:
    """Whether each overload of an in-place operator has a functional one with the same arguments."""
    wanted, offered = _signatures(inplace), _signatures(functional)
    return bool(wanted) and wanted.keys() <= offered.keys() and all(offered[key] == wanted[key] for key in wanted)


def _signatures(name: str) -> dict[str, list[tuple[str, str]]]:
    """Names and types of the arguments, for each overload of an ATen operator that takes a tensor first."""
    if not hasattr(torch.ops.aten, name):
        return {}
    packet = getattr(torch.ops.aten, name)
    signatures = {}
    for overload in packet.overloads():
        arguments = getattr(packet, overload)._schema.arguments
        if arguments and str(arguments[0].type) == "Tensor" and not any(item.is_out for item in arguments):
            signatures[overload] = [(item.name, str(item.type)) for item in arguments]
    return signatures
