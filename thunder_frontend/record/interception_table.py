"""The interceptions of the core: calls that a torch-function mode does not see.

`torch.autograd.Function.apply`, `torch.utils.checkpoint`, `torch.cond`, backward hooks of modules and the seeding
functions are plain Python to PyTorch, as are ``print``, loggers and warnings. `TABLE` has a row for each; plugins add
theirs with the hook ``thunder_interceptions`` (`thunder_frontend.record.interceptions`).
"""

from __future__ import annotations

import builtins
import importlib
import logging
import math
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, NoReturn

import torch
from torch.autograd import forward_ad
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.parallel import DistributedDataParallel
from torch.utils import checkpoint as checkpoint_module
from torch.utils.checkpoint import CheckpointFunction
from torch.utils.hooks import RemovableHandle

from thunder_core.checks.arrays import is_array, is_array_class
from thunder_core.checks.originals import is_compiled
from thunder_core.errors import RunEagerly
from thunder_core.ir.import_paths import module_of
from thunder_core.ir.location import at
from thunder_core.pytorch_internals import (
    RecursiveScriptModule,
    ScriptMethod,
    SyncBatchNormFunction,
    TorchDispatchMode,
    add_batch_dim,
    detect_is_causal_mask,
    is_compiling_flag,
    module_backward_hook,
    nested_tensor_from_mask,
    nested_tensor_from_mask_left_aligned,
    wrap_for_grad,
)
from thunder_core.symbols import generators
from thunder_core.tracing.frames import calls_program, user_location
from thunder_frontend.record import (
    aten_calls,
    autograd_functions,
    checkpoints,
    control_flow,
    deferred,
    disabled_wrappers,
    eager_calls,
    eager_paths,
    generator_state,
    hooks,
    module_calls,
    printing,
    subclasses,
    tensor_state,
)
from thunder_frontend.record.communication import SUBJECT
from thunder_frontend.record.integer_functions import OF_MATH
from thunder_frontend.record.interception import (
    ApplyInterception,
    Interception,
    Setting,
    apply_handler,
    for_private_name,
    outside_modes,
    refusal,
    run_once,
    setting_for_private_name,
)
from thunder_frontend.record.recorder import Recorder, active_recorder, program_recorder
from thunder_frontend.record.traced_number import exact_sum
from thunder_frontend.record.traced_size import integer_of_math, larger_or_smaller
from thunder_frontend.record.watched_float import function_of_numbers

Rows = tuple[Interception | Setting, ...]


def _apply(
    recorder: Recorder, original: Callable[..., Any], cls: type[torch.autograd.Function], /, *args: Any, **kwargs: Any
) -> Any:
    handler = apply_handler(cls)
    if handler is not None:
        return handler(recorder, original, cls, *args, **kwargs)
    return autograd_functions.autograd_function(recorder, cls, args, kwargs)


APPLY: Final = Interception(
    torch.autograd.Function, "apply", _apply, "an autograd.Function is one symbol with its own backward"
)

_PROGRAMS: Final[Rows] = (
    APPLY,
    ApplyInterception(
        CheckpointFunction, autograd_functions.apply_checkpoint, "a checkpoint is one symbol with a body"
    ),
    ApplyInterception(
        SyncBatchNormFunction,
        refusal(
            "SyncBatchNorm communicates with other processes in training",
            "call it outside of the compiled function",
            subject=SUBJECT,
        ),
        "a plugin records it",
    ),
    Interception(
        torch.autograd.function.BackwardCFunction,
        "__init__",
        autograd_functions.refuse_context,
        "an autograd.Function that is applied through an unknown alias would run once",
    ),
    *for_private_name(*checkpoints.WITHOUT_REENTRANT, "a checkpoint is one symbol with a body"),
    Interception(torch, "cond", control_flow.cond, "both branches are recorded"),
    Interception(torch, "_assert", deferred.assert_true, "a condition that depends on inputs is checked in each run"),
    Interception(
        saved_tensors_hooks,
        "__enter__",
        checkpoints.enter_saved_tensors_hooks,
        "hooks on saved tensors would run on traced tensors",
    ),
    *[
        Interception(
            owner,
            name,
            refusal(
                problem,
                "call the Python function that it was scripted from",
                "or call it outside of the compiled function, and pass the result",
                subject="TorchScript",
            ),
            "a plugin records them",
        )
        for owner, name, problem in (
            (torch.jit.ScriptFunction, "__call__", "the program calls a function in TorchScript"),
            (ScriptMethod, "__call__", "the program calls a method of a module in TorchScript"),
            (RecursiveScriptModule, "__setattr__", "the program assigns to an attribute of a module in TorchScript"),
        )
    ],
    Interception(
        forward_ad,
        "enter_dual_level",
        refusal(
            "forward-mode differentiation inside a compiled program is not recorded",
            "call torch.func.jvp or torch.func.jacfwd instead",
            "put it around the call of the compiled function",
        ),
        "dual numbers are not recorded",
    ),
)
"""Calls that take functions of the program, or that change how autograd records."""

