"""Higher-order operators of PyTorch that run a program several times: ``map``, ``scan`` and ``while_loop``.

Their programs are recorded as often as they run. What decides how often is a size, or a condition that the compiled
program checks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from thunder_core.acquire.conditional import cond
from thunder_core.acquire.recorder import Recorder
from thunder_core.private_names import is_missing
from thunder_core.pytorch_internals import (
    cond_op,
    map_impl,
    scan_op,
    tree_flatten,
    tree_leaves,
    tree_unflatten,
    while_loop_op,
)


def _map(
    recorder: Recorder,
    function: Callable[..., Any],
    tensors: Sequence[torch.Tensor],
    others: Sequence[Any],
    mutated_arg_indices: str = "",
) -> Any:
    """``function(*slices, *others)`` for the slices of each index of the first dimension; results are stacked.

    Args:
        mutated_arg_indices: which arguments the function writes to, which the lines of its calls say.
    """
    return _stacked([function(*[tensor[index] for tensor in tensors], *others) for index in range(len(tensors[0]))])


def _scan(
    recorder: Recorder,
    combine: Callable[..., Any],
    init: Sequence[Any],
    tensors: Sequence[torch.Tensor],
    additional_inputs: Sequence[Any],
    mutated_arg_indices: str = "",
) -> Any:
    """``combine(*carried, *slices, *additional)`` in turn: what is carried at last, and what each turn gives, stacked.

    Returns what ``combine`` does: a pair of both, or a flat list.
    """
    carried, given, carried_structure = list(init), [], None
    pairs = False
    for index in range(len(tensors[0])):
        result = combine(*carried, *[tensor[index] for tensor in tensors], *additional_inputs)
        pairs = len(result) == 2 and len(tree_leaves(result[0])) == len(init)
        first, rest = result if pairs else (result[: len(init)], result[len(init) :])
        carried, carried_structure = tree_flatten(first)
        given.append(rest)
    stacked = _stacked(given)
    if pairs:
        return tree_unflatten(carried, carried_structure), stacked
    return [*carried, *stacked]


def _while_loop(
    recorder: Recorder,
    condition: Callable[..., Any],
    body: Callable[..., Any],
    carried: Sequence[Any],
    additional_inputs: Sequence[Any],
    mutated_arg_indices: str = "",
) -> tuple[Any, ...]:
    """``carried = body(*carried, *additional)`` as long as the condition holds of it."""
    values = tuple(carried)
    if not condition(*values, *additional_inputs):
        return tuple([value.clone() if isinstance(value, torch.Tensor) else value for value in values])
    while True:
        values = tuple(tree_leaves(body(*values, *additional_inputs)))
        if len(values) != len(carried):
            raise AssertionError(
                "body_fn should return the same number of elements as carried_inputs, "
                f"got {len(values)} vs {len(carried)}"
            )
        if not condition(*values, *additional_inputs):
            return values


def _cond(recorder: Recorder, predicate: Any, true: Any, false: Any, operands: Sequence[Any] = ()) -> Any:
    return cond(recorder, torch.cond, predicate, true, false, operands)


def _stacked(results: list[Any]) -> Any:
    """One structure of results, each stacked; what is no tensor has to be the same in all of them."""
    leaves, structures = zip(*map(tree_flatten, results), strict=True)
    columns = list(zip(*leaves, strict=True))
    return tree_unflatten(
        [torch.stack(column) if isinstance(column[0], torch.Tensor) else _only(column) for column in columns],
        structures[0],
    )


def _only(values: Sequence[Any]) -> Any:
    if any(value != values[0] for value in values):
        raise RuntimeError(f"Cannot stack {values}.")
    return values[0]


HANDLERS: Final[dict[Any, Callable[..., Any]]] = {
    operator: handler
    for operator, handler in ((map_impl, _map), (scan_op, _scan), (while_loop_op, _while_loop), (cond_op, _cond))
    if not is_missing(operator)
}
"""What the operators do while a program is recorded."""
