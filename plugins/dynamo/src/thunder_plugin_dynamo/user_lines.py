"""The user's source lines of the nodes of a graph, and of its generated code."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

import torch

from thunder_core.ir.location import SourceLocation
from thunder_core.tracing.frames import location_of_node


def user_line(node: torch.fx.Node) -> SourceLocation | None:
    """The innermost line in the stack trace of a node that is not in PyTorch; None if there is none."""
    return location_of_node(node)


def lines_of_code(module: torch.fx.GraphModule) -> dict[int, SourceLocation]:
    """The user's source line for each line of ``module.code`` that belongs to a node.

    Lines that Dynamo adds, such as the end of a ``with`` statement, get the source line of the preceding one.
    """
    locations: dict[str, SourceLocation] = {}
    latest: SourceLocation | None = None
    for node in module.graph.nodes:
        latest = user_line(node) or latest
        if latest is not None:
            locations[node.name] = latest
    lines: dict[int, SourceLocation] = {}
    for line, name in _assignments(ast.parse(module.code)):
        if name in locations:
            lines.setdefault(line, locations[name])
    return lines


def _assignments(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and name of each value that the code computes; ``name = None`` deletes one."""
    for statement in ast.walk(tree):
        if not isinstance(statement, ast.Assign | ast.AnnAssign):
            continue
        if isinstance(statement.value, ast.Constant) and statement.value.value is None:
            continue
        targets: list[Any] = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        for target in targets:
            if isinstance(target, ast.Name):
                yield statement.lineno, target.id
