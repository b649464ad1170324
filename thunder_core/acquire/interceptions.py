"""What is intercepted while a program is recorded: calls that a torch-function mode does not see.

`torch.autograd.Function.apply`, `torch.utils.checkpoint`, `torch.cond`, backward hooks of modules and the seeding
functions are plain Python to PyTorch, as are ``print``, loggers and warnings. `TABLE` has a row for each; plugins add
theirs with the hook ``thunder_interceptions``.
"""

from __future__ import annotations

import builtins
import importlib
import logging
import math
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from types import FunctionType, MethodType
from typing import Any, Final

import torch
from torch.autograd import forward_ad
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.parallel import DistributedDataParallel
from torch.utils.hooks import RemovableHandle

from thunder_core.acquire import (
    autograd_functions,
    checkpoints,
    collectives,
    control_flow,
    deferred,
    eager_paths,
    generator_state,
    hooks,
    jagged_tensors,
    module_calls,
    optimizer_updates,
    outside_modes,
    printing,
    script_calls,
    subclass_views,
    values,
    wrapper_calls,
)
from thunder_core.acquire.active import active_recorder, program_recorder
from thunder_core.acquire.interception import (
    Interception,
    Setting,
    held_by,
    installed,
    owner_of,
    refusal,
    replacement_of,
    unbound,
)
from thunder_core.acquire.recorder import Recorder
from thunder_core.acquire.traced_size import larger_or_smaller, root_or_logarithm
from thunder_core.guards.heap import GUARDED_APART
from thunder_core.guards.stand_ins import FUNCTIONS_OF_C
from thunder_core.private_names import is_missing
from thunder_core.pytorch_internals import (
    RecursiveScriptModule,
    ScriptMethod,
    detect_is_causal_mask,
    is_compiling_flag,
    jagged_torch_function,
    module_backward_hook,
    nested_tensor_from_mask,
    nested_tensor_from_mask_left_aligned,
    nested_view_dummy,
    select_sdp_backend,
)
from thunder_core.symbols import generators

Rows = tuple[Interception | Setting, ...]


def _private(entry_point: Any, handler: Callable[..., Any], purpose: str, **options: Any) -> Rows:
    """A row for what the installed PyTorch has; programs that need it otherwise are refused where they do."""
    if is_missing(entry_point):
        return ()
    return (Interception(entry_point.owner, entry_point.name, handler, purpose, **options),)


def _private_setting(entry_point: Any, value: Any, purpose: str) -> Rows:
    return () if is_missing(entry_point) else (Setting(entry_point.owner, entry_point.name, value, purpose),)


_APPLY: Final = Interception(
    torch.autograd.Function,
    "apply",
    autograd_functions.apply,
    "an autograd.Function is one symbol with its own backward",
)

