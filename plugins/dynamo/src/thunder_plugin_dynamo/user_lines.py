"""Which of the user's lines the nodes of a graph stand for, and the lines of the code that is generated from it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any, Final

import torch

from thunder_core.ir.location import SourceLocation
from thunder_core.tracing.user_frames import is_internal_file

_FRAME: Final = re.compile(r'File "(.+)", line (\d+), in (.+)')


def user_line(node: torch.fx.Node) -> SourceLocation | None:
    """The innermost line of the stack that Dynamo noted for a node which is not PyTorch's; None if there is none."""
    frames = [SourceLocation(file, int(line), name) for file, line, name in _FRAME.findall(node.stack_trace or "")]
    own = [frame for frame in frames if not is_internal_file(frame.filename)]
    found = own or frames
    return found[-1] if found else None


def lines_of_code(module: torch.fx.GraphModule) -> dict[int, SourceLocation]:
    """The user's line for each line of ``module.code`` that belongs to a node.

    What Dynamo adds, such as the end of a ``with`` statement, has no line of its own and gets that of what precedes it.
    """
    locations: dict[str, SourceLocation] = {}
    latest: SourceLocation | None = None
    for node in module.graph.nodes:
        latest = user_line(node) or latest
        if latest is not None:
            locations[node.name] = latest
    found: dict[int, SourceLocation] = {}
    for line, name in _assignments(ast.parse(module.code)):
        if name in locations:
            found.setdefault(line, locations[name])
    return found


def _assignments(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and name of each value that the code computes; ``name = None`` ends the life of one."""
    for statement in ast.walk(tree):
        if not isinstance(statement, ast.Assign | ast.AnnAssign):
            continue
        if isinstance(statement.value, ast.Constant) and statement.value.value is None:
            continue
        targets: list[Any] = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        for target in targets:
            if isinstance(target, ast.Name):
                yield statement.lineno, target.id
