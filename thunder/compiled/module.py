"""Compiled modules, which `thunder.jit` returns for modules, and their state dicts."""

from __future__ import annotations

import copy
import functools
import sys
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import MethodType
from typing import Any, Final

import torch

from thunder.compiled.coverage import Coverage, coverage
from thunder.compiled.function import Compiled
from thunder.compiled.module_class import class_for, follow_class, new_instance
from thunder.compiled.module_forward import COMPILED, COMPILED_FORWARD, compiled_of
from thunder.compiled.other_compilers import hide_from_dynamo
from thunder_core.checks.originals import ORIGINAL
from thunder_core.passes.transform import Transform
from thunder_core.settings import Settings
from thunder_core.tracing.frames import calls_program
from thunder_core.tracing.tracebacks import folded

STATES: Final = "executor_states."
"""The prefix, in state dicts, of the states of executors. The name of the executor follows it."""


def _saved_state(transforms: Sequence[Transform], state: dict[str, Any]) -> dict[str, Any]:
    """The state dict of the compiled module: that of the original, after transforms changed it in reverse order."""
    for transform in reversed(transforms):
        state = transform.on_state_dict(state)
    return state


def _loaded_state(transforms: Sequence[Transform], state: Mapping[str, Any]) -> Mapping[str, Any]:
    """The state dict for the original module: that of the compiled one, after transforms changed it in order."""
    for transform in transforms:
        state = transform.on_load_state_dict(state)
    return state


def _compiled_state_dict(
    module: torch.nn.Module, compiled: Compiled, destination: Any, prefix: str, keep_vars: bool
) -> Any:
    """As `torch.nn.Module.state_dict`; an outer module calls it with its ``destination``."""
    original = module.state_dict(keep_vars=keep_vars)
    metadata = getattr(original, "_metadata", {})
    state = {f"{prefix}{name}": value for name, value in _saved_state(compiled.settings.transforms, original).items()}
    state |= {f"{prefix}{STATES}{name}": value for name, value in compiled.states.state_dict().items()}
    if destination is None:
        destination = type(original)()
        destination._metadata = type(original)()
    destination.update(state)
    for name, version in metadata.items():
        destination._metadata[f"{prefix}{name}" if name else prefix.removesuffix(".")] = version
    return destination


def _without_states(compiled: Compiled, state: Mapping[str, Any]) -> Mapping[str, Any]:
    """Load the states of executors in a state dict, and return the other entries.

    A missing state stays unchanged. States of executors that the configuration does not name remain in the result, so
    that strict loading reports them as unexpected. If the device chooses the executors, all states are loaded.
    """
    by_device = compiled.settings.executors_by_device
    names = (STATES,) if by_device else tuple([f"{STATES}{executor.name}." for executor in compiled.settings.executors])
    states = {name.removeprefix(STATES): value for name, value in state.items() if name.startswith(names)}
    if not states:
        return state
    compiled.states.load_state_dict(states)
    rest = {name: value for name, value in state.items() if not name.startswith(names)}
    return _with_metadata(rest, state)


def _convert_in_place(compiled: Compiled, state: dict[str, Any], prefix: str) -> None:
    """Convert the entries of ``state`` under ``prefix`` to those of the original module, for an outer module."""
    part = {name.removeprefix(prefix): state.pop(name) for name in list(state) if name.startswith(prefix)}
    loaded = _loaded_state(compiled.settings.transforms, _without_states(compiled, part))
    state.update({f"{prefix}{name}": value for name, value in loaded.items()})


def _with_metadata(state: dict[str, Any], like: Mapping[str, Any]) -> Mapping[str, Any]:
    """``state`` with the versions of modules that PyTorch attaches to the state dict ``like``."""
    metadata = getattr(like, "_metadata", None)
    if metadata is None:
        return state
    result: OrderedDict[str, Any] = OrderedDict(state)
    result._metadata = metadata  # type: ignore[attr-defined]
    return result


