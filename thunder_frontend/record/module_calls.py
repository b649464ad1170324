"""Calls of modules: a module that cannot be recorded as it is, is prepared before its first call, or refused.

Lazy modules (``torch.nn.LazyLinear``) create and initialize their parameters in their first call. Graph modules of
`torch.compile` generate their ``forward`` when it is called.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from traceback import walk_tb
from typing import Any, Final, NoReturn

import torch
from torch.nn.modules.lazy import LazyModuleMixin

from thunder_core.checks.source import FunctionSource
from thunder_core.checks.stored_attributes import cached_by_class
from thunder_core.errors import RunEagerly, UnsupportedError, advice_on_plugins
from thunder_core.ir.import_paths import module_of
from thunder_core.ir.location import at
from thunder_core.ir.size import as_constant
from thunder_core.private_names import is_missing
from thunder_core.pytorch_internals import LazyGraphModule, module_backward_hook, tree_map
from thunder_core.tracing.frames import calls_program, is_internal, user_location
from thunder_core.tracing.this_thread import this_thread
from thunder_frontend.record.attempt import RecordAgain, key_of
from thunder_frontend.record.communication import SUBJECT
from thunder_frontend.record.eager_calls import call_eagerly
from thunder_frontend.record.hooks import has_backward_hooks
from thunder_frontend.record.recorder import Recorder
from thunder_frontend.record.traced_tensor import variable_of

_CHANGING: Final[Any] = (LazyGraphModule, LazyModuleMixin)
_REASON = "lazy modules of the program are initialized by its first call"


@dataclass(frozen=True)
class _Placeholder:
    """The metadata of a tensor of a recording that was abandoned."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    def tensor(self) -> torch.Tensor:
        return torch.empty(self.shape, dtype=self.dtype, device="meta")


