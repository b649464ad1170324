"""The interface of models for the benchmarks."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn


class UnknownModel(ValueError):
    """There is no such model, or it has no such setting."""


class MissingPackage(UnknownModel):
    """The model needs a package that is not installed."""


@dataclass(frozen=True)
class Tokens:
    """Token ids ``(batch, length)``, where ``length`` is that of the workload, divided by ``divisor``."""

    divisor: int = 1


@dataclass(frozen=True)
class Features:
    """Normally distributed numbers ``(batch, *shape)`` in the dtype of the weights."""

    shape: tuple[int, ...]


@dataclass(frozen=True)
class Integers:
    """Random integers ``(batch,)`` from 0 to ``limit - 1``."""

    limit: int


Input = Tokens | Features | Integers


@dataclass(frozen=True)
class BenchmarkModel:
    """A model and its inputs and targets.

    A model of tokens is trained to predict the following tokens, of its last input if several are tokens. Another one
    is trained to predict random classes, or, without classes, random numbers of the shape of its first input.

    Attributes:
        module: called with one tensor, and with the tensors ``more`` by name. Its output has to be one that
            `benchmarks.tasks.predictions` accepts.
        classes: number of classes; the size of the vocabulary for a language model; 0 for numbers as targets.
        input: the first input.
        more: further inputs, by the names of the module's parameters.
        positions: shape of the predictions of one sample, without classes: ``(height, width)`` for one per pixel.
        cached: whether the module has LitGPT's ``set_kv_cache`` and takes positions as its second argument.
    """

    module: nn.Module
    classes: int
    input: Tokens | Features = Tokens()
    more: Mapping[str, Input] = field(default_factory=dict)
    positions: tuple[int, ...] = ()
    cached: bool = False


def require(package: str, name: str) -> None:
    """Raise `MissingPackage` if ``package``, which the model ``name`` needs, is not installed."""
    if importlib.util.find_spec(package) is None:
        raise MissingPackage(f"{name} needs the package {package}, which is not installed: pip install {package}")


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
