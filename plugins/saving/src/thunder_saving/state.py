"""The state of a saved program: parameters, buffers and constants, in safetensors files, and as a module.

Tensors that share a storage, strides and data types are restored: a tensor that is contiguous and has a storage of its
own is stored under its name, every other storage as bytes. A table in the manifest has the metadata of each tensor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch

from thunder_core.errors import SavedProgramError, UnsupportedError

_KINDS: Final = ("parameter", "buffer", "other buffer", "constant")
"""``other buffer`` is not persistent: state dicts lack it. A ``constant`` is no state of a module: a global tensor."""
_STORABLE: Final = frozenset(
    {torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}
    | {torch.float16, torch.bfloat16, torch.float32, torch.float64}
)
"""The data types that all versions of safetensors have."""


@dataclass(frozen=True)
class StateTensor:
    """A tensor of the state.

    Attributes:
        name: dotted, as in `named_parameters`.
        kind: one of `_KINDS`.
        value: the tensor.
    """

    name: str
    kind: str
    value: torch.Tensor


def tensors_of(module: torch.nn.Module) -> list[StateTensor]:
    """The parameters and buffers of a module; tied ones under each of their names."""
    found = []
    for owner, part in module.named_modules(remove_duplicate=False):
        prefix = f"{owner}." if owner else ""
        for name, value in part._parameters.items():
            if value is not None:
                found.append(StateTensor(prefix + name, "parameter", value))
        for name, value in part._buffers.items():
            if value is not None:
                kind = "other buffer" if name in part._non_persistent_buffers_set else "buffer"
                found.append(StateTensor(prefix + name, kind, value))
    return found


def modules_of(module: torch.nn.Module) -> dict[str, Any]:
    """The submodules by name, with ``training``; a shared one has the name of the first in place of that."""
    names: dict[int, str] = {}
    rows: dict[str, Any] = {}
    for name, part in module.named_modules(remove_duplicate=False):
        rows[name] = names.get(id(part), part.training)
        names.setdefault(id(part), name)
    return rows


# ---------------------------------------------------------------- text and bytes


def state_table(tensors: list[StateTensor]) -> tuple[list[dict[str, Any]], dict[str, torch.Tensor]]:
    """The table of the state, and the contents of the safetensors file.

    Raises:
        UnsupportedError: a tensor is none that a file can have.
    """
    rows: list[dict[str, Any]] = []
    stored: dict[str, torch.Tensor] = {}
    first: dict[int, str] = {}  # names by address of the storage
    names: dict[int, str] = {}  # names by tensor
    addresses = [_address(tensor) for tensor in tensors]
    pairs = {(address, id(tensor.value)) for tensor, address in zip(tensors, addresses, strict=True)}
    shared = Counter(address for address, _ in pairs)
    for tensor, address in zip(tensors, addresses, strict=True):
        value = tensor.value
        if id(value) in names:
            rows.append({"name": tensor.name, "kind": tensor.kind, "same": names[id(value)]})
            continue
        names[id(value)] = tensor.name
        alone = address is None or shared[address] == 1
        whole = value.is_contiguous() and value.storage_offset() == 0 and value.dtype in _STORABLE
        whole = alone and whole and value.untyped_storage().nbytes() == value.numel() * value.element_size()
        row: dict[str, Any] = {"name": tensor.name, "kind": tensor.kind, "shape": list(value.shape)}
        row |= {"dtype": str(value.dtype), "device": str(value.device), "requires_grad": value.requires_grad}
        if whole:
            stored[tensor.name] = value.detach().cpu()
        else:
            storage = tensor.name if address is None else first.setdefault(address, tensor.name)
            row |= {"stride": list(value.stride()), "offset": value.storage_offset(), "storage": storage}
            stored[f"{storage} (storage)"] = _bytes_of(value)
        rows.append(row)
    return rows, stored


def _address(tensor: StateTensor) -> int | None:
    """The address of the storage; None for an empty one. Raises UnsupportedError."""
    value = tensor.value
    if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.layout is not torch.strided:
        kind = type(value).__qualname__ if value.layout is torch.strided else f"{value.layout} tensor"
        raise UnsupportedError(
            f"{tensor.name} is a {kind}; files have plain strided tensors only",
            advice=("convert it to a plain tensor before the model is compiled",),
        )
    if value.device.type == "meta":
        raise UnsupportedError(
            f"{tensor.name} is on the meta device, and has no values to save",
            advice=("materialize the model first: thunder.materialize(model, state, device=...)",),
        )
    if value.is_quantized or value.is_conj() or value.is_neg():
        raise UnsupportedError(
            f"{tensor.name} is quantized, or a lazy conjugate or negative, which no file can have",
            advice=("convert it first: dequantize(), resolve_conj(), resolve_neg()",),
        )
    if value.requires_grad and not value.is_leaf:
        raise UnsupportedError(
            f"{tensor.name} is the result of operations that autograd records, which no file can have",
            advice=("make it a parameter or an argument, or detach it",),
        )
    return value.untyped_storage().data_ptr() or None


def _bytes_of(value: torch.Tensor) -> torch.Tensor:
    storage = value.untyped_storage()
    flat = torch.empty(0, dtype=torch.uint8, device=value.device).set_(storage, 0, (storage.nbytes(),), (1,))
    return flat.cpu()


def read_state(rows: list[Mapping[str, Any]], stored: Mapping[str, torch.Tensor]) -> list[StateTensor]:
    """The tensors of a table, from the contents of the safetensors file. Raises SavedProgramError."""
    tensors: dict[str, StateTensor] = {}
    storages: dict[tuple[str, str], torch.UntypedStorage] = {}
    for row in rows:
        name, kind = row["name"], row["kind"]
        if kind not in _KINDS or name in tensors:
            raise SavedProgramError(f"the table of the state is wrong: {name}, {kind}")
        if "same" in row:
            tensors[name] = StateTensor(name, kind, tensors[row["same"]].value)
            continue
        dtype, device = dtype_named(row["dtype"]), device_named(row["device"])
        shape = tuple(map(int, row["shape"]))
        if "storage" in row:
            key = row["storage"], str(device)
            if key not in storages:
                storages[key] = stored[f"{row['storage']} (storage)"].to(device).untyped_storage()
            geometry = int(row["offset"]), shape, tuple(map(int, row["stride"]))
            value = torch.empty(0, dtype=dtype, device=device).set_(storages[key], *geometry)
        else:
            value = stored[name].to(device)
            if value.dtype is not dtype or tuple(value.shape) != shape:
                raise SavedProgramError(f"{name} is {value.dtype} {tuple(value.shape)}, and not {dtype} {shape}")
        grad = bool(row["requires_grad"])
        value = torch.nn.Parameter(value, grad) if kind == "parameter" else value.requires_grad_(grad)
        tensors[name] = StateTensor(name, kind, value)
    return list(tensors.values())


def dtype_named(name: str) -> torch.dtype:
    """A data type by its name. Raises SavedProgramError if this PyTorch has none of this name."""
    value = getattr(torch, name.removeprefix("torch."), None)
    if not isinstance(value, torch.dtype):
        raise SavedProgramError(f"the file has tensors of {name}, which PyTorch {torch.__version__} lacks")
    return value


def device_named(name: str) -> torch.device:
    """A device of this machine. Raises SavedProgramError if there is none."""
    device = torch.device(name)
    if device.type != "cpu":
        module = getattr(torch, device.type, None)
        count = module.device_count() if module is not None and hasattr(module, "device_count") else 0
        if (device.index or 0) >= count:
            raise SavedProgramError(
                f"the file has a program for {name}, and this machine has {count} devices of type {device.type}",
                advice=("save the program on a machine with the devices of this one",),
            )
    return device


# ---------------------------------------------------------------- the module


def fill(root: torch.nn.Module, modules: Mapping[str, Any], tensors: list[StateTensor]) -> None:
    """Give a module submodules with these names, and parameters and buffers."""
    by_name = {"": root}
    for name, flag in modules.items():
        if name:
            owner, _, attribute = name.rpartition(".")
            part = by_name[flag] if isinstance(flag, str) else torch.nn.Module()
            by_name[name] = part
            by_name[owner]._modules[attribute] = part
        if not isinstance(flag, str):
            by_name[name].training = bool(flag)
    for tensor in tensors:
        if tensor.kind == "constant":
            continue
        owner, _, attribute = tensor.name.rpartition(".")
        part = by_name[owner]
        if tensor.kind == "parameter":
            part._parameters[attribute] = tensor.value  # type: ignore[assignment]
        else:
            part._buffers[attribute] = tensor.value
            if tensor.kind != "buffer":
                part._non_persistent_buffers_set.add(attribute)


def replaced_state(tensors: list[StateTensor], given: Any) -> list[StateTensor]:
    """The state with the tensors of a module or of a state dict.

    The tensors of a module are used themselves, so that its parameters get the gradients. Those of a state dict become
    parameters that share their memory.

    Args:
        tensors: the state of the file.
        given: a module, or a mapping of names to tensors.

    Raises:
        SavedProgramError: names, shapes, data types or devices differ; with all differences.
    """
    if isinstance(given, torch.nn.Module):
        found = {tensor.name: tensor.value for tensor in tensors_of(given)}
        expected = [tensor for tensor in tensors if tensor.kind != "constant"]
    else:
        found = dict(given)
        expected = [tensor for tensor in tensors if tensor.kind in ("parameter", "buffer")]
    names = [tensor.name for tensor in expected]
    problems = [f"{name} is missing" for name in names if name not in found]
    problems += [f"{name} is not in the file" for name in found if name not in set(names)]
    values: dict[str, torch.Tensor] = {}
    known: dict[int, torch.Tensor] = {}
    for tensor in expected:
        value = found.get(tensor.name)
        if value is None:
            continue
        problem = _difference(tensor.value, value, device=isinstance(given, torch.nn.Module))
        if problem:
            problems.append(f"{tensor.name}: {problem}")
            continue
        if not isinstance(given, torch.nn.Module):
            if id(tensor.value) not in known:
                value = value.detach().to(tensor.value.device)
                grad = tensor.value.requires_grad
                known[id(tensor.value)] = torch.nn.Parameter(value, grad) if tensor.kind == "parameter" else value
            value = known[id(tensor.value)]
        values[tensor.name] = value
    if problems:
        kind = "module" if isinstance(given, torch.nn.Module) else "state dict"
        raise SavedProgramError(
            f"the {kind} does not have the state of the saved program: "
            + "; ".join(problems[:12])
            + (f"; and {len(problems) - 12} other differences" if len(problems) > 12 else "")
        )
    return [StateTensor(t.name, t.kind, values.get(t.name, t.value)) for t in tensors]


def _difference(expected: torch.Tensor, value: Any, *, device: bool) -> str:
    """How a tensor differs from that of the file; empty if it can replace it."""
    if not isinstance(value, torch.Tensor):
        return f"the file has a tensor, this is a {type(value).__name__}"
    pairs = [("shape", tuple(expected.shape), tuple(value.shape)), ("dtype", expected.dtype, value.dtype)]
    if device:
        pairs.append(("device", expected.device, value.device))
    return ", ".join([f"the file has {name} {one}, this is {other}" for name, one, other in pairs if one != other])
