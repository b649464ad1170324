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
_HOOKS_UNSEEN: Final = is_missing(module_backward_hook)  # through which backward hooks of modules are recorded


@calls_program
def call_module(
    recorder: Recorder, original: Callable[..., Any], module: torch.nn.Module, /, *args: Any, **kwargs: Any
) -> Any:
    """The interception of the call of a module."""
    if _HOOKS_UNSEEN and has_backward_hooks(module):
        module_backward_hook()  # raises
    if recorder.suspension.active:
        return original(module, *args, **kwargs)
    _refuse_distributed(module)
    first_calls.before_call(recorder, module, args, kwargs)
    if key_of(module) not in recorder.attempt.eager_modules:
        return original(module, *args, **kwargs)
    return eager_modules.call_eagerly(recorder, module, args, kwargs)


def _refuse_distributed(module: torch.nn.Module) -> None:
    """Refuse a module that `torch.distributed` prepared for several processes.

    Its hooks communicate, replace parameters and give memory back, in eager. None of that is recorded. There are no
    instances of classes that are not imported.

    Raises:
        UnsupportedError: it is such a module.
    """
    for path, names in _CLASSES.items():
        imported = sys.modules.get(path)
        for name in names:
            kind = getattr(imported, name, None)
            if isinstance(kind, type) and isinstance(module, kind):
                _refuse(name)


def _refuse(name: str) -> NoReturn:
    raise UnsupportedError(
        f"{_NAMES[name]} cannot run inside a compiled program: its hooks, which gather parameters and reduce "
        "gradients, would run once, at compile time",
        location=user_location(),
        advice=(
            "compile the modules inside of it before it is sharded, or leave it to eager PyTorch",
            "with DistributedDataParallel put it around: DistributedDataParallel(thunder.jit(module))",
        ),
    )