_MODULES: Final[Rows] = (
    Interception(
        torch.nn.Module,
        "__call__",
        module_calls.call_module,
        "lazy modules, modules that run as eager does, and sharded modules",
        when=active_recorder,
    ),
    *for_private_name(module_backward_hook, hooks.backward_hook, "backward hooks of modules become ops"),
    Interception(RemovableHandle, "remove", hooks.remove, "the removal of a hook on a tensor is an op"),
    Interception(
        DistributedDataParallel,
        "forward",
        refusal(
            "DistributedDataParallel inside a compiled program would prepare its reducer once, at compile time, and "
            "average gradients in the first step alone",
            "put it around the compiled module: DistributedDataParallel(thunder.jit(module))",
            subject=SUBJECT,
        ),
        "its reducer would be prepared once",
    ),
    Interception(
        "torch.distributed.device_mesh:DeviceMesh",
        "__getitem__",
        run_once,
        "the mesh of some dimensions is the same in each run",
    ),
    *[
        Interception(module, name, partial(eager_calls.update, function), "updates that depend on values")
        for module, name, function in eager_calls.UPDATES
    ],
)
"""Calls of modules, and calls that act on modules."""

_RANDOM: Final[Rows] = (
    *[
        Interception(
            module, name, partial(generator_state.write, symbol), "each run seeds again", when=program_recorder
        )
        for module, name, symbol in generators.WRITES
    ],
    *[
        Interception(
            module, name, partial(generator_state.read, symbol), "each run reads its state", when=program_recorder
        )
        for module, name, symbol in generators.READS
    ],
    Interception(
        torch.random,
        "initial_seed",
        generator_state.initial_seed,
        "ops before it may have seeded",
        when=program_recorder,
    ),
    Interception(
        torch.random,
        "seed",
        refusal(
            "torch.seed inside a compiled function would run once, at compile time",
            "call torch.seed outside the compiled function",
            "torch.manual_seed is supported inside",
        ),
        "it would run once",
        when=program_recorder,
    ),
)
"""Reads and writes of the state of random generators."""


def _clear_autocast_cache(recorder: Recorder, original: Callable[[], None], /) -> None:
    recorder.trace.autocast_regions.leave()
    original()


_AUTOCAST: Final[Rows] = (
    Interception(
        torch,
        "clear_autocast_cache",
        _clear_autocast_cache,
        "each region of autocast converts parameters again",
        when=program_recorder,
    ),
)
"""Ends of regions of autocast."""

