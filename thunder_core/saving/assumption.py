"""What a call gives that cannot be run on fake tensors, from what the program says about it."""

from __future__ import annotations

import ast
from typing import Any

from thunder_core.ir.annotation_syntax import TensorAnnotation
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.module_syntax import CallSyntax, ModuleSyntax
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.symbol import CallStyle, Tag
from thunder_core.tracing.outcome import Outcome, Result, Slot


def assumed_outcome(
    module: ModuleSyntax,
    syntax: CallSyntax,
    bound: BoundSymbol,
    annotations: list[TensorAnnotation | None],
    owners: dict[str, int],
) -> Outcome:
    """The outcome that the target and the annotations of a line describe.

    Args:
        annotations: one for each name of the target.
        owners: the storage numbers that ``shares`` of an annotation may mean, by name.

    Raises:
        TraceSyntaxError: an annotation is missing.
    """
    arguments = [proxy for proxy in bound.inputs() if isinstance(proxy, TensorProxy)]
    writes = bound.symbol.style is CallStyle.METHOD and bound.symbol.name.endswith("_")
    results: list[Result] = []

    def structure(target: ast.expr | None) -> Any:
        if isinstance(target, ast.Tuple | ast.List):
            return tuple([structure(part) for part in target.elts])
        if not isinstance(target, ast.Name) or target.id == "_":
            return None
        said = annotations[len(results)]
        if said is None:
            raise module.error(
                f"what {ast.unparse(syntax.value)!r} returns depends on values, so the line needs an annotation",
                syntax.value,
                "add a comment behind it, such as  # f32[2, 3]",
            )
        results.append(_result(said, arguments, owners, writes))
        return Slot(len(results) - 1)

    return Outcome(
        structure(syntax.target), tuple(results), (0,) if writes else (), Tag.RANDOM in bound.symbol.tags, False
    )


def count_names(target: ast.expr | None) -> int:
    """How many values a target names."""
    names = [node.id for node in ast.walk(target) if isinstance(node, ast.Name)] if target is not None else []
    return len([name for name in names if name != "_"])


def _result(said: TensorAnnotation, arguments: list[TensorProxy], owners: dict[str, int], writes: bool) -> Result:
    storages = [argument.storage for argument in arguments]
    owner = owners.get(said.shares or "")
    shares = storages.index(owner) if owner in storages else -1
    return Result(
        0 if writes else -1,
        shares,
        -1,
        said.shape,
        said.stride,
        said.offset,
        said.dtype,
        said.device,
        said.requires_grad,
        said.layout,
    )
