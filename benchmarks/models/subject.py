"""A model as the benchmarks see it."""

from __future__ import annotations

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


def translated(overrides: dict[str, Any], words: dict[str, str], known: set[str], model: str) -> dict[str, Any]:
    """The overrides in a family's own words.

    Raises:
        UnknownModel: ``known``, the names of the family's settings, does not have one of them.
    """
    found = {words.get(name, name): value for name, value in overrides.items()}
    for name in found:
        if name not in known:
            from thunder_core.plugins.nearest import suggestion

            hint = suggestion(name, known) or f"; it has {', '.join(sorted(known))}"
            raise UnknownModel(f"{model} has no setting {name!r}{hint}")
    return found