_FLOATS_OF_MATH: Final = (
    *("sqrt", "cbrt", "exp", "exp2", "expm1", "log", "log1p", "log2", "log10", "fabs", "erf", "erfc"),
    *("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
    *("degrees", "radians", "gamma", "lgamma", "atan2", "copysign", "fmod", "hypot", "pow", "remainder"),
)
_MATH: Final[Rows] = tuple(
    [
        Interception(math, name, deferred.predicate, "numbers that ops compute", when=active_recorder)
        for name in ("isnan", "isinf", "isfinite")
    ]
    + [
        Interception(math, name, function_of_numbers, "floats that ops compute", when=active_recorder)
        for name in _FLOATS_OF_MATH
    ]
    + [
        Interception(math, "isclose", deferred.close, "numbers that ops compute", when=active_recorder),
        Interception(math, "fsum", exact_sum, "floats that ops compute", when=active_recorder),
    ]
    + [Interception(math, name, integer_of_math, "ints of sizes", when=active_recorder) for name in OF_MATH]
    + [
        Interception(builtins, name, larger_or_smaller, "sizes stay sizes", when=active_recorder)
        for name in ("max", "min")
    ]
)
"""Functions of numbers."""

_TEXT: Final[Rows] = (
    Interception(builtins, "print", printing.print_values, "each run prints", when=active_recorder),
    Interception(torch, "set_printoptions", printing.set_printoptions, "it acts on what ops print"),
    *[
        Interception(
            logging.Logger,
            name,
            partial(printing.log_at, level),
            "each run logs",
            when=active_recorder,
            always=True,
        )
        for name, level in printing.LEVELS.items()
    ],
    Interception(logging.Logger, "log", printing.log, "each run logs", when=active_recorder, always=True),
    Interception(warnings, "warn", printing.warn, "each run warns", when=active_recorder, always=True),
)
"""Prints, logs and warnings of a program."""


@calls_program
def _from_numpy(recorder: Recorder, original: Callable[..., Any], array: Any, /) -> Any:
    of_plugin = is_array(array) and not is_array_class(type(array))  # it is only called an array
    if not of_plugin and not (is_array(array) and recorder.inputs.has_path(array)):
        return original(array)  # the program creates it: its memory is a constant
    return torch.as_tensor(array, device="cpu")


_TENSORS: Final[Rows] = (
    Interception(torch.Tensor, "set_", tensor_state.set_source, "like an assignment to data"),
    Interception(torch.Tensor, "__reduce_ex__", tensor_state.reduce, "a shallow copy shares the storage"),
    Interception(torch, "from_numpy", _from_numpy, "the array may be another in each call"),
    Interception(
        torch.Tensor,
        "as_subclass",
        subclasses.as_subclass,
        "traced tensors of the user's classes",
        when=active_recorder,
    ),
    Interception(
        torch.Tensor, "_make_subclass", subclasses.make_subclass, "parameters, and tensors of the user's classes"
    ),
    *[
        Interception(
            torch.storage.TypedStorage,
            name,
            refusal(
                f"TypedStorage.{name} inside a compiled function: storages have no elements while it is recorded",
                "use tensors: torch.tensor, torch.frombuffer",
                "do this outside of the compiled function",
            ),
            "storages of fakes have no elements",
        )
        for name in ("__getitem__", "__setitem__", "tolist", "fill_", "copy_")
    ],
    Interception(torch.UntypedStorage, "__new__", outside_modes, "among fakes it would be on the device meta"),
    Interception(torch.UntypedStorage, "from_buffer", outside_modes, "among fakes it would be on the device meta"),
)
"""Functions that create tensors and storages below the torch functions."""


def _enter_dispatch_mode(recorder: Recorder, original: Callable[..., Any], mode: Any, /) -> Any:
    """Eager PyTorch runs a program that enters a mode which changes or observes ATen operators: ops would bypass it."""
    module = module_of(type(mode))
    if is_compiled(mode) or module == checkpoint_module.__name__:  # contexts of selective checkpoints
        return original(mode)
    raise RunEagerly(f"the program enters {type(mode).__qualname__}, a mode of PyTorch's dispatcher")


def _set_stance(recorder: Recorder, original: Callable[..., Any], /, *args: Any) -> NoReturn:
    raise RunEagerly(f"the program calls torch.compiler.set_stance{at(user_location())}")


def _reset(recorder: Recorder, original: Callable[..., Any], /) -> NoReturn:
    raise RunEagerly(f"the program calls torch.compiler.reset{at(user_location())}")


def _log_by_trainer(recorder: Recorder, original: Callable[..., Any], module: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Eager PyTorch runs a program that logs by a trainer: it accumulates metrics that no program repeats."""
    if vars(module).get("_trainer") is None and vars(module).get("_fabric") is None:
        return original(module, *args, **kwargs)  # which only warns
    raise RunEagerly(
        f"the program logs by its trainer, with self.{original.__name__}{at(user_location())}; log what it returns in "
        "training_step, outside of the compiled forward"
    )


_LOGS: Final[Rows] = tuple(
    Interception(
        f"{package}.core.module:LightningModule", name, _log_by_trainer, "it accumulates metrics", when=active_recorder
    )
    for package in ("lightning.pytorch", "pytorch_lightning")
    for name in ("log", "log_dict")
)
"""Methods of Lightning."""

_ENVIRONMENT: Final[Rows] = (
    Interception(
        TorchDispatchMode, "__enter__", _enter_dispatch_mode, "ops would bypass the mode", when=program_recorder
    ),
    Interception(
        torch,
        "set_default_device",
        refusal(
            "torch.set_default_device inside a compiled function changes the modes that record it",
            "use `with torch.device(...)`",
            "call it outside of the compiled function",
        ),
        "it would change the modes that record",
        when=active_recorder,
    ),
    *[
        Interception(
            torch.jit,
            name,
            refusal(
                f"torch.jit.{name} inside a compiled function would trace the recording",
                "do this outside of the compiled function, and call the result inside",
            ),
            "it would trace the recording",
        )
        for name in ("trace", "trace_module")
    ],
    Interception(
        importlib._bootstrap,
        "_find_and_load",
        run_once,
        "an import runs once in a process and is not part of the program",
        when=active_recorder,
    ),
    Interception(
        torch.compiler, "is_compiling", eager_paths.is_compiling, "attention modules and optimizers run as in eager"
    ),
    Interception(
        "torch._dynamo.eval_frame:DisableContext",
        "__call__",
        disabled_wrappers.disable,
        "each run may disable another function",
        when=program_recorder,
    ),
    Interception(
        "torch._dynamo.external_utils:",
        "get_nonrecursive_disable_wrapper",
        disabled_wrappers.disable_not_recursive,
        "each run may disable another function",
        when=program_recorder,
    ),
    Interception(
        "torch._dynamo.eval_frame:",
        "_set_stance",
        _set_stance,
        "it would act once, at compile time",
        when=program_recorder,
    ),
    Interception("torch._dynamo:", "reset", _reset, "it would act once, at compile time", when=program_recorder),
    *setting_for_private_name(is_compiling_flag, True, "checks whether a program is compiled return True"),
)
"""State of the process around a program: default device, imports, flags of compilation."""

_ATTENTION: Final[Rows] = (
    *[
        Interception(
            torch.overrides,
            name,
            partial(eager_paths.has_torch_function, arguments_of),
            "attention modules and the user's code do not see the recorder",
            when=program_recorder,
        )
        for name, arguments_of in eager_paths.HAS_TORCH_FUNCTION.items()
    ],
    *for_private_name(
        nested_tensor_from_mask_left_aligned, eager_paths.is_left_aligned, "an encoder takes the path of eager"
    ),
    *for_private_name(
        nested_tensor_from_mask, eager_paths.without_padding, "an encoder that removes padding is one op"
    ),
    *for_private_name(
        detect_is_causal_mask,
        eager_paths.is_causal_mask,
        "a mask that depends on inputs is applied as it is",
        when=active_recorder,
    ),
    Interception(
        torch.nn.TransformerEncoder,
        "forward",
        eager_paths.encoder,
        "an encoder that removes padding is one op",
        when=active_recorder,
    ),
)
"""The paths of PyTorch's attention modules."""


_TRANSFORMATIONS: Final[Rows] = tuple(
    [
        row
        for entry_point in (add_batch_dim, wrap_for_grad)
        for row in for_private_name(
            entry_point, aten_calls.wrap_input, "the function reads sizes from the tensor object", when=program_recorder
        )
    ]
)
"""Arguments of transformations of `torch.func`."""


def _refused_communication() -> Iterator[Interception]:
    """Rows for functions of `torch.distributed` that would act once, at compile time."""
    distributed = torch.distributed
    if not distributed.is_available():
        return
    once: list[tuple[Any, str]] = [(distributed, "init_process_group"), (distributed, "destroy_process_group")]
    if "_start_coalescing" in vars(distributed.ProcessGroup):
        once.append((distributed.ProcessGroup, "_start_coalescing"))
    for owner, name in once:
        refuse = refusal(
            f"{name} inside a compiled function would run once, at compile time",
            "call it outside of the compiled function",
            "collectives are part of the program: all_reduce, broadcast, isend, all_gather_object and the like",
        )
        yield Interception(owner, name, refuse, "it would communicate once")
    for name in _OF_OBJECTS:
        refuse = refusal(
            f"the program communicates with other processes, by {name}",
            "call it outside of the compiled function",
            subject=SUBJECT,
        )
        for module in (distributed, distributed.distributed_c10d):
            yield Interception(module, name, refuse, "a plugin records it")


_OF_OBJECTS: Final = (
    "all_gather_object",
    "gather_object",
    "broadcast_object_list",
    "scatter_object_list",
    "send_object_list",
    "recv_object_list",
)
"""The functions of `torch.distributed` that send Python objects."""

TABLE: Final[Rows] = (
    *_PROGRAMS,
    *_MODULES,
    *_RANDOM,
    *_AUTOCAST,
    *_MATH,
    *_TEXT,
    *_LOGS,
    *_TENSORS,
    *_ENVIRONMENT,
    *_ATTENTION,
    *_TRANSFORMATIONS,
    *_refused_communication(),
)
"""All interceptions and settings of the core."""
