"""Compilation for calls whose arguments and weights do not exist yet."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from types import FunctionType
from typing import Any

import torch

from thunder.compiled.meta_tensors import meta_tensors, replaced
from thunder.compiled.specifications import check_specifications, is_specification, stand_in
from thunder_core.checks.tensor_guard import DEVICE, TensorGuard
from thunder_core.errors import OptionError, RunEagerly, UnsupportedError
from thunder_core.pytorch_internals import tree_leaves, tree_map
from thunder_core.runtime.cache_entry import CacheEntry
from thunder_core.runtime.program_cache import ProgramCache
from thunder_core.tracing.this_thread import this_thread

Call = tuple[tuple[Any, ...], dict[str, Any]]


def calls_of(example: Any) -> list[Call]:
    """The arguments of calls: those of a tuple, a dict, a pair of both, a tensor; or of each item of a list.

    Raises:
        OptionError: ``example`` has none of these forms.
    """
    if example is None:
        return []
    return [_call_of(one) for one in (example if isinstance(example, list) else [example])]


def _call_of(example: Any) -> Call:
    match example:
        case (tuple() as args, dict() as kwargs) if len(example) == 2 and all(isinstance(name, str) for name in kwargs):
            return args, kwargs
        case tuple():
            return example, {}
        case dict() if all(isinstance(name, str) for name in example):
            return (), example
        case torch.Tensor():
            return (example,), {}
    raise OptionError(
        f"an example is a tuple of arguments or a dict of keyword arguments, not an object of type "
        f"{type(example).__name__}",
        advice=('example=(x,), example={"input": x}, example=((x,), {"mask": mask}), or a list of these',),
    )


def precompile(
    compiled: ProgramCache, module: torch.nn.Module | None, calls: Sequence[Call], device: torch.device
) -> None:
    """Compile the programs of calls without running them.

    Tensors of the meta device, in the arguments and in modules (``module``, and those among the arguments and the
    variables that a function names), have the device ``device`` while they are recorded, so
    the guards are those of a call with tensors there. In the meantime no other thread may use these tensors.

    Args:
        module: the original of a compiled module; None for a function.

    Raises:
        OptionError: the specifications are not supported, or ``device`` is the meta device.
        RunEagerly: eager PyTorch runs such a call; with the reason.
        UnsupportedError: a program uses another tensor of the meta device.
    """
    if this_thread.recorder is not None:
        raise RunEagerly("it calls thunder.precompile")
    if not _is_supported(device):
        raise OptionError(
            f"programs cannot be compiled for {device} here: it has no data, or this PyTorch is not built for it",
            advice=('device="cpu", or that of the call',),
        )
    for args, kwargs in calls:
        entry = _compile(compiled, module, args, kwargs, device)
        for guard in entry.prologue.guards:
            if isinstance(guard, TensorGuard) and guard.expected[guard.conditions.index(DEVICE)].type == "meta":
                raise UnsupportedError(
                    f"the program of {compiled.name} uses {guard.source.describe()}, which is on the meta device and "
                    "belongs to no argument or module of it",
                    advice=("make it a buffer of the module, or pass it, or the module that has it, as an argument",),
                )


def _is_supported(device: torch.device) -> bool:
    """Whether PyTorch can compute metadata of tensors on a device; for GPUs, also on a machine without one."""
    if device.type in ("cpu", "cuda"):
        return device.type == "cpu" or torch.backends.cuda.is_built()
    return device.type != "meta" and torch.get_device_module(device).is_available()


def _variables(function: Any) -> list[Any]:
    """The values of the outer and global variables that a Python function names."""
    if not isinstance(function, FunctionType):
        return []
    variables = inspect.getclosurevars(function)
    return [*variables.nonlocals.values(), *variables.globals.values()]


def _compile(
    compiled: ProgramCache,
    module: torch.nn.Module | None,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    device: torch.device,
) -> CacheEntry:
    leaves = tree_leaves((args, kwargs))
    specifications = {id(leaf): leaf for leaf in leaves if is_specification(leaf)}
    check_specifications(list(specifications.values()), "give an example for each size")
    held = (module, *leaves, *_variables(compiled.function))
    modules = [each for each in held if isinstance(each, torch.nn.Module)]
    pairs = {id(each): (each, stand_in(each, device)) for _, each in meta_tensors(modules)}
    given = {
        name: stand_in(each, device if each.device.type == "meta" else each.device)
        for name, each in specifications.items()
        if name not in pairs
    }
    args, kwargs = tree_map(lambda value: given.get(id(value), value), (args, kwargs))
    with replaced(pairs):
        return compiled.compiled_entry(args, kwargs)
