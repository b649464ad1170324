"""Calls that a torch-function mode does not see, intercepted while a program is acquired.

`torch.autograd.Function.apply`, `torch.utils.checkpoint`, `torch.cond`, backward hooks of modules and the seeding
functions are plain Python to PyTorch, as are `print` and loggers. While at least one thread acquires a program their
entry points are replaced by versions that ask whether the calling thread is the one; every other thread gets the
original. Of Python functions the code is replaced, so that it does not matter through which name the program has them;
names of the program's own for functions of C get stand-ins (`thunder_core/guards/stand_ins.py`), and where that is not
possible, their call is refused.
"""

from __future__ import annotations

import builtins
import importlib
import inspect
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType, FunctionType, MethodType
from typing import Any, Final

import torch
import torch.utils.checkpoint as torch_checkpoint
from torch.autograd import forward_ad
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.parallel import DistributedDataParallel
from torch.utils.hooks import BackwardHook, RemovableHandle

from thunder_core.acquire import (
    conditional,
    distributed_modules,
    eager_modules,
    eager_paths,
    first_calls,
    generator_state,
    higher_order,
    hook_handles,
    module_hooks,
    optimizer_updates,
    printing,
    subclass_views,
    subclasses,
    values,
)
from thunder_core.acquire.active import active_recorder, set_active_recorder
from thunder_core.acquire.attempt import key_of
from thunder_core.acquire.recorder import Recorder
from thunder_core.acquire.replaced_code import ReplacedCode, copy_of, has_code, is_replaced
from thunder_core.errors import UnsupportedError
from thunder_core.guards.code_kinds import CodeKind, kind_of
from thunder_core.guards.stand_ins import FUNCTIONS_OF_C
from thunder_core.ir.symbol import Symbol
from thunder_core.ir.tree import iterate_leaves
from thunder_core.private_names import is_missing
from thunder_core.pytorch_internals import (
    NAMES,
    checkpoint_without_reentrant_generator,
    checkpoint_without_reentrant_generator_impl,
    detect_is_causal_mask,
    disable_current_modes,
    enable_checkpoint_early_stop,
    is_compiling_flag,
    is_functorch_wrapped_tensor,
    module_backward_hook,
    nested_tensor_from_mask,
    nested_tensor_from_mask_left_aligned,
    peek_interpreter_stack,
)
from thunder_core.symbols import generators
from thunder_core.tracing.user_frames import calls_program, user_location

_lock = threading.Lock()
_depth = 0
_CALLER: Final = 2  # the frame of who calls a function, seen from what replaces its code
_distributed: tuple[type, ...] = ()
_originals: dict[tuple[Any, str], Any] = {}
_PRINT: Final = builtins.print
_undo: list[Callable[[], None]] = []


@contextmanager
def intercepting() -> Iterator[None]:
    """Install the interceptions for the duration, and make ``torch.compiler.is_compiling()`` true.

    Functions that `torch.compile` compiled run uncompiled meanwhile: what they call is part of the program.
    """
    global _depth
    with _lock:
        if _depth == 0:
            _install()
        _depth += 1
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            if _depth == 0:
                _uninstall()