def _before_call(recorder: Recorder, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Check a module of the program before each of its calls.

    Raises:
        RecordAgain: it is a lazy module that has to be initialized first.
    """
    if not isinstance(module, _CHANGING):
        return
    generate_code(module)
    lazy: Any = module
    if isinstance(module, LazyModuleMixin) and lazy.has_uninitialized_params():
        in_order = not any(op.effects.irremovable for op in recorder.trace.all_ops())
        values = tree_map(_without_program, (args, kwargs))
        raise RecordAgain(_REASON, partial(_initialize, module, values, in_order=in_order))


def _initialize(module: Any, values: Any, *, in_order: bool) -> None:
    """Initialize a lazy module by its first call.

    Args:
        values: the arguments of the call, with placeholders in place of tensors of the program.
        in_order: whether initializing it now draws the same random numbers as eager.

    Raises:
        RunEagerly: only an eager call can initialize the module: its class is the user's and may read values, or
            random numbers are drawn before.
    """
    if not (in_order and type(module).initialize_parameters.__module__.startswith("torch.")):
        raise RunEagerly(_REASON)
    module._infer_parameters(module, *tree_map(_tensor, values))


def generate_code(module: Any) -> None:
    """Generate the ``forward`` of a graph module that generates it at the first call."""
    if isinstance(module, LazyGraphModule):
        module.real_recompile()  # does nothing if the code exists


def _without_program(value: Any) -> Any:
    variable = variable_of(value)
    if variable is None:
        return value
    proxy = variable.proxy.with_sizes(as_constant)
    return _Placeholder(tuple(map(int, proxy.shape)), proxy.dtype)


def _tensor(value: Any) -> Any:
    return value.tensor() if isinstance(value, _Placeholder) else value


@dataclass(frozen=True)
class _Wrapping:
    """A class of `torch.distributed` that modules are prepared with, and that the core refuses.

    Attributes:
        module: the module that defines the class.
        described: a module of the class, for the error.
        recorded_by_plugins: whether there are plugins that record calls of such modules. Programs that call others run
            in eager PyTorch.
    """

    module: str
    described: str
    recorded_by_plugins: bool = False


_WRAPPINGS: Final = {
    "FSDPModule": _Wrapping(
        "torch.distributed.fsdp",
        "a module that fully_shard was applied to",
        recorded_by_plugins=True,
    ),
    "FullyShardedDataParallel": _Wrapping(
        "torch.distributed.fsdp",
        "a FullyShardedDataParallel",
    ),
    "DDP": _Wrapping(
        "torch.distributed._composable.replicate",
        "a module that replicate was applied to",
    ),
}
"""By the name of the class."""
_taken_over: Final[set[str]] = set()
_HOOKS_UNSEEN: Final = is_missing(module_backward_hook)  # without it, backward hooks of modules are not recorded


def take_over(name: str) -> None:
    """Record the calls of modules of a refused class from now on: a plugin has interceptions for its hooks.

    Raises:
        ValueError: ``name`` is not one of the refused classes of `torch.distributed`.
    """
    if name not in _WRAPPINGS:
        raise ValueError(
            f"{name} cannot be supported by a plugin, since it is not one of the refused classes: "
            f"{', '.join(_WRAPPINGS)}"
        )
    _taken_over.add(name)


@calls_program
def call_module(
    recorder: Recorder, original: Callable[..., Any], module: torch.nn.Module, /, *args: Any, **kwargs: Any
) -> Any:
    """The interception of the call of a module."""
    if _HOOKS_UNSEEN and has_backward_hooks(module):
        module_backward_hook()  # raises
    if recorder.suspension.active:
        return original(module, *args, **kwargs)
    kind: Any = type(module)
    prepared = _distributed_kind(kind)
    if prepared and prepared not in _taken_over:
        _refuse(prepared)
    _before_call(recorder, module, args, kwargs)
    eager = recorder.attempt.eager_modules
    before = len(recorder.after_calls)
    path = _path_of(recorder, module)
    outer, this_thread.module = this_thread.module, path
    try:
        if eager and key_of(module) in eager:
            return call_eagerly(recorder, module, args, kwargs)
        return original(module, *args, **kwargs)
    finally:
        this_thread.module = outer
        while prepared and len(recorder.after_calls) > before:
            recorder.after_calls.pop()()


def _path_of(recorder: Recorder, module: torch.nn.Module) -> str:
    """The path of a module as `named_modules` of the compiled module has it; of others, from a variable or a class."""
    source = recorder.mode.observer.path_to(module)
    if source is None:
        return type(module).__name__
    path = re.sub(r"\[(\w+)\]", r".\1", source.describe())
    root = source.root
    compiled = isinstance(root, FunctionSource) and isinstance(root.value, torch.nn.Module)
    return path.partition(".")[2] if compiled else path


def note_module(error: Exception) -> None:
    """Name the submodule in which an operator of PyTorch raised an exception, in a note of the exception."""
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    calls = [frame.f_locals for frame in frames if frame.f_code is call_module.__code__]
    if calls and calls[-1].get("path") and is_internal(frames[-1].f_code):
        module, args = calls[-1]["module"], map(_without_program, calls[-1]["args"])
        of_torch = module_of(type(module)).startswith("torch.nn.")  # the user's ``__repr__`` may do anything
        described = repr(module) if of_torch and not any(module.children()) else type(module).__name__
        tensors = [arg for arg in args if isinstance(arg, torch.Tensor | _Placeholder)]
        given = ", ".join([f"{tensor.dtype} {tuple(tensor.shape)}" for tensor in tensors])
        error.add_note(f"In the module {calls[-1]['path']}: {described}{f', called with {given}' if given else ''}")


@cached_by_class
def _distributed_kind(kind: Any) -> str | None:
    """The name of the class of `torch.distributed` that modules of the class ``kind`` were prepared with, or None.

    A class that is not imported yet cannot be a base of an existing class.
    """
    for name, wrapping in _WRAPPINGS.items():
        base = getattr(sys.modules.get(wrapping.module), name, None)
        if isinstance(base, type) and issubclass(kind, base):
            return name
    return None


def _refuse(name: str) -> NoReturn:
    """Refuse a module that `torch.distributed` prepared for several processes.

    In eager its hooks communicate, replace parameters and free storages, which is not recorded.

    Raises:
        RunEagerly: no plugin could record the call.
        UnsupportedError: a plugin could.
    """
    wrapping = _WRAPPINGS[name]
    if not wrapping.recorded_by_plugins:
        raise RunEagerly(f"the program calls {wrapping.described}, whose hooks communicate{at(user_location())}")
    raise UnsupportedError(
        f"{wrapping.described} cannot run inside a compiled program: its hooks, which gather parameters and reduce "
        "gradients, would run once, at compile time",
        location=user_location(),
        advice=(
            *advice_on_plugins(SUBJECT),
            "compile the modules inside of it, each by itself",
            "or leave the module to eager PyTorch",
        ),
    )
