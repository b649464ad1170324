"""State dicts of compiled modules: what transforms make of those of the modules, and the states of executors."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch

from thunder_core.passes.transform import Transform
from thunder_core.runtime.compiled import Compiled

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
