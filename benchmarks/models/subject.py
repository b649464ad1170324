"""A model as the benchmarks see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn


class UnknownModel(ValueError):
    """There is no such model, or it has no such setting; the message says what there is."""


@dataclass(frozen=True)
class Subject:
    """A model and what it is called with.

    Attributes:
        module: takes one tensor; returns logits, or an object with ``logits``, whose last dimension is of classes.
        classes: number of classes: tokens of the vocabulary, for a language model.
        shape: of one input that is not made of tokens, without the batch; None for a language model.
        cached: the module has LitGPT's ``set_kv_cache`` and takes positions as its second argument.
    """

    module: nn.Module
    classes: int
    shape: tuple[int, ...] | None = None
    cached: bool = False


def translated(
    overrides: dict[str, Any], words: dict[str, str], defaults: Mapping[str, Any], model: str
) -> dict[str, Any]:
    """The overrides in a family's own words.

    Raises:
        UnknownModel: ``defaults``, the settings of the family, do not have one of them, or have it as something else.
    """
    found = {words.get(name, name): value for name, value in overrides.items()}
    for name, value in found.items():
        if name not in defaults:
            from thunder_core.plugins.nearest import suggestion

            hint = suggestion(name, defaults) or f"; it has {', '.join(sorted(defaults))}"
            raise UnknownModel(f"{model} has no setting {name!r}{hint}")
        wanted = _wanted(defaults[name], value)
        if wanted:
            raise UnknownModel(f"the setting {name!r} of {model} is {wanted}, not {value!r}")
    return found


def _wanted(default: Any, value: Any) -> str:
    """What a setting with this default takes, if this value is none; nothing is known of other types than these."""
    if isinstance(default, bool):
        return "" if isinstance(value, bool) or value is None else "true or false"
    if isinstance(default, int | float) and isinstance(value, bool | str):
        return "a number (as YAML writes it: 1.0e-5, not 1e-5)" if isinstance(default, float) else "a number"
    if isinstance(default, str) and isinstance(value, bool | int | float):
        return "text"
    return ""