def intercepted(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function``, or what stands for it while it is intercepted: the program may be such an entry point itself."""
    stand_in: Callable[..., Any] | None = stand_in_of(function)
    return function if stand_in is None else stand_in


def stand_in_of(function: Any) -> Any:
    """What stands for a function of C that is intercepted, under whatever name the program has it; None for others."""
    if type(function) in FUNCTIONS_OF_C and function in _OF_C:
        return _OF_C[function]
    if higher_order.is_apply(function):
        return MethodType(_function_apply, function.__self__)
    return None


def original_of(value: Any) -> Any:
    """The function of C that ``value`` stands for while a program is recorded; any other object itself."""
    if type(value) is MethodType and value.__func__ is _function_apply:
        cls: Any = value.__self__
        return higher_order.apply_of(cls)
    return _STAND_INS.get(value, value) if type(value) is FunctionType else value


def _install() -> None:
    global _distributed
    _replace(torch.autograd.Function, "apply", classmethod(_function_apply))
    _shadow(torch.autograd.function.BackwardCFunction, "__init__", _context_made)
    _replace_private(*_CHECKPOINT)
    _replace(torch, "cond", _cond)
    _replace(torch, "_assert", _assert)
    for module, name, symbol in generators.WRITES:
        _replace(module, name, _write_state(module, name, symbol))
    for module, name, symbol in generators.READS:
        _replace(module, name, _read_state(module, name, symbol))
    _replace(torch.random, "initial_seed", _initial_seed)
    _replace(torch.random, "seed", _refuse_seed)
    _replace(torch, "set_default_device", _set_default_device)
    for name in ("__getitem__", "__setitem__", "tolist", "fill_", "copy_"):
        _replace(torch.storage.TypedStorage, name, _refuse_elements(name))
    _shadow(torch.UntypedStorage, "__new__", staticmethod(_new_storage))
    _shadow(torch.UntypedStorage, "from_buffer", staticmethod(_storage_from_buffer))
    _replace_collectives()
    _replace(builtins, "print", _print)
    _replace(torch, "set_printoptions", _set_printoptions)
    for name, level in printing.LEVELS.items():
        _replace(logging.Logger, name, _log_at(name, level))
    _replace(logging.Logger, "log", _log)
    _shadow(torch.Tensor, "as_subclass", _as_subclass)
    _shadow(torch.Tensor, "_make_subclass", staticmethod(_make_subclass))
    _replace(torch.nn.Module, "__call__", _module_call)
    for module, name, update in optimizer_updates.UPDATES:
        _replace(module, name, _update(module, name, update))
    _replace(DistributedDataParallel, "forward", _data_parallel)
    _distributed = distributed_modules.loaded_classes()
    dtensor = distributed_modules.loaded_dtensor()
    if dtensor is not None:
        _replace(dtensor, "from_local", staticmethod(_from_local))
    _replace(saved_tensors_hooks, "__enter__", _saved_tensors_hooks)
    _replace(forward_ad, "enter_dual_level", _enter_dual_level)
    _replace(RemovableHandle, "remove", _remove_hook)
    _replace_private(module_backward_hook, _backward_hook)
    _replace_private(is_compiling_flag, True)
    _replace_stance()
    _replace(torch.compiler, "is_compiling", eager_paths.is_compiling)
    for asks in eager_paths.OVERRIDES:
        _replace(torch.overrides, asks.__name__, asks)
    _replace(importlib._bootstrap, "_find_and_load", _find_and_load)
    _replace_private(nested_tensor_from_mask_left_aligned, eager_paths.is_left_aligned)
    _replace_private(nested_tensor_from_mask, eager_paths.without_padding)
    _replace(torch.nn.TransformerEncoder, "forward", eager_paths.encoder)
    _replace_private(detect_is_causal_mask, eager_paths.is_causal_mask)


def _replace(owner: Any, name: str, replacement: Any) -> None:
    held = vars(owner)[name]
    if is_replaced(held):  # another owner has it, too
        return
    if has_code(held):
        replaced = ReplacedCode(held, getattr(replacement, "__func__", replacement))
        _originals[owner, name] = replaced.original
        _undo.append(replaced.restore)
        return
    _originals[owner, name] = held
    _undo.append(partial(setattr, owner, name, held))
    setattr(owner, name, replacement)


def _replace_private(entry_point: Any, replacement: Any) -> None:
    """Replace what the installed PyTorch has; programs that need the others are refused where they do."""
    if not is_missing(entry_point):
        _replace(entry_point.owner, entry_point.name, replacement)


def _shadow(owner: Any, name: str, replacement: Any) -> None:
    """Like `_replace` for what ``owner`` inherits."""
    _undo.append(partial(delattr, owner, name))
    setattr(owner, name, replacement)


def _uninstall() -> None:
    while _undo:
        _undo.pop()()
    _originals.clear()


def _original(owner: Any, name: str) -> Any:
    return _originals.get((owner, name)) or vars(owner)[name]


def _recording() -> Recorder | None:
    recorder = active_recorder()
    if recorder is None or recorder.busy or peek_interpreter_stack() is not None:
        return None
    return recorder


def _function_apply(cls: type[torch.autograd.Function], *args: Any, **kwargs: Any) -> Any:
    recorder = _recording()
    if recorder is None:
        return higher_order.apply_of(cls)(*args, **kwargs)
    if cls is torch_checkpoint.CheckpointFunction:
        function, preserve, *operands = args
        return higher_order.checkpoint(
            recorder, function, tuple(operands), {"use_reentrant": True, "preserve_rng_state": preserve}
        )
    return higher_order.autograd_function(recorder, cls, args, kwargs)


def _context_made(context: Any, *args: Any, **kwargs: Any) -> None:
    """An autograd.Function is applied, and not by `_function_apply`: that makes contexts while the recorder is busy."""
    if _recording() is not None:
        raise UnsupportedError(
            f"{type(context).__name__.removesuffix('Backward')}.apply is called by a function of C, under a name that "
            "is not known, and would run once, at compile time",
            location=user_location(),
            advice=("call it as YourFunction.apply(...)",),
        )


_original_module_call = copy_of(torch.nn.Module.__call__)
_HOOKS_UNSEEN = is_missing(module_backward_hook)  # through which backward hooks of modules are recorded


@calls_program
def _module_call(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
    recorder = active_recorder()
    if _HOOKS_UNSEEN and recorder is not None and module_hooks.has_backward_hooks(module):
        module_backward_hook()  # raises
    if recorder is None or recorder.busy:
        return _original_module_call(module, *args, **kwargs)
    if isinstance(module, _distributed):
        distributed_modules.refuse(module, _distributed)
    first_calls.before_call(recorder, module, args, kwargs)
    if key_of(module) not in recorder.attempt.eager_modules:
        return _original_module_call(module, *args, **kwargs)
    return eager_modules.call_eagerly(recorder, module, args, kwargs)


def _update(module: Any, name: str, update: Callable[..., None]) -> Callable[..., None]:
    def updated(*args: Any, **kwargs: Any) -> None:
        recorder = _recording()
        if (
            recorder is None
            or update not in recorder.attempt.eager_updates
            or not optimizer_updates.is_one_line(update, args, kwargs)
        ):
            _original(module, name)(*args, **kwargs)
        else:
            optimizer_updates.record_update(recorder, update, args, kwargs)

    return updated


def _as_subclass(tensor: torch.Tensor, cls: type) -> Any:
    recorder = _recording()
    if recorder is not None:
        return subclass_views.as_subclass(recorder, tensor, cls)
    if active_recorder() is not None and cls is not torch.Tensor and is_functorch_wrapped_tensor(tensor):
        raise UnsupportedError(
            f"under a transformation of torch.func, a tensor of the program becomes one of {cls.__qualname__}",
            location=user_location(),
            advice=("give the transformed function a plain tensor: tensor.as_subclass(torch.Tensor)",),
        )
    return subclass_views.AS_SUBCLASS(tensor, cls)


def _make_subclass(cls: type, data: torch.Tensor, require_grad: bool = False, **options: Any) -> Any:
    recorder = _recording()
    if recorder is None or subclasses.has_torch_dispatch(cls):  # as fake tensors, Thunder's among them
        return subclass_views.MAKE_SUBCLASS(cls, data, require_grad, **options)
    return subclass_views.make_subclass(recorder, cls, data, require_grad)


def _data_parallel(module: DistributedDataParallel, *args: Any, **kwargs: Any) -> Any:
    if _recording() is None:
        return _original(DistributedDataParallel, "forward")(module, *args, **kwargs)
    raise UnsupportedError(
        "DistributedDataParallel inside a compiled program would prepare its reducer once, at compile time, and "
        "average gradients in the first step alone",
        location=user_location(),
        advice=("put it around the compiled module: DistributedDataParallel(thunder.jit(module))",),
    )


def _from_local(*args: Any, **kwargs: Any) -> Any:
    if _recording() is None:
        return _original(distributed_modules.loaded_dtensor(), "from_local")(*args, **kwargs)
    distributed_modules.refuse_from_local()


def _saved_tensors_hooks(hooks: saved_tensors_hooks) -> None:
    if _recording() is None or not torch.is_grad_enabled():
        _original(saved_tensors_hooks, "__enter__")(hooks)
        return
    if is_missing(_EXPECTED_CHECKPOINT) and type(hooks).__module__ == torch_checkpoint.__name__:
        _EXPECTED_CHECKPOINT()  # raises
    raise UnsupportedError(
        f"{type(hooks).__name__} inside a compiled program would be given what is recorded, once, and not what is "
        "saved for backward",
        location=user_location(),
        advice=("put it around the call of the compiled function: it sees what forward saves",),
    )


def _enter_dual_level() -> Any:
    if _recording() is None:
        return _original(forward_ad, "enter_dual_level")()
    raise UnsupportedError(
        "forward-mode differentiation inside a compiled program is not recorded",
        location=user_location(),
        advice=("call torch.func.jvp or torch.func.jacfwd instead", "put it around the call of the compiled function"),
    )


def _remove_hook(handle: RemovableHandle) -> None:
    recorder = _recording()
    original = _original(RemovableHandle, "remove")
    if recorder is None:
        original(handle)
    else:
        hook_handles.remove(recorder, handle, original)


def _backward_hook(module: torch.nn.Module, hooks: list[Any], pre_hooks: list[Any]) -> Any:
    recorder = _recording()
    if recorder is None:
        return BackwardHook(module, hooks, pre_hooks)
    return module_hooks.RecordedModuleCall(recorder, module, hooks, pre_hooks)


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
        generator: Iterator[None] = _original(*checkpoint_without_reentrant_generator)(
            function, preserve_rng_state, context_fn, determinism_check, debug, early_stop, *args, **kwargs
        )
        return generator
    return _checkpoint_region(recorder, preserve_rng_state, context_fn, determinism_check, debug, early_stop)


def _checkpoint_of_tuples(function: Callable[..., Any], args: Any, kwargs: Any, **options: Any) -> Iterator[None]:
    recorder = _recording()
    if recorder is None:
        generator: Iterator[None] = _original(*checkpoint_without_reentrant_generator_impl)(
            function, args, kwargs, **options
        )
        return generator
    return _checkpoint_region(recorder, **options)


def _checkpoint_region(
    recorder: Recorder,
    preserve_rng_state: bool = True,
    context_fn: Any = torch_checkpoint.noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    respect_saved_tensors_hooks: bool | None = None,
) -> Iterator[None]:
    """The region of a checkpoint, with those of its options that are not PyTorch's defaults."""
    options: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": preserve_rng_state}
    if context_fn is not torch_checkpoint.noop_context_fn:
        options["context_fn"] = context_fn
    if determinism_check != "default":
        options["determinism_check"] = determinism_check
    chosen = enable_checkpoint_early_stop.value  # by `set_checkpoint_early_stop`
    if not (early_stop if chosen is None else chosen):
        options["early_stop"] = False
    if respect_saved_tensors_hooks is not None:
        options["respect_saved_tensors_hooks"] = respect_saved_tensors_hooks
    with higher_order.checkpoint_region(recorder, options):
        yield


# What PyTorch of this version should have, and what it has.
_EXPECTED_CHECKPOINT: Final = (
    checkpoint_without_reentrant_generator_impl
    if NAMES.rows["checkpoint_without_reentrant_generator_impl"].expected
    else checkpoint_without_reentrant_generator
)
# `checkpoint(use_reentrant=False)` runs its function while a generator waits at its one `yield`: the second of these.
# Where PyTorch has the first one, which takes a tuple and a dict, the second one calls it.
_CHECKPOINT: Final[tuple[Any, Callable[..., Any]]] = (
    (checkpoint_without_reentrant_generator, _checkpoint)
    if is_missing(checkpoint_without_reentrant_generator_impl)
    else (checkpoint_without_reentrant_generator_impl, _checkpoint_of_tuples)
)


def _cond(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Any = ()) -> Any:
    recorder = _recording()
    if recorder is None:
        return _original(torch, "cond")(pred, true_fn, false_fn, operands)
    return conditional.cond(recorder, pred, true_fn, false_fn, tuple(operands))


def _assert(condition: Any, message: Any) -> None:
    recorder = _recording()
    if recorder is None or not values.is_unknown(recorder, condition):
        _original(torch, "_assert")(condition, message)
    else:
        values.record_assertion(recorder, condition, message)


def _recording_states() -> Recorder | None:
    """The recorder of calls that act on no tensor of functorch's: they are recorded under its transformations, too."""
    recorder = active_recorder()
    return None if recorder is None or recorder.busy else recorder


def _write_state(module: Any, name: str, symbol: Symbol) -> Callable[..., Any]:
    def write(*args: Any, **kwargs: Any) -> Any:
        original = _original(module, name)
        recorder = _recording_states()
        if recorder is None:
            return original(*args, **kwargs)
        args = inspect.signature(original).bind(*args, **kwargs).args
        if symbol is generators.MANUAL_SEED:
            generator_state.write(recorder, symbol, (int(args[0]),))
            return torch.default_generator
        generator_state.write(recorder, symbol, args)
        return None

    return write


def _read_state(module: Any, name: str, symbol: Symbol) -> Callable[..., Any]:
    def read(*args: Any, **kwargs: Any) -> Any:
        original = _original(module, name)
        recorder = _recording_states()
        if recorder is None:
            return original(*args, **kwargs)
        args = inspect.signature(original).bind(*args, **kwargs).args
        return generator_state.read(recorder, symbol, args, original)

    return read


def _initial_seed() -> int:
    recorder = _recording_states()
    original: Callable[[], int] = _original(torch.random, "initial_seed")
    return original() if recorder is None else generator_state.initial_seed(recorder, original)


def _refuse_seed() -> int:
    if _recording_states() is None:
        seed: int = _original(torch.random, "seed")()
        return seed
    raise UnsupportedError(
        "torch.seed inside a compiled function would run once, at compile time",
        location=user_location(),
        advice=("call torch.seed outside the compiled function", "torch.manual_seed is supported inside"),
    )


def _replace_stance() -> None:
    """Functions that `torch.compile` compiled run their code, as under ``torch.compiler.set_stance("force_eager")``."""
    from thunder_core.pytorch_internals import DynamoStance, dynamo_stance  # which takes long to import

    _replace_private(dynamo_stance, DynamoStance("force_eager"))


def _replace_collectives() -> None:
    """What would communicate while a program is recorded, beside the operators that `collectives` records."""
    if not torch.distributed.is_available():
        return
    for name in ("object_list", "object"):
        for function in [item for item in dir(torch.distributed) if item.endswith(f"_{name}")]:
            _refuse_communication(torch.distributed, function)
            _refuse_communication(torch.distributed.distributed_c10d, function)
    for function in ("init_process_group", "destroy_process_group"):
        _refuse_communication(torch.distributed, function)
    _refuse_communication(torch.distributed.ProcessGroup, "_start_coalescing")


def _refuse_communication(owner: Any, name: str) -> None:
    if name not in vars(owner):
        return

    def refuse(*args: Any, **kwargs: Any) -> Any:
        if _recording() is None:
            return _original(owner, name)(*args, **kwargs)
        raise UnsupportedError(
            f"{name} inside a compiled function would run once, at compile time",
            location=user_location(),
            advice=(
                "call it outside of the compiled function",
                "collectives of single tensors are part of the program: all_reduce, broadcast, isend and the like",
            ),
        )

    _replace(owner, name, refuse)


def _print(*values: Any, **options: Any) -> None:
    recorder = _recording()
    if recorder is None:
        _original(builtins, "print")(*values, **options)
    else:
        printing.print_values(recorder, _original(builtins, "print"), values, options)


_OF_C: Final[dict[Any, Any]] = {
    _PRINT: _print,
    subclass_views.AS_SUBCLASS: _as_subclass,
    **{vars(torch.overrides)[asks.__name__]: asks for asks in eager_paths.OVERRIDES},
}
"""What stands for functions of C."""
_STAND_INS: Final = {stand_in: function for function, stand_in in _OF_C.items()}


def _set_printoptions(**options: Any) -> None:
    recorder = _recording()
    if recorder is None:
        _original(torch, "set_printoptions")(**options)
    else:
        printing.set_printoptions(recorder, options)


def _log_at(name: str, level: int) -> Callable[..., None]:
    def log(logger: logging.Logger, message: Any, *args: Any, **options: Any) -> None:
        if not _logged(sys._getframe(_CALLER), logger, level, message, args, options):
            options["stacklevel"] = options.get("stacklevel", 1) + _CALLER
            _original(logging.Logger, name)(logger, message, *args, **options)

    return log


def _log(logger: logging.Logger, level: int, message: Any, *args: Any, **options: Any) -> None:
    if not _logged(sys._getframe(_CALLER), logger, level, message, args, options):
        options["stacklevel"] = options.get("stacklevel", 1) + _CALLER
        _original(logging.Logger, "log")(logger, level, message, *args, **options)


def _logged(
    caller: FrameType, logger: logging.Logger, level: int, message: Any, args: tuple[Any, ...], options: dict[str, Any]
) -> bool:
    """Record what the program logs, if that has tensors; False for the rest, and for what PyTorch logs of itself."""
    recorder = _recording()
    if recorder is None or kind_of(caller.f_code) is CodeKind.IGNORED:
        return False
    if not any(isinstance(leaf, torch.Tensor) for leaf in iterate_leaves((message, args))):
        return False
    printing.log_values(recorder, logger, level, message, args, options)
    return True


def _refuse_elements(name: str) -> Callable[..., Any]:
    def refuse(storage: torch.storage.TypedStorage, *args: Any, **kwargs: Any) -> Any:
        if _recording() is None:
            return _original(torch.storage.TypedStorage, name)(storage, *args, **kwargs)
        raise UnsupportedError(
            f"TypedStorage.{name} inside a compiled function: storages have no elements while it is recorded",
            location=user_location(),
            advice=("use tensors: torch.tensor, torch.frombuffer", "do this outside of the compiled function"),
        )

    return refuse


_STORAGE_NEW: Final = torch.UntypedStorage.__new__
_STORAGE_FROM_BUFFER: Final = torch.UntypedStorage.from_buffer


def _new_storage(cls: type[torch.UntypedStorage], *args: Any, **kwargs: Any) -> torch.UntypedStorage:
    if _recording() is None:
        return _STORAGE_NEW(cls, *args, **kwargs)
    with disable_current_modes():  # among fake tensors it would be of the device meta, without memory
        return _STORAGE_NEW(cls, *args, **kwargs)


def _storage_from_buffer(*args: Any, **kwargs: Any) -> torch.UntypedStorage:
    if _recording() is None:
        return _STORAGE_FROM_BUFFER(*args, **kwargs)
    with disable_current_modes():
        return _STORAGE_FROM_BUFFER(*args, **kwargs)


def _find_and_load(name: str, import_: Any) -> Any:
    """An import of a module that is not there yet: it runs once in a process, and is no part of the program."""
    original = _original(importlib._bootstrap, "_find_and_load")
    recorder = set_active_recorder(None)
    if recorder is None:
        return original(name, import_)
    try:
        with disable_current_modes():
            return original(name, import_)
    finally:
        set_active_recorder(recorder)


def _set_default_device(device: Any) -> None:
    if active_recorder() is None:
        _original(torch, "set_default_device")(device)
        return
    raise UnsupportedError(
        "torch.set_default_device inside a compiled function changes the modes that record it",
        location=user_location(),
        advice=("use `with torch.device(...)`", "call it outside of the compiled function"),
    )
