"""Attention and the operations up to a copy of its result, which passes replace together.

Kernels of attention choose the strides of their results. If nothing but a copy reads a result, another kernel, or other
strides of the arguments, may change its strides, and the copy may become a view.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import torch

from thunder_core.errors import LoweringError
from thunder_core.ir.bound_symbol import BoundSymbol, tensor_inputs_of
from thunder_core.ir.builder import Builder
from thunder_core.ir.context import Context
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.symbol import Symbol, Tag
from thunder_core.ir.trace import Trace
from thunder_core.ir.tree import map_leaves
from thunder_core.tracing.trace_call import rewritten_form

_VALUE: Final = object()
"""A placeholder for the argument of a step."""

_MOVES: Final = frozenset({Tag.SHAPE, Tag.COPY})


def steps_to_copy(value: Any, trace: Trace) -> list[BoundSymbol]:
    """The views of a value up to its copy, and the copy; empty if anything else reads the value or one of its views."""
    steps = list[BoundSymbol]()
    while isinstance(value, TensorProxy) and trace.use_count(value.name) == 1 and not trace.is_returned(value.name):
        (step,) = trace.users(value.name)
        if not step.symbol.tags & _MOVES or not step.effects.pure or len(tensor_inputs_of(step)) != 1:
            break
        steps.append(step)
        if not step.is_view():
            return steps
        value = step.output
    return []


def with_readers(
    function: Callable[..., torch.Tensor],
    attention: BoundSymbol,
    steps: Sequence[BoundSymbol],
    builder: Builder,
    context: Context,
) -> tuple[BoundSymbol, ...] | None:
    """``function`` of the attention's arguments, and the following steps on its result.

    Args:
        function: computes the attention; hashable.
        steps: those of `steps_to_copy`.
        builder: names and storages for the new ops.
        context: the modes of the trace.

    Returns:
        The ops; None if one of them rejects its arguments, or if the last result has other metadata than that of
        ``steps``.
    """
    calls = tuple([(step.symbol, _template(step.args), tuple(_template(step.kwargs).items())) for step in steps])
    output = steps[-1].output if steps else attention.output
    op = replace(attention, symbol=_SYMBOL, output=output)
    whole = _WithReaders(function, calls)
    try:
        hash(whole)
        return builder.inline(rewritten_form(op, whole, context), op)
    except (LoweringError, TypeError):  # a list among the arguments, or a kernel that rejects the layout
        return None


@dataclass(frozen=True)
class _WithReaders:
    """A function and operations on its result. Equal ones are recorded once.

    Attributes:
        function: the first operation.
        steps: the others in order, with arguments and keyword arguments.
    """

    function: Callable[..., torch.Tensor]
    steps: tuple[tuple[Symbol, tuple[Any, ...], tuple[tuple[str, Any], ...]], ...]

    def __call__(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        value = self.function(*args, **kwargs)
        for symbol, arguments, keywords in self.steps:
            value = symbol.target(*[value if item is _VALUE else item for item in arguments], **dict(keywords))
        return value


_SYMBOL: Final = Symbol("attention and its readers", _WithReaders.__call__)


def _template(arguments: Any) -> Any:
    return map_leaves(lambda leaf: _VALUE if isinstance(leaf, TensorProxy) else leaf, arguments)
