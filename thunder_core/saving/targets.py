"""From the target of an assignment to the names of a call's results."""

from __future__ import annotations

import ast
from typing import Any

from thunder_core.ir.module_syntax import CallSyntax, ModuleSyntax
from thunder_core.ir.tree import iterate_leaves
from thunder_core.tracing.outcome import Outcome, Slot


def bind_target(module: ModuleSyntax, syntax: CallSyntax, outcome: Outcome, flattened: bool) -> tuple[str | None, ...]:
    """The names of the tensors that a call returns, in order; None for one that is dropped.

    Raises TraceSyntaxError when the target does not fit what the call returns.
    """
    structure = tuple(iterate_leaves(outcome.structure)) if flattened else outcome.structure
    names: dict[int, str] = {}
    if syntax.target is not None:
        _bind(module, syntax.target, structure, names)
    return tuple([names.get(index) for index in range(len(outcome.results))])


def _bind(module: ModuleSyntax, target: ast.expr, structure: Any, names: dict[int, str]) -> None:
    if isinstance(structure, Slot):
        if not isinstance(target, ast.Name):
            raise module.error(f"{ast.unparse(target)!r} is no name for a tensor", target)
        if target.id != "_":
            names[structure.index] = target.id
        return
    if not isinstance(structure, tuple | list):
        if not (isinstance(target, ast.Name) and target.id == "_"):
            raise module.error(f"{ast.unparse(target)!r} names {structure!r}, which is no tensor", target, "write _")
        return
    if not isinstance(target, ast.Tuple | ast.List) or len(target.elts) != len(structure):
        raise module.error(
            f"the call returns {len(structure)} values, which {ast.unparse(target)!r} does not take apart", target
        )
    for part, item in zip(target.elts, structure, strict=True):
        _bind(module, part, item, names)
