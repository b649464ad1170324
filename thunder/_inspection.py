"""Functions that inspect and save compiled programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from thunder._libraries import library
from thunder_core.errors import NoTraceError, OptionError

if TYPE_CHECKING:
    from thunder.report.compile_report import CompileReport
    from thunder_core.ir.trace import Trace


def compiled_program(jitted: Any) -> Any:
    from thunder.compiled.function import Compiled
    from thunder.compiled.module import ThunderModule
    from thunder.compiled.module_forward import compiled_of, forward_of

    if isinstance(jitted, ThunderModule):
        return compiled_of(jitted)
    if isinstance(jitted, Compiled):
        return jitted
    bound = getattr(jitted, "__func__", None)
    if isinstance(bound, Compiled):
        return bound
    forward = forward_of(bound)
    if forward is not None and isinstance(jitted.__self__, ThunderModule):
        return forward.compiled(jitted.__self__)
    name = getattr(jitted, "__qualname__", None) or f"an object of type {type(jitted).__name__}"
    raise OptionError(
        f"{name} was not returned by thunder.jit",
        advice=_compiled_inside(jitted)
        or ("pass the result of thunder.jit; thunder.jit does not change its argument",),
    )


def _compiled_inside(wrapper: Any) -> tuple[str, ...]:
    """Advice for a module that contains compiled ones, such as `DistributedDataParallel` around one."""
    from torch.nn import Module

    from thunder.compiled.module import ThunderModule

    parts = wrapper.named_modules() if isinstance(wrapper, Module) else ()
    names = [name for name, part in parts if isinstance(part, ThunderModule)]
    more = f"; others are {', '.join(f'.{name}' for name in names[1:4])}" if names[1:] else ""
    return (f"pass the compiled module inside of it: .{names[0]}{more}",) if names else ()


class _NoTraces(tuple[Any, ...]):
    """No traces; an index raises an error that says why there are none."""

    reason = ""

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return super().__getitem__(index)
        raise NoTraceError(
            f"there is no backward trace, since {self.reason}",
            advice=("call the program with grad mode enabled, and an input or parameter that requires grad",),
        )


def original(jitted: Any) -> Any:
    """The function or module that was passed to `thunder.jit`; a bound method for a bound method.

    A compiled module shares parameters, attributes and hooks with its original, which runs eagerly.

    Raises:
        OptionError: ``jitted`` was not returned by `thunder.jit`.
    """
    from types import MethodType

    from thunder_core.checks.originals import original_of

    module = original_of(jitted)
    if module is not None:
        return module
    if isinstance(jitted, MethodType):
        replaced = original_of(jitted.__self__)
        if replaced is not None:
            return getattr(replaced, jitted.__name__)
        return MethodType(compiled_program(jitted).function, jitted.__self__)
    return compiled_program(jitted).function


def _last(jitted: Any) -> Any:
    compiled = compiled_program(jitted)
    if compiled.last is None:
        raise OptionError(f"{compiled.name} has not been compiled yet", advice=("call it once first",))
    return compiled.last


def last_traces(jitted: Any) -> tuple[Trace, ...]:
    """The forward program of the latest compilation after each pass, from the acquired trace to the executable one."""
    traces: tuple[Trace, ...] = _last(jitted).program.traces
    return traces


def last_backward_traces(jitted: Any) -> tuple[Trace, ...]:
    """The joint trace of the latest compilation, and its backward as partitioned and as executable.

    Empty for a program without gradients, and for one whose ops PyTorch's autograd records at run time; an index then
    raises NoTraceError, an IndexError, with the reason.
    """
    program = _last(jitted).program
    if not program.backward_traces:
        traces = _NoTraces()
        recorded = f"PyTorch's autograd differentiates the latest program: {program.as_recorded}"
        traces.reason = recorded if program.as_recorded else "the latest call needed no gradients"
        return traces
    found: tuple[Trace, ...] = program.backward_traces
    return found


def last_prologue_traces(jitted: Any) -> tuple[Any, ...]:
    """The prologue of the latest compilation, which checks the guards."""
    return (_last(jitted).prologue,)


def last_epilogue_traces(jitted: Any) -> tuple[Trace, ...]:
    """The epilogue of the latest compilation; empty if it has none.

    It copies results to inputs that the program writes and, in training, creates results that are views.
    """
    epilogue = _last(jitted).program.functional.epilogue
    return () if epilogue is None else (epilogue,)


def cache_hits(jitted: Any) -> int:
    """Number of calls with a compiled entry. A call under transformations of torch.func counts for each program."""
    return sum(program.hits for program in compiled_program(jitted).programs())


def cache_misses(jitted: Any) -> int:
    """Number of calls without a compiled entry. A call under transformations of torch.func counts for each program."""
    return sum(program.misses for program in compiled_program(jitted).programs())


def explain(jitted: Any) -> CompileReport:
    """The report of all compilations of a program. Print it, or use its fields."""
    from thunder.report.compile_report import compile_report

    return compile_report(compiled_program(jitted))


def save_trace(jitted: Any, path: Any) -> None:
    """Write the program of the latest compilation to ``path`` as a Python module that runs by itself.

    Symbolic sizes become constants: the sizes of the call that was recorded.

    Raises:
        OptionError: ``jitted`` was not returned by `thunder.jit`, or has not been compiled yet.
        PluginError: the package ``thunder-saving`` is not installed.
        TraceError: the program calls functions that cannot be imported.
    """
    files = _files()
    entry = _last(jitted)
    defined = () if entry.sizes is None else entry.sizes.defined
    files.save_trace(files.for_one_size(entry.program.traces[0], defined), path, entry.constants)


def load_trace(path: Any, functions: Mapping[str, Any] | None = None) -> Callable[..., Any]:
    """Read a program that `save_trace` wrote, possibly edited since; the result is callable and has a ``trace``.

    The file is parsed and not executed. It may name PyTorch's operators, and the symbols of Thunder and of installed
    plugins.

    Args:
        path: the file.
        functions: functions and classes of your own that the file may name too: ``{"module.function": function}``.

    Raises:
        PluginError: the package ``thunder-saving`` is not installed.
        TraceSyntaxError: the file is not a trace, or it has a name that is not allowed.
        OSError: the file cannot be opened.
    """
    program: Callable[..., Any] = _files().load_trace(path, functions)
    return program


def save(model: Any, path: Any, example: Any = None) -> None:
    """Write the compiled programs of a function or module, with its state, to a file that `load` reads.

    The file has the final forward and backward as Python source, guards on arguments, sizes and modes, and the
    parameters and buffers. What else a program was compiled for is an assumption, which ``thunder show FILE`` prints.

    Args:
        model: a result of `thunder.jit`.
        path: the file; one that exists is replaced.
        example: the arguments of a call: a tuple, a dict of keyword arguments, or the pair of both; or a list of these.
            The program of each call is compiled, under the present modes, and not run. The programs that are compiled
            already are saved as well. None: these alone.

    Raises:
        OptionError: ``model`` was not returned by `thunder.jit`, or has no compiled program; or ``example`` is no
            arguments.
        PluginError: the package ``thunder-saving`` is not installed.
        UnsupportedError: a program has an operation, a result or a guard that no file can have; with its location.
        OSError: the file cannot be written.
    """
    from thunder.compiled.ahead_of_time import calls_of

    library("saving", "programs", "save and load").save(compiled_program(model), path, calls_of(example))


def load(path: Any, module: Any = None, classes: Sequence[type] = ()) -> Any:
    """The programs in a file that `save` wrote, as an `nn.Module` that runs them; it never compiles.

    Args:
        path: the file.
        module: None for the parameters and buffers in the file; or a state dict or a module that replaces them, with
            the same names, shapes and dtypes. Gradients then reach the parameters of the module.
        classes: classes of your own of which results have instances, and which are no data classes or named tuples.

    Returns:
        A callable with the parameters and buffers. A call that no program covers raises SavedProgramError, which lists
        what is covered and what differs.

    Raises:
        PluginError: the package ``thunder-saving`` is not installed.
        SavedProgramError: the file is damaged or foreign, is for another version or device, or ``module`` does not fit;
            with both sides.
        TraceSyntaxError: a program in the file has a name that is not allowed, with its line.
        OSError: the file cannot be opened.
    """
    from thunder_core.runtime.garbage_collection import postponed_collections

    with postponed_collections():  # collections of PyTorch's objects would take half of the time
        return library("saving", "loaded", "save and load").load(path, module, classes)


def _files() -> Any:
    """The module that reads and writes files of traces."""
    return library("saving", "files", "save_trace and load_trace")