class ThunderModule(torch.nn.Module):
    """A compiled module: an instance of the original's class whose calls, and whose ``forward``, run compiled.

    `compile_module` creates it, as an instance of a subclass of this class and of the original's. Both objects share
    one ``__dict__``, so parameters, buffers, submodules, hooks, attributes and the training flag *are* the original's,
    and optimizers, ``state_dict``, ``to`` and other methods of `torch.nn.Module` work on either. Methods that call the
    module run the compiled program if they are called on the compiled module, and eager PyTorch if they are called on
    the original. The compiled module equals the original and has its hash.

    A copy, or the result of unpickling, has the original's copy and the options; its entries are compiled again.

    A compiled module has one more method, ``covers``, unless its original has an attribute of that name.
    """

    @calls_program
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return getattr(self, COMPILED)(*args, **kwargs)
        except Exception as error:
            error.__traceback__ = folded(error)
            raise

    def no_sync(self) -> AbstractContextManager[None]:
        """A context in which backward does not synchronize gradients between processes.

        It is that of the original module, if it has one (`torch.nn.parallel.DistributedDataParallel`). Other modules do
        not synchronize gradients, so the context has no effect.
        """
        original = getattr(getattr(self, ORIGINAL), "no_sync", None)
        return nullcontext() if original is None else original()

    def state_dict(self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False) -> Any:
        """The original's, changed by the transforms, with the states of executors."""
        original, compiled = getattr(self, ORIGINAL), compiled_of(self)
        changed = compiled.settings.transforms or compiled.states.by_key or compiled.states.loaded
        if args or not changed:  # PyTorch accepts positional arguments, and warns
            return original.state_dict(*args, destination=destination, prefix=prefix, keep_vars=keep_vars)
        return _compiled_state_dict(original, compiled, destination, prefix, keep_vars)

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Load the states of executors, and the other entries, changed by the transforms, into the original."""
        compiled = compiled_of(self)
        loaded = _loaded_state(compiled.settings.transforms, _without_states(compiled, state_dict))
        return getattr(self, ORIGINAL).load_state_dict(loaded, *args, **kwargs)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        _convert_in_place(compiled_of(self), state_dict, prefix)
        getattr(self, ORIGINAL)._load_from_state_dict(state_dict, prefix, *args)

    def _replicate_for_data_parallel(self) -> torch.nn.Module:
        """A replica of the original: `torch.nn.DataParallel` creates replicas in each call, so they run eagerly."""
        replica: torch.nn.Module = getattr(self, ORIGINAL)._replicate_for_data_parallel()
        return replica

    def __getattr__(self, name: str) -> Any:
        if follow_class(self):  # the class of the original was changed, and may have the attribute
            return getattr(self, name)
        try:
            value = super().__getattr__(name)
        except AttributeError:
            # PyTorch, which adds a parameter, asks whether the module has an attribute of its name
            if name != "covers" or sys._getframe(1).f_globals.get("__name__") == torch.nn.Module.__module__:
                raise
            return MethodType(_covers, self)
        if isinstance(value, torch.nn.Module):
            programs = compiled_of(self), getattr(self, COMPILED_FORWARD)
            programs[0].uncompiled_calls.submodule_read(self, programs, sys._getframe(1))
        return value

    def __init_subclass__(cls) -> None:
        """Does not call the hook of the original's class, which may register its subclasses."""

    def __repr__(self) -> str:
        return f"ThunderModule({getattr(self, ORIGINAL)!r})"

    def __copy__(self) -> Any:
        return compile_module(copy.copy(getattr(self, ORIGINAL)), compiled_of(self).settings)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        settings = copy.deepcopy(compiled_of(self).settings, memo)
        return compile_module(copy.deepcopy(getattr(self, ORIGINAL), memo), settings)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return compile_module, (getattr(self, ORIGINAL), compiled_of(self).settings)


hide_from_dynamo(ThunderModule.__call__)


def _covers(module: Any, /, *args: Any, **kwargs: Any) -> Coverage:
    """Whether a call of the module has a compiled program; see `thunder.covers`."""
    return coverage(compiled_of(module), args, kwargs)


functools.update_wrapper(ThunderModule.__call__, torch.nn.Module.__call__)


def compile_module(module: torch.nn.Module, settings: Settings) -> Any:
    """A compiled module that shares the ``__dict__`` of ``module``. Calls of ``module`` itself run eagerly.

    Raises:
        UnsupportedError: ``module`` is also a dict, a list or the like, whose content cannot be shared.
    """
    compiled = new_instance(class_for(ThunderModule, type(module)), module)
    object.__setattr__(compiled, COMPILED, Compiled(module, type(module).__qualname__, settings))
    object.__setattr__(compiled, COMPILED_FORWARD, None)
    return compiled
