"""Calls of modules: a module that cannot be recorded as it is, is prepared before its first call, or refused.

Lazy modules (``torch.nn.LazyLinear``) create and initialize their parameters in their first call. Graph modules of
`torch.compile` generate their ``forward`` when it is called.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import torch
from torch.nn.modules.lazy import LazyModuleMixin

from thunder_core.acquire.absent_plugins import advice_on_plugins
from thunder_core.acquire.attempt import Attempt, EagerCallNeeded, RecordAgain, key_of
from thunder_core.acquire.communication import SUBJECT
from thunder_core.acquire.eager_calls import call_eagerly
from thunder_core.acquire.hooks import has_backward_hooks
from thunder_core.acquire.recorder import Recorder
from thunder_core.acquire.traced_tensor import variable_of
from thunder_core.errors import UnsupportedError
from thunder_core.guards.contents import cached_by_class
from thunder_core.ir.size import as_constant
from thunder_core.private_names import is_missing
from thunder_core.pytorch_internals import LazyGraphModule, module_backward_hook, tree_map
from thunder_core.tracing.user_frames import calls_program, user_location

_CHANGING: Final[Any] = (LazyGraphModule, LazyModuleMixin)
REASON = "lazy modules of the program are initialized by its first call"


class Uninitialized(RecordAgain):
    """The program calls an uninitialized lazy module; it is initialized before the next recording.

    Attributes:
        module: the lazy module.
        args, kwargs: the arguments of the call, with placeholders in place of tensors of the program.
        in_order: whether initializing it now draws the same random numbers as eager.
    """

    def __init__(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, in_order: bool) -> None:
        super().__init__(REASON)
        self.module = module
        self.args = args
        self.kwargs = kwargs
        self.in_order = in_order

    def following(self, attempt: Attempt) -> Attempt:
        """As `RecordAgain.following`.

        Raises:
            EagerCallNeeded: only an eager call can initialize the module: its class is the user's and may read values,
                or random numbers are drawn before.
        """
        module = self.module
        if not (self.in_order and type(module).initialize_parameters.__module__.startswith("torch.")):
            raise EagerCallNeeded(REASON)
        args, kwargs = tree_map(_tensor, (self.args, self.kwargs))
        module._infer_parameters(module, args, kwargs)
        return attempt


class PreparationNeeded(RecordAgain):
    """A module has to be prepared before its first call; the program is recorded again afterwards.

    Attributes:
        prepare: prepares the module. Its changes stay.
    """

    def __init__(self, reason: str, prepare: Callable[[], None]) -> None:
        super().__init__(reason)
        self.prepare = prepare

    def following(self, attempt: Attempt) -> Attempt:
        """As `RecordAgain.following`."""
        self.prepare()
        return attempt


@dataclass(frozen=True)
class _Placeholder:
    """The metadata of a tensor of a recording that was abandoned."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    def tensor(self) -> torch.Tensor:
        return torch.empty(self.shape, dtype=self.dtype, device="meta")


def before_call(recorder: Recorder, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Check a module of the program before each of its calls.

    Raises:
        Uninitialized: it is a lazy module that has to be initialized first.
    """
    if not isinstance(module, _CHANGING):
        return
    generate_code(module)
    lazy: Any = module
    if isinstance(module, LazyModuleMixin) and lazy.has_uninitialized_params():
        in_order = not any(op.effects.irremovable for op in recorder.trace.all_ops())
        values = tree_map(_without_program, (args, kwargs))
        raise Uninitialized(module, *values, in_order=in_order)


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


_CLASSES: Final = {
    "torch.distributed.fsdp": ("FSDPModule", "FullyShardedDataParallel"),
    "torch.distributed._composable.replicate": ("DDP",),
}
_NAMES: Final = {
    "FSDPModule": "a module that fully_shard was applied to",
    "FullyShardedDataParallel": "FullyShardedDataParallel",
    "DDP": "a module that replicate was applied to",
}
_ADVICE: Final = {
    "FSDPModule": "compile the modules inside of it, each by itself",
    "FullyShardedDataParallel": "use fully_shard, or put it around: FullyShardedDataParallel(thunder.jit(module))",
    "DDP": "use DistributedDataParallel, or compile the modules inside of it, each by itself",
}
_RECORDED_BY_PLUGINS: Final = frozenset({"FSDPModule"})
_taken_over: Final[set[str]] = set()
_HOOKS_UNSEEN: Final = is_missing(module_backward_hook)  # without it, backward hooks of modules are not recorded


def take_over(name: str) -> None:
    """Record the calls of modules of a refused class from now on: a plugin has interceptions for its hooks.

    Raises:
        ValueError: ``name`` is not one of the refused classes of `torch.distributed`.
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
        return call_eagerly(recorder, module, args, kwargs)
    if not prepared:
        return original(module, *args, **kwargs)
    before = len(recorder.after_calls)
    try:
        return original(module, *args, **kwargs)
    finally:
        while len(recorder.after_calls) > before:
            recorder.after_calls.pop()()


@cached_by_class
def _distributed_kind(kind: Any) -> str | None:
    """The name of the class of `torch.distributed` that modules of the class ``kind`` were prepared with, or None.

    A class that is not imported yet cannot be a base of an existing class.
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

    In eager its hooks communicate, replace parameters and free storages, which is not recorded.
    """
    raise UnsupportedError(
        f"{_NAMES[name]} cannot run inside a compiled program: its hooks, which gather parameters and reduce "
        "gradients, would run once, at compile time",
        location=user_location(),
        advice=(
            *(advice_on_plugins(SUBJECT) if name in _RECORDED_BY_PLUGINS else ()),
            _ADVICE[name],
            "or leave the module to eager PyTorch",
        ),
    )