_PROGRAMS: Final[Rows] = (
    _APPLY,
    Interception(
        torch.autograd.function.BackwardCFunction,
        "__init__",
        autograd_functions.refuse_context,
        "an autograd.Function that is applied under an unknown name would run once",
    ),
    *_private(*checkpoints.WITHOUT_REENTRANT, "a checkpoint is one symbol with a body"),
    Interception(torch, "cond", control_flow.cond, "both branches are recorded"),
    Interception(torch, "_assert", values.assert_true, "a condition that depends on inputs is checked in each run"),
    Interception(
        saved_tensors_hooks,
        "__enter__",
        checkpoints.enter_saved_tensors_hooks,
        "hooks on saved tensors would see what is recorded",
    ),
    Interception(
        torch.jit.ScriptFunction, "__call__", script_calls.call_function, "what a scripted function calls is recorded"
    ),
    Interception(ScriptMethod, "__call__", script_calls.call_method, "what a scripted method calls is recorded"),
    Interception(
        RecursiveScriptModule,
        "__setattr__",
        script_calls.assign,
        "attributes of scripted modules are written in C++",
    ),
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
"""Calls that take programs, or decide how autograd records them."""

_MODULES: Final[Rows] = (
    Interception(
        torch.nn.Module,
        "__call__",
        module_calls.call_module,
        "lazy modules, modules that run as eager does, and sharded modules",
        when=active_recorder,
    ),
    *_private(module_backward_hook, hooks.backward_hook, "backward hooks of modules become lines"),
    Interception(RemovableHandle, "remove", hooks.remove, "the removal of a hook on a tensor is a line"),
    Interception(
        DistributedDataParallel,
        "forward",
        refusal(
            "DistributedDataParallel inside a compiled program would prepare its reducer once, at compile time, and "
            "average gradients in the first step alone",
            "put it around the compiled module: DistributedDataParallel(thunder.jit(module))",
        ),
        "its reducer would be prepared once",
    ),
    Interception(
        "torch.distributed.device_mesh:DeviceMesh",
        "__getitem__",
        outside_modes.run_once,
        "the mesh of some dimensions is the same in each run",
    ),
    Interception(
        "torch.distributed.tensor._api:",
        "check_tensor_meta",
        refusal(
            "DTensor.from_local(..., run_check=True) inside a compiled program would compare shapes between processes "
            "once, at compile time",
            "leave out run_check",
            "or make the DTensor outside of the compiled program",
        ),
        "it would communicate once",
        when=active_recorder,
    ),
    Interception(
        "torch.distributed.tensor._sharding_prop:ShardingPropagator",
        "_propagate_tensor_meta_non_cached",
        wrapper_calls.ask_metadata,
        "DTensor asks for shapes on fake tensors of its own",
    ),
    Interception(
        "torch.distributed.tensor._random:OffsetBasedRNGTracker",
        "_distribute_region",
        refusal(
            "a random function of a DTensor sets the offset of the device's random generator for each shard, which is "
            "not recorded",
            "call it outside of the compiled program",
            "or on the local tensor: dropout(x.to_local()), with a seed for each process",
        ),
        "the state of the generator would be set once",
    ),
    *[
        Interception(module, name, partial(optimizer_updates.update, function), "updates that depend on values")
        for module, name, function in optimizer_updates.UPDATES
    ],
)
"""Calls of modules and of what acts on them."""

_RANDOM: Final[Rows] = (
    *[
        Interception(module, name, partial(generator_state.write, symbol), "each run seeds anew", when=program_recorder)
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
        "lines before it may have seeded",
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
    recorder.trace.end_autocast_region()
    original()


_AUTOCAST: Final[Rows] = (
    Interception(
        torch,
        "clear_autocast_cache",
        _clear_autocast_cache,
        "each region of autocast converts parameters anew",
        when=program_recorder,
    ),
)
"""Ends of regions of autocast."""

_MATH: Final[Rows] = tuple(
    [
        Interception(math, name, deferred.tells, "numbers that lines compute", when=active_recorder)
        for name in ("isnan", "isinf", "isfinite")
    ]
    + [
        Interception(math, name, root_or_logarithm, "floats that lines compute", when=active_recorder)
        for name in ("sqrt", "log", "log2", "log10")
    ]
    + [
        Interception(builtins, name, larger_or_smaller, "sizes stay sizes", when=active_recorder)
        for name in ("max", "min")
    ]
)
"""Functions of numbers."""

_TEXT: Final[Rows] = (
    Interception(builtins, "print", printing.print_values, "each run prints", when=active_recorder),
    Interception(torch, "set_printoptions", printing.set_printoptions, "it acts on what lines print"),
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
"""What a program prints, logs and warns of."""

_TENSORS: Final[Rows] = (
    Interception(
        torch.Tensor,
        "as_subclass",
        subclass_views.as_subclass,
        "traced tensors of the user's classes",
        when=active_recorder,
    ),
    Interception(
        torch.Tensor, "_make_subclass", subclass_views.make_subclass, "parameters, and tensors of the user's classes"
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
    *_private(nested_view_dummy, outside_modes.run_once, "PyTorch keeps the jagged tensor that it makes"),
    *_private(jagged_torch_function, jagged_tensors.call, "jagged tensors are recorded by their values and offsets"),
    *_private(select_sdp_backend, jagged_tensors.choose_backend, "attention over jagged tensors is one line"),
    Interception(torch.UntypedStorage, "__new__", outside_modes.call, "among fakes it would be on the device meta"),
    Interception(torch.UntypedStorage, "from_buffer", outside_modes.call, "among fakes it would be on the device meta"),
)
"""Makers of tensors and storages below the torch functions."""

_ENVIRONMENT: Final[Rows] = (
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
    Interception(
        importlib._bootstrap,
        "_find_and_load",
        outside_modes.run_once,
        "an import runs once in a process and is no part of the program",
        when=active_recorder,
    ),
    Interception(
        torch.compiler, "is_compiling", eager_paths.is_compiling, "attention modules and optimizers ask for eager's way"
    ),
    *_private_setting(is_compiling_flag, True, "what asks whether a program is compiled is told so"),
)
"""What the surroundings of a program are."""

_ATTENTION: Final[Rows] = (
    *[
        Interception(
            torch.overrides,
            handler.__name__,
            handler,
            "attention modules and the user's code do not see the recorder",
            when=program_recorder,
        )
        for handler in (
            eager_paths.has_torch_function,
            eager_paths.has_torch_function_unary,
            eager_paths.has_torch_function_variadic,
        )
    ],
    *_private(nested_tensor_from_mask_left_aligned, eager_paths.is_left_aligned, "an encoder takes the path of eager"),
    *_private(nested_tensor_from_mask, eager_paths.without_padding, "an encoder that leaves out padding is one line"),
    *_private(
        detect_is_causal_mask,
        eager_paths.is_causal_mask,
        "a mask that depends on inputs is applied as it is",
        when=active_recorder,
    ),
    Interception(
        torch.nn.TransformerEncoder,
        "forward",
        eager_paths.encoder,
        "an encoder that leaves out padding is one line",
        when=active_recorder,
    ),
)
"""The paths of PyTorch's attention modules."""

TABLE: Final[Rows] = (
    *_PROGRAMS,
    *_MODULES,
    *_RANDOM,
    *_AUTOCAST,
    *_MATH,
    *_TEXT,
    *_TENSORS,
    *_ENVIRONMENT,
    *_ATTENTION,
    *[
        Interception(owner, name, collectives.refusal_of(name), "it would communicate once")
        for owner, name in collectives.REFUSED
    ],
)
"""What the core intercepts."""

_added: Final[list[Interception]] = []
_functions_of_c: Final[dict[Any, Interception]] = {}
"""Programs may have them under names of their own."""
_stand_ins: Final[dict[Any, Any]] = {}
"""The functions that replacements of these replace."""
_lock = threading.Lock()
_depth = 0
_undo: Final = ExitStack()


@contextmanager
def intercepting() -> Iterator[None]:
    """Install the interceptions for the duration, and make ``torch.compiler.is_compiling()`` true.

    Functions that `torch.compile` compiled run uncompiled meanwhile: what they call is part of the program. While
    several threads record programs, the first installs and the last puts everything back.
    """
    global _depth
    with _lock:
        if _depth == 0:
            rows = [row for row in TABLE if not any(_is_same_function(row, other) for other in _added)]
            _undo.enter_context(installed((*rows, *_stance(), *_added)))
        _depth += 1
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            if _depth == 0:
                _undo.close()


def add_interceptions(rows: Iterable[Interception]) -> None:
    """Add rows, for the recordings that begin from now on. Those that were added before, the same objects, stay.

    A row for a function that the core only refuses takes the place of the core's.

    Raises:
        ValueError: an attribute is intercepted already, is inherited, or there is none.
    """
    for row in rows:
        if row not in _added:
            _check(row)
            _note_functions_of_c([row])
            _added.append(row)
            if not row.observed and isinstance(row.owner, str):
                GUARDED_APART.add(row.owner)
            if row.takes_over:
                module_calls.take_over(row.takes_over)


def _check(row: Interception) -> None:
    owner = owner_of(row)
    where = f"{row.owner if isinstance(row.owner, str) else row.owner.__name__}.{row.name}"
    if owner is not None:
        try:
            held_by(owner, row.name)
        except AttributeError as error:
            raise ValueError(f"{where} is to be intercepted, and there is no such attribute") from error
        if row.name not in vars(owner):  # as its own it would be another class to guards
            raise ValueError(f"{where} is to be intercepted, and is inherited: name the class that has it")
    for other in (*TABLE, *_added):
        if _is_same_function(row, other) and not (other in TABLE and isinstance(other, Interception) and other.refuses):
            raise ValueError(f"{where} is intercepted already: {other.purpose}")


def _is_same_function(row: Interception | Setting, other: Interception | Setting) -> bool:
    if row.name != other.name:
        return False
    owner = owner_of(row)
    return row.owner == other.owner or (owner is not None and owner_of(other) is owner)


def intercepted(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function``, or what replaces it while it is intercepted: the program may be such an entry point itself."""
    stand_in: Callable[..., Any] | None = stand_in_of(function)
    return function if stand_in is None else stand_in


def stand_in_of(function: Any) -> Any:
    """What replaces a function of C that is intercepted, under whatever name the program has it; None for others."""
    if type(function) in FUNCTIONS_OF_C and function in _functions_of_c:
        return replacement_of(_functions_of_c[function])
    if autograd_functions.is_apply(function):
        return MethodType(replacement_of(_APPLY), function.__self__)
    return None


def original_of(value: Any) -> Any:
    """The function of C that ``value`` replaces while a program is recorded; any other object itself."""
    if type(value) is MethodType and value.__func__ is replacement_of(_APPLY):
        cls: Any = value.__self__
        return autograd_functions.apply_of(cls)
    return _stand_ins.get(value, value) if type(value) is FunctionType else value


def _note_functions_of_c(rows: Iterable[Interception | Setting]) -> None:
    for row in rows:
        if isinstance(row, Interception) and (owner := owner_of(row)) is not None:
            function = unbound(held_by(owner, row.name))
            if type(function) in FUNCTIONS_OF_C:
                _functions_of_c[function] = row
                _stand_ins[replacement_of(row)] = function


def _stance() -> Rows:
    """Functions that `torch.compile` compiled run their code, as under ``torch.compiler.set_stance("force_eager")``."""
    from thunder_core.pytorch_internals import DynamoStance, dynamo_stance  # which takes long to import

    return _private_setting(dynamo_stance, DynamoStance("force_eager"), "what torch.compile compiled runs as it is")


_note_functions_of_c(TABLE)
