"""The interface of models for the benchmarks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn


class UnknownModel(ValueError):
    """There is no such model, or it has no such setting."""


@dataclass(frozen=True)
class BenchmarkModel:
    """A model and the shape of its inputs.

    Attributes:
        module: from one tensor to logits ``(..., classes)``, or to an object with an attribute ``logits``.
        classes: number of classes; the size of the vocabulary for a language model.
        shape: shape of one input without the batch dimension; None for a language model.
        cached: whether the module has LitGPT's ``set_kv_cache`` and takes positions as its second argument.
    """

    module: nn.Module
    classes: int
    shape: tuple[int, ...] | None = None
    cached: bool = False


def native_settings(
    overrides: dict[str, Any], words: dict[str, str], defaults: Mapping[str, Any], model: str
) -> dict[str, Any]:
    """The overrides with the common names replaced by the names in the model's configuration.

    Args:
        overrides: values by common or native name.
        words: native names by common name.
        defaults: the settings of the model, with their default values.
        model: the model's name, for messages.

    Raises:
        UnknownModel: a setting is not in ``defaults``, or its value does not have the type of the default.
    """
    settings = {words.get(name, name): value for name, value in overrides.items()}
    for name, value in settings.items():
        if name not in defaults:
            from thunder_core.errors import suggestion

            hint = suggestion(name, defaults) or f"; it has {', '.join(sorted(defaults))}"
            raise UnknownModel(f"{model} has no setting {name!r}{hint}")
        expected = _expected_type(defaults[name], value)
        if expected:
            raise UnknownModel(f"the setting {name!r} of {model} is {expected}, not {value!r}")
    return settings


def _expected_type(default: Any, value: Any) -> str:
    """A description of the setting's type if the value does not have it; other types than these are not checked."""
    if isinstance(default, bool):
        return "" if isinstance(value, bool) or value is None else "true or false"
    if isinstance(default, int | float) and isinstance(value, bool | str):
        return "a number (as YAML writes it: 1.0e-5, not 1e-5)" if isinstance(default, float) else "a number"
    if isinstance(default, str) and isinstance(value, bool | int | float):
        return "text"
    return ""
