"""Selection of linear layers: their names, patterns of names, and why a layer has to stay as it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

import torch
from torch import nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

EXCLUDED: Final = "the option exclude names it"
FLOATS: Final = (torch.float32, torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class Layer:
    """A linear layer of a module.

    Attributes:
        paths: its names in the module; several if it is registered more than once, and the empty one for the module
            itself.
        module: the layer.
    """

    paths: tuple[str, ...]
    module: nn.Linear

    @property
    def name(self) -> str:
        """The first of its names, for messages."""
        return self.paths[0] or type(self.module).__name__

    def matches(self, patterns: Sequence[str]) -> bool:
        """Whether a pattern matches the layer, or a module that contains it."""
        return any(_matches(path, pattern) for path in self.paths for pattern in patterns)


def linear_layers(module: nn.Module) -> list[Layer]:
    """All linear layers of a module, in the order of its modules, each once."""
    paths: dict[nn.Linear, list[str]] = {}
    for path, each in module.named_modules(remove_duplicate=False):
        if isinstance(each, nn.Linear):
            paths.setdefault(each, []).append(path)
    return [Layer(tuple(names), layer) for layer, names in paths.items()]


def unmatched_patterns(layers: Sequence[Layer], patterns: Sequence[str]) -> list[str]:
    """The patterns that match no layer."""
    return [pattern for pattern in patterns if not any(layer.matches([pattern]) for layer in layers)]


def why_unusual(layer: nn.Linear) -> str | None:
    """Why the weight of a layer is not one that `torch.nn.functional.linear` is called with; None if it is."""
    if isinstance(layer, NonDynamicallyQuantizableLinear):
        return "the attention module that contains it reads its weight itself"
    if "weight" not in dict(layer.named_parameters(recurse=False)):
        return "its weight is computed, by a parametrization for example"
    if type(layer).forward is not nn.Linear.forward or "forward" in vars(layer):
        return f"{type(layer).__name__} has a forward of its own"
    return None


def why_not_float(layer: nn.Linear) -> str | None:
    """Why the weight of a usual layer is not a dense floating-point matrix in memory; None if it is."""
    weight = layer.weight
    if type(weight) is not nn.Parameter:
        return f"its weight is of class {type(weight).__name__}"
    if weight.is_meta:
        return "its weight is on the meta device: give it data first"
    if weight.dtype not in FLOATS:
        return f"its weight is {_name(weight.dtype)}, not {', '.join(map(_name, FLOATS))}"
    if weight.layout is not torch.strided or weight.dim() != 2:
        return "its weight is not a dense matrix"
    if weight.numel() == 0:
        return "its weight is empty"
    return None


def other_owners(module: nn.Module, layers: Sequence[Layer]) -> dict[int, str]:
    """By the id of a parameter its name in a module that is not the weight of one of ``layers``."""
    weights = {id(layer.module) for layer in layers}
    return {
        id(parameter): ".".join(filter(None, (path, name)))
        for path, owner in module.named_modules()
        for name, parameter in owner.named_parameters(recurse=False, remove_duplicate=False)
        if not (id(owner) in weights and name == "weight")
    }


def _matches(path: str, pattern: str) -> bool:
    return any(fnmatchcase(part, pattern) for part in _parts(path))


def _parts(path: str) -> Iterator[str]:
    """Names of consecutive components of a dotted name."""
    components = path.split(".")
    for start in range(len(components)):
        for end in range(start + 1, len(components) + 1):
            yield ".".join(components[start:end])


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
