"""Calls of modules: before one runs, what it cannot be recorded with is refused or done first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

from thunder_core.acquire import distributed_modules, eager_modules, first_calls
from thunder_core.acquire.attempt import key_of
from thunder_core.acquire.module_hooks import has_backward_hooks
from thunder_core.acquire.recorder import Recorder
from thunder_core.private_names import is_missing
from thunder_core.pytorch_internals import module_backward_hook
from thunder_core.tracing.user_frames import calls_program

_HOOKS_UNSEEN: Final = is_missing(module_backward_hook)  # through which backward hooks of modules are recorded


@calls_program
def call_module(
    recorder: Recorder, original: Callable[..., Any], module: torch.nn.Module, /, *args: Any, **kwargs: Any
) -> Any:
    """The interception of the call of a module."""
    if _HOOKS_UNSEEN and has_backward_hooks(module):
        module_backward_hook()  # raises
    if recorder.busy:
        return original(module, *args, **kwargs)
    distributed_modules.check(module)
    first_calls.before_call(recorder, module, args, kwargs)
    if key_of(module) not in recorder.attempt.eager_modules:
        return original(module, *args, **kwargs)
    return eager_modules.call_eagerly(recorder, module, args, kwargs)
