"""What `thunder.jit` returns for a module."""

from __future__ import annotations

import copy
import functools
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import torch

from thunder_core.acquire.tracebacks import folded
from thunder_core.config.settings import Settings
from thunder_core.guards.compiled_modules import ORIGINAL
from thunder_core.passes.transform import Transform
from thunder_core.runtime.compiled import Compiled
from thunder_core.runtime.module_class import class_for, follow_class, new_instance
from thunder_core.runtime.module_forward import COMPILED, COMPILED_FORWARD, compiled_of
from thunder_core.tracing.user_frames import calls_program

_STATES: Final = "executor_states."
"""What the names of entries begin with that are executors'. A name goes on with that of the executor."""


def given_out(transforms: Sequence[Transform], state: dict[str, Any]) -> dict[str, Any]:
    """What ``state_dict()`` of the compiled module returns: the last transform's change first."""
    for transform in reversed(transforms):
        state = transform.on_state_dict(state)
    return state


def taken_in(transforms: Sequence[Transform], state: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the module itself is to load."""
    for transform in transforms:
        state = transform.on_load_state_dict(state)
    return state


def compiled_state_dict(
    module: torch.nn.Module, compiled: Compiled, destination: Any, prefix: str, keep_vars: bool
) -> Any:
    """As `torch.nn.Module.state_dict`, which a module around this one calls with its ``destination``."""
    own = module.state_dict(keep_vars=keep_vars)
    metadata = getattr(own, "_metadata", {})
    found = {f"{prefix}{name}": value for name, value in given_out(compiled.settings.transforms, own).items()}
    found |= {f"{prefix}{_STATES}{name}": value for name, value in compiled.states.state_dict().items()}
    if destination is None:
        destination = type(own)()
        destination._metadata = type(own)()
    destination.update(found)
    for name, version in metadata.items():
        destination._metadata[f"{prefix}{name}" if name else prefix.removesuffix(".")] = version
    return destination


def without_states(compiled: Compiled, state: Mapping[str, Any]) -> Mapping[str, Any]:
    """What is left for the module, after executors took their entries.

    Entries may be missing: the states then stay as they are. Those of executors that the program is not compiled with
    are left, so that strict loading complains of them; where the device chooses the executors, all are taken.
    """
    by_device = compiled.settings.config.executors is None
    names = (_STATES,) if by_device else tuple([f"{_STATES}{own.name}." for own in compiled.settings.executors])
    own = {name.removeprefix(_STATES): value for name, value in state.items() if name.startswith(names)}
    if not own:
        return state
    compiled.states.load_state_dict(own)
    rest = {name: value for name, value in state.items() if not name.startswith(names)}
    return _with_metadata(rest, state)


def take_in_place(compiled: Compiled, state: dict[str, Any], prefix: str) -> None:
    """Change the part of ``state`` under ``prefix``, which a module around this one is loading."""
    own = {name.removeprefix(prefix): state.pop(name) for name in list(state) if name.startswith(prefix)}
    taken = taken_in(compiled.settings.transforms, without_states(compiled, own))
    state.update({f"{prefix}{name}": value for name, value in taken.items()})


def _with_metadata(state: dict[str, Any], like: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same with the versions of modules that PyTorch keeps beside the entries."""
    metadata = getattr(like, "_metadata", None)
    if metadata is None:
        return state
    found: OrderedDict[str, Any] = OrderedDict(state)
    found._metadata = metadata  # type: ignore[attr-defined]
    return found


class ThunderModule(torch.nn.Module):
    """A compiled module: an instance of the original's class whose calls, and whose ``forward``, run compiled.

    `compile_module` makes them. Their classes are subclasses of this one and of the original's. Parameters, buffers,
    submodules, hooks, attributes and the training flag *are* the original's, since both objects have one ``__dict__``.
    So optimizers, ``state_dict``, ``to`` and the rest of `torch.nn.Module` work on either, and methods that call the
    module run the compiled program through the compiled module, and eager PyTorch through the original. The compiled
    module equals the original, so that either is found in dictionaries of modules.

    Copying and pickling keep the original and the options; compiled entries are made again when needed.
    """

    @calls_program
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return getattr(self, COMPILED)(*args, **kwargs)
        except Exception as error:
            error.__traceback__ = folded(error)
            raise

    def no_sync(self) -> AbstractContextManager[None]:
        """A context in which backward does not synchronise gradients between processes.

        That of the original module if it has one, as `torch.nn.parallel.DistributedDataParallel` does. Any other module
        does not synchronise gradients by itself, so the context changes nothing: training loops may use it in any case.
        """
        original = getattr(getattr(self, ORIGINAL), "no_sync", None)
        return nullcontext() if original is None else original()

    def state_dict(self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False) -> Any:
        """The original's, as the transforms give it out, and what executors keep between calls."""
        original, compiled = getattr(self, ORIGINAL), compiled_of(self)
        changed = compiled.settings.transforms or compiled.states.found or compiled.states.loaded
        if args or not changed:  # PyTorch still takes them by position, and warns
            return original.state_dict(*args, destination=destination, prefix=prefix, keep_vars=keep_vars)
        return compiled_state_dict(original, compiled, destination, prefix, keep_vars)

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        """The original's, of what the transforms make of ``state_dict``; executors take what is theirs."""
        compiled = compiled_of(self)
        taken = taken_in(compiled.settings.transforms, without_states(compiled, state_dict))
        return getattr(self, ORIGINAL).load_state_dict(taken, *args, **kwargs)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        take_in_place(compiled_of(self), state_dict, prefix)
        getattr(self, ORIGINAL)._load_from_state_dict(state_dict, prefix, *args)

    def _replicate_for_data_parallel(self) -> torch.nn.Module:
        """A replica of the original: `torch.nn.DataParallel` makes new ones at each call, so they run eagerly."""
        replica: torch.nn.Module = getattr(self, ORIGINAL)._replicate_for_data_parallel()
        return replica

    def __getattr__(self, name: str) -> Any:
        if follow_class(self):  # the class of the original was changed, and may have the attribute
            return getattr(self, name)
        return super().__getattr__(name)

    def __init_subclass__(cls) -> None:
        """Does not call that of the original's class, which may register what is no class of the user's."""

    def __repr__(self) -> str:
        return f"ThunderModule({getattr(self, ORIGINAL)!r})"

    def __copy__(self) -> Any:
        return compile_module(copy.copy(getattr(self, ORIGINAL)), compiled_of(self).settings)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        settings = copy.deepcopy(compiled_of(self).settings, memo)
        return compile_module(copy.deepcopy(getattr(self, ORIGINAL), memo), settings)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return compile_module, (getattr(self, ORIGINAL), compiled_of(self).settings)


functools.update_wrapper(ThunderModule.__call__, torch.nn.Module.__call__)


def compile_module(module: torch.nn.Module, settings: Settings) -> Any:
    """A compiled module that shares everything with ``module``, which goes on running eagerly when it is called itself.

    Raises:
        UnsupportedError: ``module`` is also a dict, a list or the like, whose content cannot be shared.
    """
    made = new_instance(class_for(ThunderModule, type(module)), module)
    object.__setattr__(made, COMPILED, Compiled(module, type(module).__qualname__, settings))
    object.__setattr__(made, COMPILED_FORWARD, None)
    return made
