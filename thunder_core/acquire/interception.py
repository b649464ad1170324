"""Calls that a torch-function mode does not see, intercepted while a program is acquired.

`torch.autograd.Function.apply`, `torch.utils.checkpoint`, `torch.cond`, backward hooks of modules and the seeding
functions are plain Python to PyTorch. While at least one thread acquires a program their entry points are replaced by
versions that ask whether the calling thread is the one; every other thread gets the original.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import MethodType
from typing import Any

import torch
import torch.utils.checkpoint as torch_checkpoint
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.modules import module as torch_module
from torch.nn.modules import transformer
from torch.nn.parallel import DistributedDataParallel
from torch.utils.hooks import BackwardHook

from thunder_core.acquire import conditional, eager_modules, eager_paths, generator_state, higher_order, module_hooks
from thunder_core.acquire.active import active_recorder
from thunder_core.acquire.recorder import Recorder
from thunder_core.acquire.user_frames import user_location
from thunder_core.errors import UnsupportedError

_lock = threading.Lock()
_depth = 0
_originals: list[tuple[Any, str, Any]] = []


@contextmanager
def intercepting() -> Iterator[None]:
    """Install the interceptions for the duration, and make ``torch.compiler.is_compiling()`` true."""
    global _depth
    with _lock:
        _depth += 1
        if _depth == 1:
            _install()
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            if _depth == 0:
                _uninstall()


def intercepted(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function``, or what stands for it while it is intercepted: the program may be such an entry point itself."""
    if isinstance(function, MethodType) and function.__func__ is higher_order.APPLY:
        return MethodType(_function_apply, function.__self__)
    return function


def _install() -> None:
    _replace(torch.autograd.Function, "apply", classmethod(_function_apply))
    _replace(torch_checkpoint, "_checkpoint_without_reentrant_generator", _checkpoint)
    _replace(torch, "cond", _cond)
    _replace(torch, "manual_seed", _manual_seed)
    _replace(torch.random, "manual_seed", _manual_seed)
    for module in (torch, torch.random):
        _replace(module, "get_rng_state", _get_rng_state)
        _replace(module, "set_rng_state", _set_rng_state)
    refuse = _refuse(torch.random.seed, "torch.seed")
    _replace(torch, "seed", refuse)
    _replace(torch.random, "seed", refuse)
    _replace(torch.nn.Module, "__call__", _module_call)
    _replace(DistributedDataParallel, "forward", _data_parallel)
    _replace(saved_tensors_hooks, "__enter__", _saved_tensors_hooks)
    _replace(torch_module, "BackwardHook", _backward_hook)
    _replace(torch.nn.Module, "_maybe_warn_non_full_backward_hook", _non_full_hooks)
    _replace(torch.compiler, "_is_compiling_flag", True)
    _replace(torch.compiler, "is_compiling", eager_paths.is_compiling)
    _replace(torch.overrides, "has_torch_function", eager_paths.has_torch_function)
    _replace(torch, "_nested_tensor_from_mask_left_aligned", eager_paths.is_left_aligned)
    _replace(torch, "_nested_tensor_from_mask", eager_paths.without_padding)
    _replace(torch.nn.TransformerEncoder, "forward", eager_paths.encoder)
    _replace(transformer, "_detect_is_causal_mask", eager_paths.is_causal_mask)


def _replace(owner: Any, name: str, replacement: Any) -> None:
    _originals.append((owner, name, vars(owner)[name]))
    setattr(owner, name, replacement)


def _uninstall() -> None:
    while _originals:
        owner, name, original = _originals.pop()
        setattr(owner, name, original)


def _original(owner: Any, name: str) -> Any:
    # the first entry: `torch.random` functions are replaced under two names
    for candidate, attribute, value in _originals:
        if candidate is owner and attribute == name:
            return value
    return vars(owner)[name]


def _recording() -> Recorder | None:
    recorder = active_recorder()
    if recorder is None or recorder.busy or torch._C._functorch.peek_interpreter_stack() is not None:
        return None
    return recorder


def _function_apply(cls: type[torch.autograd.Function], *args: Any, **kwargs: Any) -> Any:
    recorder = _recording()
    if recorder is None:
        return _original(torch.autograd.Function, "apply").__func__(cls, *args, **kwargs)
    if cls is torch_checkpoint.CheckpointFunction:
        function, preserve, *operands = args
        return higher_order.checkpoint(
            recorder, function, tuple(operands), {"use_reentrant": True, "preserve_rng_state": preserve}
        )
    return higher_order.autograd_function(recorder, cls, args, kwargs)


