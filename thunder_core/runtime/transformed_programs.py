"""Programs of tensors alone, and what torch.func makes of them: what runs for a call under its transformations.

A flat program takes the user's function and tensors, and returns a tuple of tensors and a template for the result that
they belong in, None for a derivative. Each function here makes one; programs that are made of equal things do the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from thunder_core.errors import UnsupportedError
from thunder_core.pytorch_internals import tree_flatten, tree_map, tree_unflatten

Tensors = tuple[torch.Tensor, ...]
FlatProgram = Callable[..., tuple[Tensors, Any]]

CONSTANTS: Final = (type(None), bool, int, float, complex, str, torch.dtype, torch.device)
"""Classes of what may be among arguments and results beside tensors."""


def flat_program(spec: Any, leaves: tuple[tuple[bool, Any], ...], names: tuple[str, ...]) -> FlatProgram:
    """A call of a function, which is an argument so that guards follow what it reads.

    Args:
        spec: the structure of positional and keyword arguments.
        leaves: for each leaf of it whether it is a tensor, and what it is otherwise.
        names: of the parameters and buffers of the module that are the program's first tensors.
    """

    def program(function: Callable[..., Any], *tensors: torch.Tensor) -> tuple[Tensors, Any]:
        rest = iter(tensors[len(names) :])
        args, kwargs = tree_unflatten([next(rest) if tensor else leaf for tensor, leaf in leaves], spec)
        if not names:
            return _split(function(*args, **kwargs))
        state = dict(zip(names, tensors, strict=False))
        return _split(torch.func.functional_call(function, state, args, kwargs))  # type: ignore[arg-type]

    return program


def _split(result: Any) -> tuple[Tensors, Any]:
    leaves, spec = tree_flatten(result)
    tensors = tuple([leaf for leaf in leaves if isinstance(leaf, torch.Tensor)])
    others = tuple([None if isinstance(leaf, torch.Tensor) else (leaf,) for leaf in leaves])
    if not tensors or not all(other is None or type(other[0]) in CONSTANTS for other in others):
        raise UnsupportedError("under torch.func, results are tensors and plain values")
    return tensors, (tree_unflatten(list(range(len(leaves))), spec), others)


def joined(template: Any, tensors: Sequence[torch.Tensor]) -> Any:
    """The result that a template describes."""
    tree, others = template
    rest = iter(tensors)
    leaves = [next(rest) if other is None else other[0] for other in others]
    return tree_map(lambda index: leaves[index], tree)


def vmap_program(program: FlatProgram, in_dims: tuple[int | None, ...], randomness: str) -> FlatProgram:
    """`torch.func.vmap` of ``program``, whose results have the batch as their first dimension."""

    def mapped(function: Callable[..., Any], *tensors: torch.Tensor) -> tuple[Tensors, Any]:
        templates = []

        def of(*tensors: torch.Tensor) -> Tensors:
            results, template = program(function, *tensors)
            templates.append(template)
            return results

        results = torch.func.vmap(of, in_dims, randomness=randomness)(*tensors)
        return results, templates[0]

    return mapped


def vjp_program(program: FlatProgram, varied: tuple[bool, ...], used: tuple[bool, ...]) -> FlatProgram:
    """`torch.func.vjp` of ``program``: takes its tensors and cotangents, returns gradients.

    Args:
        program: what is differentiated.
        varied: which of its tensors get a gradient.
        used: for which of its results there is a cotangent.
    """

    def pulled(function: Callable[..., Any], *tensors: torch.Tensor) -> tuple[Tensors, Any]:
        count = len(varied)
        _, pull, *_ = torch.func.vjp(
            _partial(program, function, tensors[:count], varied, used), *_chosen(tensors, varied)
        )
        return pull(tensors[count:]), None

    return pulled


def jvp_program(program: FlatProgram, varied: tuple[bool, ...], used: tuple[bool, ...]) -> FlatProgram:
    """`torch.func.jvp` of ``program``: takes its tensors and tangents, returns tangents.

    Args:
        program: what is differentiated.
        varied: for which of its tensors there is a tangent.
        used: which of its results get a tangent.
    """

    def pushed(function: Callable[..., Any], *tensors: torch.Tensor) -> tuple[Tensors, Any]:
        count = len(varied)
        of = _partial(program, function, tensors[:count], varied, used)
        return torch.func.jvp(of, _chosen(tensors, varied), tensors[count:])[1], None

    return pushed


def _partial(
    program: FlatProgram,
    function: Callable[..., Any],
    tensors: Tensors,
    varied: tuple[bool, ...],
    used: tuple[bool, ...],
) -> Callable[..., Tensors]:
    """``program`` as a function of some of its tensors that returns some of its results."""

    def of(*chosen: torch.Tensor) -> Tensors:
        rest = iter(chosen)
        every = [next(rest) if vary else tensor for tensor, vary in zip(tensors, varied, strict=True)]
        results, _ = program(function, *every)
        return _chosen(results, used)

    return of


def _chosen(values: Sequence[torch.Tensor], which: tuple[bool, ...]) -> Tensors:
    return tuple([value for value, chosen in zip(values, which, strict=False) if chosen])
