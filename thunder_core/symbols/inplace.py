"""In-place methods of Tensor and the functions that compute the same values out of place."""

from __future__ import annotations

from typing import Final

import torch

from thunder_core.pytorch_internals import schema_of
from thunder_core.symbols.naming import Function, existing_function

# Twins whose names or schemas differ in form only.
_GIVEN: Final = {
    "normal_": "torch.ops.aten.normal_functional",
    "copy_": "torch.ops.aten.copy",
    "polygamma_": "torch.Tensor.polygamma",
    "__ilshift__": "torch.Tensor.__lshift__",
    "__irshift__": "torch.Tensor.__rshift__",
}

# These change the memory of a tensor itself, which no value expresses.
_WITHOUT_TWIN: Final = frozenset({"resize_", "resize_as_", "resize_as_sparse_", "set_", "sparse_resize_"})


def functional_twin(method: Function) -> Function | None:
    """For the method ``Tensor.foo_`` the function that computes its result from the same arguments; None if unknown.

    That is ``Tensor.foo``, or the functional variant among the ATen operators, where its schemas agree.
    """
    name = getattr(method, "__name__", "")
    if name in _GIVEN:
        return existing_function(_GIVEN[name])
    base = name[:-1]
    if name in _WITHOUT_TWIN or not name.endswith("_") or name.endswith("__") or not _schemas_agree(name, base):
        return None
    return existing_function(f"torch.Tensor.{base}") or existing_function(f"torch.ops.aten.{base}")


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
        arguments = schema_of(getattr(packet, overload)).arguments
        if arguments and str(arguments[0].type) == "Tensor" and not any(item.is_out for item in arguments):
            signatures[overload] = [(item.name, str(item.type)) for item in arguments]
    return signatures
