"""Calls of modules: before one runs, what it cannot be recorded with is refused or done first.

Lazy modules (``torch.nn.LazyLinear``) make their parameters when they see their first input, and draw their values.
Graph modules of `torch.compile` generate their ``forward`` when it is called.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import torch
from torch.nn.modules.lazy import LazyModuleMixin

from thunder_core.acquire import eager_modules
from thunder_core.acquire.attempt import key_of
from thunder_core.acquire.hooks import has_backward_hooks
from thunder_core.acquire.recorder import Recorder
from thunder_core.acquire.traced_tensor import variable_of
from thunder_core.errors import EndsRecording, UnsupportedError
from thunder_core.ir.size import as_constant
from thunder_core.private_names import is_missing
from thunder_core.pytorch_internals import LazyGraphModule, module_backward_hook, tree_map
from thunder_core.tracing.user_frames import calls_program, user_location

_CHANGING: Final[Any] = (LazyGraphModule, LazyModuleMixin)
REASON = "lazy modules of the program are initialized by its first call"


class Uninitialized(EndsRecording):
    """A lazy module is called that has no parameters yet. No `Exception`: the program is not to handle it.

    Attributes:
        module: that module.
        args, kwargs: what it is called with; placeholders instead of tensors of the program.
        in_order: initializing it now draws the random numbers that eager would draw for it.
    """

    def __init__(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, in_order: bool) -> None:
        super().__init__(REASON)
        self.module = module
        self.args = args
        self.kwargs = kwargs
        self.in_order = in_order


class PreparationNeeded(EndsRecording):
    """What runs once before the first call of a module was not run yet; the program is recorded again after it.

    Attributes:
        prepare: runs it. What it changes stays.
    """

    def __init__(self, reason: str, prepare: Callable[[], None]) -> None:
        super().__init__(reason)
        self.prepare = prepare


class EagerCallNeeded(BaseException):
    """This call of the program has to be eager PyTorch's; the message says why. The program is not to handle it.

    Attributes:
        expected: the program has such calls among others, on purpose: they are no reason to warn, or to give up.
    """

    def __init__(self, reason: str, *, expected: bool = False) -> None:
        super().__init__(reason)
        self.expected = expected


@dataclass(frozen=True)
class _Placeholder:
    """The metadata of a tensor of a program that is given up."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    def tensor(self) -> torch.Tensor:
        return torch.empty(self.shape, dtype=self.dtype, device="meta")


def before_call(recorder: Recorder, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Called before each call of a module of the program.

    Raises:
        Uninitialized: it is a lazy module that is to be initialized first.
    """
    if not isinstance(module, _CHANGING):
        return
    generate_code(module)
    lazy: Any = module
    if isinstance(module, LazyModuleMixin) and lazy.has_uninitialized_params():
        lines = [line for part in recorder.trace.outwards() for line in part]
        in_order = not any(line.effects.kept for line in lines)
        given = tree_map(_without_program, (args, kwargs))
        raise Uninitialized(module, *given, in_order=in_order)


def generate_code(module: Any) -> None:
    """Have a graph module that generates its ``forward`` at the first call do so."""
    if isinstance(module, LazyGraphModule):
        module.real_recompile()  # does nothing where it is done


def initialize(needed: Uninitialized) -> None:
    """Initialize a lazy module as its first call does.

    Raises:
        EagerCallNeeded: only the call itself can: the module's class is the user's and may read values, or random
            numbers are drawn before.
    """
    module = needed.module
    if not (needed.in_order and type(module).initialize_parameters.__module__.startswith("torch.")):
        raise EagerCallNeeded(REASON)
    args, kwargs = tree_map(_tensor, (needed.args, needed.kwargs))
    module._infer_parameters(module, args, kwargs)


def _without_program(value: Any) -> Any:
    variable = variable_of(value)
    if variable is None:
        return value
    proxy = variable.proxy.with_sizes(as_constant)
    return _Placeholder(tuple(map(int, proxy.shape)), proxy.dtype)


def _tensor(value: Any) -> Any:
    return value.tensor() if isinstance(value, _Placeholder) else value


_CLASSES: Final = {
    "torch.distributed.fsdp": ("FSDPModule", "FullyShardedDataParallel"),
    "torch.distributed._composable.replicate": ("DDP",),
}
_NAMES: Final = {
    "FSDPModule": "a module that fully_shard was applied to",
    "FullyShardedDataParallel": "FullyShardedDataParallel",
    "DDP": "a module that replicate was applied to",
}
_taken_over: Final[set[str]] = set()
_HOOKS_UNSEEN: Final = is_missing(module_backward_hook)  # through which backward hooks of modules are recorded


def take_over(name: str) -> None:
    """Record the calls of modules of a class that is refused otherwise: a plugin has interceptions for its hooks.

    Raises:
        ValueError: it is no class of `torch.distributed` that is refused.
    """
    if name not in _NAMES:
        raise ValueError(f"{name} is to be taken over, and is none of the refused classes: {', '.join(_NAMES)}")
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
    before_call(recorder, module, args, kwargs)
    eager = recorder.attempt.eager_modules
    if eager and key_of(module) in eager:
        return eager_modules.call_eagerly(recorder, module, args, kwargs)
    if not prepared:
        return original(module, *args, **kwargs)
    before = len(recorder.after_calls)
    try:
        return original(module, *args, **kwargs)
    finally:
        while len(recorder.after_calls) > before:
            recorder.after_calls.pop()()


def _distributed_kind(kind: Any) -> str | None:
    """The name of the class of `torch.distributed` that modules of the class ``kind`` were prepared with, or None.

    A class that is not imported yet is no base of one that exists.
    """
    for path, names in _CLASSES.items():
        imported = sys.modules.get(path)
        for name in names:
            base = getattr(imported, name, None)
            if isinstance(base, type) and issubclass(kind, base):
                return name
    return None


def _refuse(name: str) -> NoReturn:
    """Refuse a module that `torch.distributed` prepared for several processes.

    Its hooks communicate, replace parameters and give memory back, in eager. None of that is recorded.
    """
    raise UnsupportedError(
        f"{_NAMES[name]} cannot run inside a compiled program: its hooks, which gather parameters and reduce "
        "gradients, would run once, at compile time",
        location=user_location(),
        advice=(
            "compile the modules inside of it before it is sharded, or leave it to eager PyTorch",
            "with DistributedDataParallel put it around: DistributedDataParallel(thunder.jit(module))",
            "plugins may take over such modules: `thunder plugins` lists what is installed",
        ),
    )
