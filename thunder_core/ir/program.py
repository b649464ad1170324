"""Python source into callables that tracebacks and debuggers can show."""

from __future__ import annotations

import itertools
import linecache
import time
import weakref
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

from thunder_core.ir.function_printer import CHECK, CHECKED
from thunder_core.ir.location import SourceLocation
from thunder_core.ir.printer import PrintedTrace, render_trace
from thunder_core.ir.result_checks import FirstRun, ResultChecks
from thunder_core.ir.size import SIZE_NAMES
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


def compile_trace(
    trace: Trace,
    *,
    title: str | None = None,
    boxed: bool = False,
    costs: ResultChecks | None = None,
    sizes: tuple[str, ...] | None = None,
) -> Callable[..., Any]:
    """The trace as a callable of its inputs, followed by its sizes.

    A symbol of function style is called by its dotted name where that gives its very target; in all other cases (a
    compiled region, a function whose module is hidden by another object of that name) its target is bound to a name.

    What executors' functions return is compared with their lines until one run is through, and in each run under
    ``THUNDER_VERIFY=1``: see `check_results`.

    Args:
        boxed: the callable takes one list of its inputs, which it empties, so that it alone holds them.
        costs: where the cost of the checks is added.
        sizes: the symbols that it takes; by default those that the trace has.
    """
    printed = render_trace(trace, comments=False, boxed=boxed, sizes=sizes)
    globals_ = {**SIZE_NAMES, **printed.local_targets}
    title = title or trace.name
    function = compile_source(printed.source, trace.name, globals_, title=title, locations=printed.locations)
    if printed.claimed:
        _check_first_run(function, trace.name, printed, globals_, title, costs or ResultChecks())
    return function


def compile_sizes(values: Any, sizes: tuple[str, ...]) -> Callable[..., Any]:
    """Nested tuples of sizes as a function of the symbols ``sizes``, which returns them as plain ints."""
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


def location_of(filename: str, line: int) -> SourceLocation | None:
    """The user's line for a line of generated source; None if there is none."""
    return _locations.get(filename, {}).get(line)


def _forget(filename: str) -> None:
    linecache.cache.pop(filename, None)
    _locations.pop(filename, None)
