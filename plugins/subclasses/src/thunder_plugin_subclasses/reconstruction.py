"""Wrappers that a program returns or stores: each call creates new ones by ``__tensor_unflatten__``."""

from __future__ import annotations

import sys
from typing import Any, Final

import torch

from thunder_frontend.record.reconstruction import Reconstructor
from thunder_frontend.record.traced_tensor import variable_of
from thunder_plugin_subclasses.gradient_boundary import outer_tensor
from thunder_plugin_subclasses.parts import (
    added_attributes,
    carrying,
    is_dispatched_in_c,
    is_wrapper,
    not_recorded,
    parts_of,
)
from thunder_plugin_subclasses.recording import Recording

_LITERALS: Final = (type(None), bool, int, str)


def rebuild(recording: Recording, reconstructor: Reconstructor, wrapper: torch.Tensor) -> str:
    """The name of a new wrapper like ``wrapper``, after writing the statements that create it.

    Raises:
        RunEagerly: its class does not declare which tensors it holds.
        UnsupportedError: a placement of it holds a tensor.
    """
    if is_dispatched_in_c(type(wrapper)):
        _check_placements(wrapper)
    expression = _outer(recording, reconstructor, wrapper, differentiable=wrapper.requires_grad)
    name = reconstructor.assign(wrapper, expression)
    if wrapper.requires_grad and not _has_carrier(recording, wrapper):  # a leaf, as views are under no_grad
        reconstructor.statements.append(f"{name}.requires_grad_()")
    for key, item in added_attributes(wrapper).items():
        reconstructor.statements.append(f"{name}.{key} = {reconstructor.expression(item)}")
    return name


def _check_placements(wrapper: Any) -> None:
    """Refuse partial sums of rows of an embedding: their placement holds the mask of the rows that a process lacks."""
    partial = sys.modules["torch.distributed.tensor"].Partial
    for placement in wrapper.placements:
        if isinstance(placement, partial) and type(placement) is not partial:
            raise not_recorded(
                type(wrapper),
                f"the program returns or stores a DTensor whose placement is a {type(placement).__name__}",
                "call redistribute on it",
            )


def _outer(recording: Recording, reconstructor: Reconstructor, wrapper: torch.Tensor, *, differentiable: bool) -> str:
    parts = parts_of(wrapper)
    inner = "".join(
        f"{name!r}: {_part(recording, reconstructor, part, differentiable=differentiable)}, "
        for name, part in parts.inner.items()
    )
    unflatten = reconstructor.constant(type(wrapper).__tensor_unflatten__)  # type: ignore[attr-defined]
    outer = ", ".join([_copied(reconstructor, value) for value in (parts.context, parts.size, parts.stride)])
    if differentiable and _has_carrier(recording, wrapper):
        variables: Any = tuple(map(variable_of, carrying(wrapper)))
        layout = reconstructor.constant(recording.gradient_layout(variables))
        return f"{reconstructor.constant(outer_tensor)}({unflatten}, {{{inner}}}, {outer}, {layout})"
    return f"{unflatten}({{{inner}}}, {outer})"


def _has_carrier(recording: Recording, wrapper: torch.Tensor) -> bool:
    """Whether an inner tensor carries gradients."""
    return any(variable_of(part) in recording.carriers for part in carrying(wrapper))


def _part(recording: Recording, reconstructor: Reconstructor, part: Any, *, differentiable: bool) -> str:
    if not isinstance(part, torch.Tensor):
        return _copied(reconstructor, part)
    if differentiable and is_wrapper(part):
        return _outer(recording, reconstructor, part, differentiable=True)
    variable = variable_of(part) if differentiable else None
    carrier = None if variable is None else recording.carriers.get(variable)
    return reconstructor.expression(part) if carrier is None else reconstructor.output(carrier)


def _copied(reconstructor: Reconstructor, value: Any) -> str:
    """The expression for a new context in each call: new lists, tuples and dictionaries with the same items."""
    kind = type(value)
    if kind in (list, tuple):
        items = "".join(f"{_copied(reconstructor, item)}, " for item in value)
        return f"[{items}]" if kind is list else f"({items})"
    if kind is dict:
        items = "".join(
            f"{_copied(reconstructor, key)}: {_copied(reconstructor, item)}, " for key, item in value.items()
        )
        return f"{{{items}}}"
    return repr(value) if kind in _LITERALS else reconstructor.constant(value)
