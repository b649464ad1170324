"""Compile generated Python source to callables whose source tracebacks and debuggers can show."""

from __future__ import annotations

import ast
import builtins
import itertools
import linecache
import time
import weakref
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any, Final

from thunder_core.ir.location import SourceLocation
from thunder_core.ir.printer import CHECK, CHECKED, PrintedTrace, render_trace
from thunder_core.ir.result_checks import FirstRun, ResultChecks
from thunder_core.ir.size import SIZE_NAMES
from thunder_core.ir.trace import Trace

_numbers = itertools.count()
_BUILTINS: Final = dict(vars(builtins))
_locations: dict[str, Mapping[int, SourceLocation]] = {}


def compile_source(
    source: str,
    function_name: str,
    namespace: dict[str, Any],
    *,
    title: str,
    locations: Mapping[int, SourceLocation] | None = None,
    tree: ast.Module | None = None,
) -> Callable[..., Any]:
    """Execute ``source`` and return the function that it defines under ``function_name``.

    Tracebacks, pdb and `inspect` show the source as long as the function is alive.

    Args:
        namespace: the globals of the source; its definitions are added in place, except the function itself.
        title: part of the file name ``<thunder title N>``.
        locations: user source locations by line of ``source``, for `annotate_exception`.
        tree: what is executed in place of ``source``, which is shown.
    """
    filename = f"<thunder {title} {next(_numbers)}>"
    code = compile(tree or source, filename, "exec", dont_inherit=True)
    namespace["__builtins__"] = _BUILTINS  # not those that a library or the program has put in their place
    exec(code, namespace)
    # removed from its globals, so that its last reference frees it and not the garbage collector
    function: Callable[..., Any] = namespace.pop(function_name)
    lines = source.splitlines(keepends=True)
    linecache.cache[filename] = (len(source), None, lines, filename)
    _locations[filename] = locations or {}
    weakref.finalize(function, _forget, filename).atexit = False
    return function


def compile_trace(
    trace: Trace,
    *,
    title: str | None = None,
    boxed: bool = False,
    costs: ResultChecks | None = None,
    sizes: tuple[str, ...] | None = None,
) -> Callable[..., Any]:
    """Compile the trace to a callable that takes its inputs, then its sizes.

    A symbol of function style is called by its dotted name if that evaluates to its target; otherwise (a compiled
    region, a function whose module is hidden by another object of that name) the target is bound to a global name.

    Results of executors' functions are compared with the metadata in the trace until one run completes, and in every
    run under ``THUNDER_VERIFY=1``: see `check_results`.

    Args:
        boxed: the callable takes its inputs and sizes in one list, which it empties, to hold the only references.
        costs: accumulates the cost of the checks.
        sizes: the size symbols that it takes; by default `Trace.sizes`.
    """
    printed = render_trace(trace, comments=False, boxed=boxed, sizes=sizes)
    globals_ = {**SIZE_NAMES, **printed.local_targets}
    title = title or trace.name
    function = compile_source(printed.source, trace.name, globals_, title=title, locations=printed.locations)
    if printed.claimed:
        _check_first_run(function, trace.name, printed, globals_, title, costs or ResultChecks())
    return function


def compile_sizes(values: Any, sizes: tuple[str, ...]) -> Callable[..., Any]:
    """Compile nested tuples of sizes to a function of the symbols ``sizes`` that returns the tuples with plain ints."""
    source = f"def values({', '.join(sizes)}):\n    return {values!r}\n"
    return compile_source(source, "values", dict(SIZE_NAMES), title="sizes")


def _check_first_run(
    function: Callable[..., Any],
    name: str,
    printed: PrintedTrace,
    namespace: dict[str, Any],
    title: str,
    costs: ResultChecks,
) -> None:
    start = time.perf_counter()
    run = FirstRun(printed.claimed, costs)
    namespace.update({CHECK: run.check, CHECKED: run.passed})
    checked = compile_source(printed.checked, name, namespace, title=f"{title} checked", locations=printed.locations)
    assert isinstance(function, FunctionType)
    assert isinstance(checked, FunctionType)
    run.of(function, checked)
    costs.lines += len(printed.claimed)
    costs.seconds += time.perf_counter() - start


def annotate_exception(error: BaseException) -> None:
    """Add to ``error`` a note with the user's source location for each generated line in its traceback.

    Idempotent; does nothing for an exception without generated code in its traceback.
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


def location_of(filename: str, line: int) -> SourceLocation | None:
    """The user's source location for a line of generated source; None if it has none."""
    return _locations.get(filename, {}).get(line)


def _forget(filename: str) -> None:
    linecache.cache.pop(filename, None)
    _locations.pop(filename, None)
