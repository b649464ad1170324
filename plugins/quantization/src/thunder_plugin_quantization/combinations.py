"""Which weights, activations and group sizes go together. Imports no PyTorch, as options are read without it."""

from __future__ import annotations

from typing import Final, Literal

from thunder_core.errors import OptionError

Weights = Literal["int8", "int4", "float8", "nf4"]
Activations = Literal["int8", "float8"]

COMBINATIONS: Final[dict[str, tuple[str | None, ...]]] = {
    "int8": (None, "int8"),
    "int4": (None, "int8", "float8"),
    "float8": (None, "float8"),
    "nf4": (None,),
}
"""The activations that torchao has kernels for, by weights."""
_PER_ROW: Final = (("int8", "int8"), ("float8", "float8"), ("int4", "float8"))
"""Combinations whose kernels have fixed scales."""


def check_combination(
    weights: str, activations: str | None, group_size: int | None = None, differentiable: bool = False
) -> None:
    """Raise OptionError for options that no kernel of torchao can run."""
    if weights not in COMBINATIONS:
        raise OptionError(
            f"weights cannot be quantized to {weights!r}", advice=(f"use one of {', '.join(COMBINATIONS)}",)
        )
    possible = COMBINATIONS[weights]
    if activations not in possible:
        names = ", ".join("null" if one is None else one for one in possible)
        raise OptionError(
            f"there are no kernels for weights {weights!r} with activations {activations!r}",
            advice=(f"set activations to one of: {names}",),
        )
    if group_size is not None and (weights, activations) in _PER_ROW:
        raise OptionError(
            f"kernels for weights {weights!r} with activations {activations!r} have fixed scales",
            advice=("leave out group_size, or the activations",),
        )
    if group_size is not None and (group_size < 1 or (weights == "nf4" and group_size % 2)):
        raise OptionError(
            f"the group size {group_size} is not possible", advice=("use a power of two, such as 32 or 64",)
        )
    if differentiable and activations is not None:
        raise OptionError(
            "gradients do not pass through activations that are quantized",
            advice=("leave out the activations, or differentiable",),
        )
