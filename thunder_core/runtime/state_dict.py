"""State dicts of compiled modules: what transforms make of those of the modules themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from thunder_core.passes.transform import Transform


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


def transformed_state_dict(
    module: torch.nn.Module, transforms: Sequence[Transform], destination: Any, prefix: str, keep_vars: bool
) -> Any:
    """As `torch.nn.Module.state_dict`, which a module around this one calls with its ``destination``."""
    own = module.state_dict(keep_vars=keep_vars)
    metadata = getattr(own, "_metadata", {})
    found = {f"{prefix}{name}": value for name, value in given_out(transforms, own).items()}
    if destination is None:
        destination = type(own)()
        destination._metadata = type(own)()
    destination.update(found)
    for name, version in metadata.items():
        destination._metadata[f"{prefix}{name}" if name else prefix.removesuffix(".")] = version
    return destination


def take_in_place(transforms: Sequence[Transform], state: dict[str, Any], prefix: str) -> None:
    """Change the part of ``state`` under ``prefix``, which a module around this one is loading."""
    own = {name.removeprefix(prefix): state.pop(name) for name in list(state) if name.startswith(prefix)}
    state.update({f"{prefix}{name}": value for name, value in taken_in(transforms, own).items()})
