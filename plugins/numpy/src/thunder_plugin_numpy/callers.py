"""Whether the user's code itself calls a function that is replaced while a program is recorded.

Compiled code of NumPy looks functions such as ``numpy.empty`` up in the module, and relies on a plain array: the random
functions do. It has no frame, so that the expression that runs in the frame of the user decides.
"""

from __future__ import annotations

import ast
import functools
import linecache
import sys
from types import CodeType, FrameType, ModuleType
from typing import Any, Final

from thunder_core.tracing.frames import CodeKind, kind_of
from thunder_frontend.record import interception

_REPLACEMENTS: Final = interception.__file__
_ABSENT: Final = object()


def function_called_by_user(depth: int) -> Any:
    """The function that the user's code calls right now, if an expression like ``np.zeros(3)`` names it; else None.

    Args:
        depth: the frames between the caller of this function and the replacement of the called function.
    """
    frame: FrameType | None = sys._getframe(depth)
    while frame is not None and frame.f_code.co_filename == _REPLACEMENTS:
        frame = frame.f_back
    if frame is None or kind_of(frame.f_code) is not CodeKind.USER:
        return None
    names = _called_names(frame.f_code, frame.f_lasti)
    if not names:
        return None
    found = frame.f_locals.get(names[0], frame.f_globals.get(names[0], _ABSENT))
    for name in names[1:]:
        if not isinstance(found, ModuleType):
            return None
        found = vars(found).get(name, _ABSENT)
    return None if found is _ABSENT else found


@functools.lru_cache(maxsize=1024)
def _called_names(code: CodeType, instruction: int) -> tuple[str, ...]:
    """The dotted name in a call expression, by the position of its instruction in the source; empty without one."""
    positions = list(code.co_positions())[instruction // 2]
    line, last, start, end = positions
    if line is None or last is None or start is None or end is None:
        return ()
    lines = [text.encode() for text in linecache.getlines(code.co_filename)[line - 1 : last]]
    if len(lines) != last - line + 1:
        return ()
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][start:]
    try:
        tree = ast.parse(b"(" + b"".join(lines) + b")", mode="eval").body
    except (SyntaxError, ValueError):
        return ()
    names: list[str] = []
    node = tree.func if isinstance(tree, ast.Call) else None
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return (node.id, *reversed(names)) if isinstance(node, ast.Name) else ()
