"""Calls of modules: before one runs, what it cannot be recorded with is refused or done first."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final, NoReturn

import torch

from thunder_core.acquire import eager_modules, first_calls
from thunder_core.acquire.attempt import key_of
from thunder_core.acquire.module_hooks import has_backward_hooks
from thunder_core.acquire.recorder import Recorder
from thunder_core.errors import UnsupportedError
from thunder_core.private_names import is_missing
from thunder_core.pytorch_internals import module_backward_hook
from thunder_core.tracing.user_frames import calls_program, user_location

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
    first_calls.before_call(recorder, module, args, kwargs)
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
