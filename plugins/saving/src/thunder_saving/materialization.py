"""`thunder.materialize`: memory and values for the tensors of a module on the meta device, in place."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import Module
from torch.nn.modules.lazy import LazyModuleMixin

from thunder.compiled.meta_tensors import exchange, meta_tensors, own_tensors, tensors_of
from thunder.compiled.module import STATES
from thunder.compiled.module_forward import compiled_of
from thunder_core.errors import OptionError, UnsupportedError
from thunder_core.passes.transform import Transform
from thunder_core.pytorch_internals import storage_identity
from thunder_saving.initialization import WrittenElements, initialize
from thunder_saving.tensor_files import TensorFiles

__all__ = ["materialize"]


def materialize(
    module: Module,
    loader: Module,
    state: Mapping[str, Any] | str | os.PathLike[str] | None,
    device: torch.device,
    dtype: torch.dtype | None,
    own: Callable[[Module], Any] | None,
) -> None:
    """Give a module its weights; see `thunder.materialize`.

    Args:
        module: the module.
        loader: the compiled module, whose transforms convert the state, or ``module``.
        state: a state dict, the path of safetensors files, or None to initialize the module.
        device, dtype: of the tensors; ``dtype`` of the floating-point ones, None for theirs.
        own: initializes the tensors that ``state`` lacks, in place of the module's methods.
    """
    if isinstance(state, str | os.PathLike):
        state = TensorFiles(state)
    if state is not None and not isinstance(state, Mapping):
        raise OptionError(
            f"the state of a module is a state dict or a path, and not an object of type {type(state).__name__}"
        )
    names = tensors_of(module)
    _check_supported(module, names)
    with torch.inference_mode(False), torch.no_grad():
        if state is not None:
            loader = _loader(module, loader, state)
            stored = module.state_dict(keep_vars=True)
            state = _with_tied(state, stored)
            _check_state(module, loader, stored, state)
        with _exchanged(module, names, device, dtype) as memory:
            _initialize(module, memory, device, own, loaded=() if state is None else stored.values())
            if state is not None:
                _load(loader, module.state_dict(keep_vars=True), state)
            if unknown := meta_tensors([module]):
                raise UnsupportedError(
                    f"these tensors are still on the meta device: {', '.join([name for name, _ in unknown])}",
                    advice=("assign tensors with data to them in initialize=",),
                )
    for part in module.modules():
        if isinstance(part, torch.nn.RNNBase):
            torch.nn.RNNBase.flatten_parameters(part)


def _check_supported(module: Module, names: Mapping[str, torch.Tensor]) -> None:
    """Raise UnsupportedError if the module has tensors that cannot be materialized."""
    lazy = [
        name
        for name, part in module.named_modules()
        if isinstance(part, LazyModuleMixin) and part.has_uninitialized_params()  # type: ignore[misc]
    ]
    if lazy:
        raise UnsupportedError(
            f"the shapes of these lazy modules are unknown: {', '.join(lazy)}",
            advice=("call the model once on the meta device first",),
        )
    others = [
        f"{name} ({type(each).__qualname__})"
        for name, each in names.items()
        if each.layout is not torch.strided
        or each.is_quantized
        or type(each).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__
    ]
    if others:
        raise UnsupportedError(
            f"plain strided tensors can be materialized, and these are others: {', '.join(others)}",
            advice=("for fully_shard and other wrapper subclasses: module.to_empty(device=...), then load the state",),
        )


# ---------------------------------------------------------------- the state


def _with_tied(state: Mapping[str, Any], stored: Mapping[str, torch.Tensor]) -> Mapping[str, Any]:
    """The state, in which a tensor with several names has all of them if it has one.

    Raises:
        OptionError: a tensor has different values under two names.
    """
    tied: dict[int, list[str]] = {}
    for name, value in stored.items():
        tied.setdefault(id(value), []).append(name)
    added: dict[str, str] = {}
    for group in tied.values():
        given = [name for name in group if name in state]
        added |= {name: given[0] for name in group if given and name not in state}
        for other in given[1:]:
            first, second = state[given[0]], state[other]
            if first is not second and not (first.shape == second.shape and torch.equal(first, second)):
                raise OptionError(
                    f"{given[0]} and {other} are one tensor of the model, and the state has different values for them",
                    advice=("untie them in the model, or leave one of them out of the state",),
                )
    return _Tied(state, added) if added else state


class _Tied(Mapping[str, Any]):
    """A state with further names for some of its tensors."""

    def __init__(self, state: Mapping[str, Any], added: Mapping[str, str]) -> None:
        self.state, self.added = state, added
        self._metadata = getattr(state, "_metadata", None)

    def __getitem__(self, name: str) -> Any:
        return self.state[self.added.get(name, name)]

    def __iter__(self) -> Iterator[str]:
        yield from self.state
        yield from self.added

    def __len__(self) -> int:
        return len(self.state) + len(self.added)


def _loader(module: Module, compiled: Module, state: Mapping[str, Any]) -> Module:
    """The module whose ``load_state_dict`` gets the state: the compiled one only if it converts states."""
    if module is compiled:
        return module
    converts = any(
        type(each).on_load_state_dict is not Transform.on_load_state_dict
        for each in compiled_of(compiled).settings.transforms
    )
    return compiled if converts or any(name.startswith(STATES) for name in state) else module


def _is_plain(module: Module, loader: Module) -> bool:
    """Whether loading a state copies each entry into the tensor of its name, and does nothing else."""
    return type(loader).load_state_dict is Module.load_state_dict and all(
        (type(part)._load_from_state_dict is Module._load_from_state_dict or _is_pytorchs(part))
        and type(part).set_extra_state is Module.set_extra_state
        and not part._load_state_dict_pre_hooks
        and not part._load_state_dict_post_hooks
        for part in module.modules()
    )


def _is_pytorchs(part: Module) -> bool:
    return type(part)._load_from_state_dict.__module__.startswith("torch.nn.modules.")


def _check_state(module: Module, loader: Module, stored: Mapping[str, torch.Tensor], state: Mapping[str, Any]) -> None:
    """Raise for a state that does not fit, before there is memory for it where that is possible.

    Raises:
        RuntimeError: PyTorch's, with all names that are missing, unexpected, or have another shape.
        OptionError: entries have no values, or those of another kind of number.
    """
    tensors = {name: each for name in state if isinstance(each := state[name], torch.Tensor)}
    pairs = [(name, stored[name], each) for name, each in tensors.items() if name in stored]
    problems = [f"{name} is on the meta device" for name, _, each in pairs if each.device.type == "meta"]
    problems += [
        f"{name} is {each.dtype}, and {own.dtype} in the model"
        for name, own, each in pairs
        if _kind(own) != _kind(each)
    ]
    if problems:
        raise OptionError(f"the state does not fit: {'; '.join(problems)}")
    if _is_plain(module, loader) and all(each.device.type == "meta" for each in stored.values()):
        empty: OrderedDict[str, Any] = OrderedDict((name, _without_data(each)) for name, each in state.items())
        empty._metadata = getattr(state, "_metadata", {})  # type: ignore[attr-defined]
        with torch.device("meta"):  # for entries that modules add
            module.load_state_dict(empty)


def _kind(tensor: torch.Tensor) -> str:
    kinds = (tensor.dtype.is_floating_point, tensor.dtype.is_complex, tensor.dtype is torch.bool)
    return next((kind for kind, holds in zip(("floating", "complex", "bool"), kinds, strict=True) if holds), "integer")


def _without_data(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return torch.empty(value.shape, dtype=value.dtype, device="meta")


def _load(loader: Module, stored: Mapping[str, torch.Tensor], state: Mapping[str, Any]) -> None:
    files, names = (state.state, state.added) if isinstance(state, _Tied) else (state, {})
    same = state.keys() == stored.keys() and all(stored[name].shape == state[name].shape for name in stored)
    if same and isinstance(files, TensorFiles) and _is_plain(loader, loader):
        done = set()
        for name, tensor in stored.items():
            if id(tensor) not in done:
                files.read_into(names.get(name, name), tensor)
                done.add(id(tensor))
    else:
        loader.load_state_dict(state)


# ---------------------------------------------------------------- memory and initialization


@dataclass(frozen=True)
class _Memory:
    """The memory that the tensors of a module have been given.

    Attributes:
        new: the storages of tensors that were on the meta device, which have no values yet: each as a tensor.
        copies: of each tensor that had data before, with a tensor of that data.
    """

    new: list[torch.Tensor]
    copies: list[tuple[torch.Tensor, torch.Tensor]]

    def restore(self) -> None:
        """Write the data that tensors had before. Expanded tensors cannot have been written."""
        for tensor, copy in self.copies:
            if not any(step == 0 and size > 1 for step, size in zip(tensor.stride(), tensor.shape, strict=True)):
                tensor.copy_(copy)


@contextmanager
def _exchanged(
    module: Module, names: Mapping[str, torch.Tensor], device: torch.device, dtype: torch.dtype | None
) -> Iterator[_Memory]:
    """A context in which the tensors of a module have memory on a device. If it raises, the module is as before."""
    parts = [(part, dict(vars(part))) for part in module.modules()]
    tables: list[tuple[dict[str, Any], dict[str, Any]]] = [
        (table, dict(table)) for part, _ in parts for table in (part._parameters, part._buffers)
    ]
    memory = _Memory([], [])
    pairs: list[tuple[torch.Tensor, torch.Tensor]] = []
    try:
        for tensor, content in _contents(names, device, dtype, memory):
            content.requires_grad_(tensor.requires_grad)
            exchange(tensor, content)
            pairs.append((tensor, content))
        yield memory
    except BaseException:
        memory.restore()
        for pair in reversed(pairs):
            exchange(*pair)
        for table, values in tables:
            table.clear()
            table.update(values)
        for part, attributes in parts:
            vars(part).clear()
            vars(part).update(attributes)
        raise


def _contents(
    names: Mapping[str, torch.Tensor], device: torch.device, dtype: torch.dtype | None, memory: _Memory
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """For each tensor its new content. Those that share a storage on the meta device share one afterwards."""
    unique = {id(tensor): (name, tensor) for name, tensor in reversed(list(names.items()))}
    storages: dict[int, dict[str, torch.Tensor]] = {}
    for name, tensor in [pair for pair in reversed(unique.values()) if pair[1].device.type == "meta"]:
        storages.setdefault(storage_identity(tensor.untyped_storage()), {})[name] = tensor
    present = [tensor for _, tensor in unique.values() if tensor.device.type != "meta"]
    for group in storages.values():
        first = next(iter(group.values()))
        if len(group) == 1:
            base = torch.empty_strided(first.shape, first.stride(), dtype=_dtype(first, dtype), device=device)
            yield first, base
            memory.new.append(first)
            continue
        if len({tensor.dtype for tensor in group.values()}) > 1:
            raise UnsupportedError(
                f"these tensors share memory and have different dtypes: {', '.join(group)}",
                advice=("give each its own memory before the model is materialized",),
            )
        size = first.untyped_storage().nbytes() // first.element_size()
        base = torch.empty(size, dtype=_dtype(first, dtype), device=device)
        memory.new.append(base)
        for tensor in group.values():
            yield tensor, base.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()).detach()
    for tensor in present:
        content = tensor.detach().to(device, _dtype(tensor, dtype), copy=True)
        memory.copies.append((tensor, content))
        if (content.device, content.dtype) != (tensor.device, tensor.dtype):
            yield tensor, content


def _dtype(tensor: torch.Tensor, dtype: torch.dtype | None) -> torch.dtype:
    return dtype if dtype is not None and tensor.dtype.is_floating_point else tensor.dtype


def _initialize(
    module: Module,
    memory: _Memory,
    device: torch.device,
    own: Callable[[Module], Any] | None,
    loaded: Collection[torch.Tensor],
) -> None:
    """Have the module initialize the tensors without values.

    Args:
        loaded: the tensors that get values afterwards, and need not be initialized. If there are any, no random
            numbers are consumed.

    Raises:
        UnsupportedError: tensors still have no values; with their names.
    """
    later = {id(tensor) for tensor in loaded}
    written = WrittenElements(memory.new)

    def lacking(part: Module) -> list[str]:
        tensors = own_tensors(part)
        return [name for name, each in tensors if id(each) not in later and written.lacks_values(each)]

    if any(lacking(part) for part in module.modules()):
        before = [(table, dict(table)) for part in module.modules() for table in (part._parameters, part._buffers)]
        devices = [device] if device.type != "cpu" else []
        kind = device.type if devices else "cuda"
        with torch.random.fork_rng(devices, device_type=kind, enabled=bool(later)), torch.device(device), written:
            initialize(module, lambda part: bool(lacking(part)), whole=not later, own=own)
        memory.restore()
        _cast_replaced(before)
    unknown = {
        f"{owner}.{name}" if owner else name: type(part).__qualname__
        for owner, part in module.named_modules()
        for name in lacking(part)
    }
    if unknown:
        raise UnsupportedError(
            "no method of the model writes these tensors"
            + (", and the state does not have them: " if later else ": ")
            + ", ".join([f"{name} ({kind})" for name, kind in unknown.items()]),
            advice=(
                "define `reset_parameters` in these classes, which computes them",
                "or pass initialize=function, which gets the model and writes them",
            ),
        )


def _cast_replaced(tables: list[tuple[dict[str, Any], dict[str, Any]]]) -> None:
    """Give parameters and buffers that were replaced by others the device and the dtype of those."""
    for table, before in tables:
        for name, value in table.items():
            old = before.get(name)
            if value is not None and old is not None and value is not old:
                cast = value.detach().to(old.device, old.dtype)
                is_parameter = isinstance(value, torch.nn.Parameter)
                table[name] = torch.nn.Parameter(cast, value.requires_grad) if is_parameter else cast