_original_module_call = torch.nn.Module.__call__


def _module_call(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
    recorder = active_recorder()
    if recorder is None or not recorder.eager_modules or recorder.busy:
        return _original_module_call(module, *args, **kwargs)
    if eager_modules.key_of(module) not in recorder.eager_modules:
        return _original_module_call(module, *args, **kwargs)
    return eager_modules.call_eagerly(recorder, module, args, kwargs)


def _data_parallel(module: DistributedDataParallel, *args: Any, **kwargs: Any) -> Any:
    if _recording() is None:
        return _original(DistributedDataParallel, "forward")(module, *args, **kwargs)
    raise UnsupportedError(
        "DistributedDataParallel inside a compiled program would prepare its reducer once, at compile time, and "
        "average gradients in the first step alone",
        location=user_location(2),
        advice=("put it around the compiled module: DistributedDataParallel(thunder.jit(module))",),
    )


def _saved_tensors_hooks(hooks: saved_tensors_hooks) -> None:
    if _recording() is None or not torch.is_grad_enabled():
        _original(saved_tensors_hooks, "__enter__")(hooks)
        return
    raise UnsupportedError(
        f"{type(hooks).__name__} inside a compiled program would be given what is recorded, once, and not what is "
        "saved for backward",
        location=user_location(2),
        advice=("put it around the call of the compiled function: it sees what forward saves",),
    )


def _backward_hook(module: torch.nn.Module, hooks: list[Any], pre_hooks: list[Any]) -> Any:
    recorder = _recording()
    if recorder is None:
        return BackwardHook(module, hooks, pre_hooks)
    return module_hooks.RecordedModuleCall(recorder, module, hooks, pre_hooks)


def _non_full_hooks(module: torch.nn.Module, *args: Any) -> None:
    if _recording() is not None:
        module_hooks.refuse_non_full_hooks(module)
    _original(torch.nn.Module, "_maybe_warn_non_full_backward_hook")(module, *args)


def _checkpoint(
    function: Callable[..., Any],
    preserve_rng_state: bool = True,
    context_fn: Any = torch_checkpoint.noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    *args: Any,
    **kwargs: Any,
) -> Iterator[None]:
    recorder = _recording()
    if recorder is None:
        yield from _original(torch_checkpoint, "_checkpoint_without_reentrant_generator")(
            function, preserve_rng_state, context_fn, determinism_check, debug, early_stop, *args, **kwargs
        )
        return
    options: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": preserve_rng_state}
    if context_fn is not torch_checkpoint.noop_context_fn:
        options["context_fn"] = context_fn
    if determinism_check != "default":
        options["determinism_check"] = determinism_check
    chosen = torch_checkpoint._enable_checkpoint_early_stop  # by `set_checkpoint_early_stop`
    if not (early_stop if chosen is None else chosen):
        options["early_stop"] = False
    with higher_order.checkpoint_region(recorder, options):
        yield


def _cond(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Any = ()) -> Any:
    recorder = _recording()
    if recorder is None:
        return _original(torch, "cond")(pred, true_fn, false_fn, operands)
    return conditional.cond(recorder, pred, true_fn, false_fn, tuple(operands))


def _manual_seed(seed: int) -> Any:
    recorder = _recording()
    if recorder is None:
        return _original(torch, "manual_seed")(seed)
    generator_state.manual_seed(recorder, int(seed))
    return torch.default_generator


def _get_rng_state() -> torch.Tensor:
    recorder = _recording()
    if recorder is None:
        state: torch.Tensor = _original(torch, "get_rng_state")()
        return state
    return generator_state.get_rng_state(recorder, _original(torch, "get_rng_state"))


def _set_rng_state(new_state: torch.Tensor) -> None:
    recorder = _recording()
    if recorder is None:
        _original(torch, "set_rng_state")(new_state)
    else:
        generator_state.set_rng_state(recorder, _original(torch, "set_rng_state"), new_state)


def _refuse(original: Callable[..., Any], name: str) -> Callable[..., Any]:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        if _recording() is None:
            return original(*args, **kwargs)
        raise UnsupportedError(
            f"{name} inside a compiled function would run once, at compile time",
            location=user_location(2),
            advice=(f"call {name} outside the compiled function", "torch.manual_seed is supported inside"),
        )

    return refuse
