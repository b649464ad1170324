"""How PyTorch's control-flow operators are recorded: ``torch.cond``, ``map``, ``scan``, ``while_loop``.

Loops are unrolled. The number of iterations depends on a size, or on a condition that the compiled program checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

import torch

from thunder_core.errors import UnsupportedError
from thunder_core.ir.effects import joined
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.tree import iterate_leaves, map_leaves
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
from thunder_core.symbols import control_flow
from thunder_core.tracing.frames import user_location
from thunder_frontend.record.open_trace import Region
from thunder_frontend.record.recorder import Recorder
from thunder_frontend.record.traced_tensor import Variable


def cond(
    recorder: Recorder,
    original: Callable[..., Any],
    pred: Any,
    true_fn: Callable[..., Any],
    false_fn: Callable[..., Any],
    operands: Iterable[Any] = (),
) -> Any:
    """The interception of `torch.cond`: both branches are recorded. Returns tensors with the metadata of both.

    Raises:
        UnsupportedError: the branches differ in structure or metadata, or write to tensors from outside.
    """
    operands = tuple(operands)
    if isinstance(pred, bool):
        return true_fn(*operands) if pred else false_fn(*operands)
    branches = [_branch(recorder, function, operands) for function in (true_fn, false_fn)]
    regions, proxies = [region for region, _ in branches], [output for _, output in branches]
    _check_agreement(*proxies)
    free = {proxy.name: proxy for region in regions for proxy in region.free()}
    for leaf in iterate_leaves(proxies):
        if isinstance(leaf, TensorProxy) and not any(leaf.name in region.defined() for region in regions):
            free.setdefault(leaf.name, leaf)
    names = ("true_branch", "false_branch")
    inputs = tuple(free.values())
    traces = [region.body(name, inputs, output) for name, (region, output) in zip(names, branches, strict=True)]
    effects = joined([region.effects() for region in regions])

    def new(leaf: Any) -> Any:
        if not isinstance(leaf, TensorProxy):
            return leaf
        storage = recorder.trace.storages.new()
        return Variable(replace(leaf, name=recorder.trace.names.intermediate(), storage=storage, offset=0))

    variables = map_leaves(new, proxies[0])
    output = map_leaves(lambda leaf: leaf.proxy if isinstance(leaf, Variable) else leaf, variables)
    predicate = recorder.tensors.proxy_of(pred)
    recorder.trace.write(control_flow.COND, (predicate, *traces, inputs), {}, output, effects)
    return map_leaves(lambda leaf: recorder.tensors.traced(leaf) if isinstance(leaf, Variable) else leaf, variables)


def _branch(recorder: Recorder, function: Callable[..., Any], operands: tuple[Any, ...]) -> tuple[Region, Any]:
    """The recorded region of a branch, and its result with proxies for tensors."""
    region = Region(recorder.trace, recorder.tensors)
    with region.recording():
        result = function(*operands)
    if region.effects().mutates:
        raise UnsupportedError(
            "a branch of torch.cond writes to a tensor from outside of it",
            location=user_location(),
            advice=("return the new value from both branches instead",),
        )
    return region, recorder.tensors.proxies(result)


def _check_agreement(first: Any, second: Any) -> None:
    def describe(leaf: Any) -> Any:
        if isinstance(leaf, TensorProxy):
            return (tuple(leaf.shape), tuple(leaf.stride), leaf.dtype, leaf.device)
        return leaf

    one, other = map_leaves(describe, first), map_leaves(describe, second)
    if one != other:
        raise UnsupportedError(
            f"the branches of torch.cond return different results: {one} and {other}",
            location=user_location(),
            advice=("make both branches return tensors of the same shape, strides and dtype",),
        )


def _map(
    recorder: Recorder,
    original: Any,
    function: Callable[..., Any],
    tensors: Sequence[torch.Tensor],
    others: Sequence[Any],
    mutated_arg_indices: str = "",
) -> Any:
    """``function(*slices, *others)`` for the slices of each index of the first dimension; results are stacked.

    Args:
        mutated_arg_indices: which arguments the function writes; not used, as its recorded ops have these effects.
    """
    return _stacked([function(*[tensor[index] for tensor in tensors], *others) for index in range(len(tensors[0]))])


def _scan(
    recorder: Recorder,
    original: Any,
    combine: Callable[..., Any],
    init: Sequence[Any],
    tensors: Sequence[torch.Tensor],
    additional_inputs: Sequence[Any],
    mutated_arg_indices: str = "",
) -> Any:
    """Call ``combine(*carried, *slices, *additional)`` for each index of the scanned dimension.

    Returns the last carried values and the stacked outputs, in the structure that ``combine`` returns: a pair of both,
    or a flat list.
    """
    carried, outputs, carried_structure = list(init), [], None
    pairs = False
    for index in range(len(tensors[0])):
        result = combine(*carried, *[tensor[index] for tensor in tensors], *additional_inputs)
        pairs = len(result) == 2 and len(tree_leaves(result[0])) == len(init)
        first, rest = result if pairs else (result[: len(init)], result[len(init) :])
        carried, carried_structure = tree_flatten(first)
        outputs.append(rest)
    stacked = _stacked(outputs)
    if pairs:
        return tree_unflatten(carried, carried_structure), stacked
    return [*carried, *stacked]


def _while_loop(
    recorder: Recorder,
    original: Any,
    condition: Callable[..., Any],
    body: Callable[..., Any],
    carried: Sequence[Any],
    additional_inputs: Sequence[Any],
    mutated_arg_indices: str = "",
) -> tuple[Any, ...]:
    """Repeat ``carried = body(*carried, *additional)`` while the condition holds for ``carried``."""
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


def _stacked(results: list[Any]) -> Any:
    """Results of the same structure, with the tensors stacked; other values have to be equal in all of them."""
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


OPERATORS: Final[dict[Any, Callable[..., Any]]] = {
    operator: handler
    for operator, handler in ((map_impl, _map), (scan_op, _scan), (while_loop_op, _while_loop), (cond_op, cond))
    if not is_missing(operator)
}
"""The handler of each operator, which calls functions of the program."""
