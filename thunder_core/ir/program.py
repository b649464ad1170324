"""Python source into callables that tracebacks and debuggers can show."""

from __future__ import annotations

import itertools
import linecache
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from thunder_core.ir.location import SourceLocation
from thunder_core.ir.printer import render_trace
from thunder_core.ir.trace import Trace

_numbers = itertools.count()
_locations: dict[str, Mapping[int, SourceLocation]] = {}


def compile_source(
    source: str,
    function_name: str,
    namespace: dict[str, Any],
    *,
    title: str,
    locations: Mapping[int, SourceLocation] | None = None,
) -> Callable[..., Any]:
    """Execute ``source`` and return the function that it defines under ``function_name``.

    The source is shown by tracebacks, pdb and `inspect` for as long as the function lives.

    Args:
        namespace: the globals that the source runs with; they are filled in place, but for the function itself.
        title: what the source is, for its file name ``<thunder title N>``.
        locations: the user's line for lines of the source, used by `annotate_exception`.
    """
    filename = f"<thunder {title} {next(_numbers)}>"
    code = compile(source, filename, "exec", dont_inherit=True)
    exec(code, namespace)
    # out of its own globals, so that it is freed with its last reference instead of by the cycle collector
    function: Callable[..., Any] = namespace.pop(function_name)
    lines = source.splitlines(keepends=True)
    linecache.cache[filename] = (len(source), None, lines, filename)
    _locations[filename] = locations or {}
    weakref.finalize(function, _forget, filename).atexit = False
    return function


def compile_trace(trace: Trace, *, title: str | None = None, boxed: bool = False) -> Callable[..., Any]:
    """The trace as a callable of its inputs.

    Symbols of function style are looked up by their dotted name; one without an importable name (a compiled region,
    say) is bound to its target.

    Args:
        boxed: the callable takes one list of its inputs, which it empties, so that it alone holds them.
    """
    printed = render_trace(trace, comments=False, boxed=boxed)
    globals_ = dict(printed.local_targets)
    return compile_source(printed.source, trace.name, globals_, title=title or trace.name, locations=printed.locations)


def annotate_exception(error: BaseException) -> None:
    """Add, as notes to ``error``, the user's lines of the generated lines that it passed through.

    Idempotent; does nothing for an exception that passed through no generated code.
    """
    notes = getattr(error, "__notes__", ())
    traceback = error.__traceback__
    while traceback is not None:
        locations = _locations.get(traceback.tb_frame.f_code.co_filename)
        location = locations.get(traceback.tb_lineno) if locations else None
        if location is not None:
            note = f"Called at {location.describe()}"
            if note not in notes:
                error.add_note(note)
                notes = error.__notes__
        traceback = traceback.tb_next


def _forget(filename: str) -> None:
    linecache.cache.pop(filename, None)
    _locations.pop(filename, None)
