"""The functions that show what was compiled, and that save it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from thunder_core.errors import OptionError

if TYPE_CHECKING:
    from thunder_core.ir.trace import Trace
    from thunder_core.report.compile_report import CompileReport


def compiled_program(jitted: Any) -> Any:
    from thunder_core.runtime.compiled import Compiled
    from thunder_core.runtime.module import ThunderModule
    from thunder_core.runtime.module_forward import compiled_of, forward_of

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
        f"{name} was not made by thunder.jit",
        advice=("give what thunder.jit returned; what it was given stays as it is",),
    )


def original(jitted: Any) -> Any:
    """The function or module that `thunder.jit` was given; a bound method for a bound method.

    A compiled module shares parameters, attributes and hooks with its original, which runs eagerly.

    Raises:
        OptionError: ``jitted`` was not made by `thunder.jit`.
    """
    from types import MethodType

    from thunder_core.guards.compiled_modules import original_of

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
    """The program of the latest compilation at each stage: as acquired first, as executed last."""
    traces: tuple[Trace, ...] = _last(jitted).traces
    return traces


def last_backward_traces(jitted: Any) -> tuple[Trace, ...]:
    """The backward of the latest compilation: as joint trace with forward first, as executed last.

    Empty for a program without gradients, and for one that PyTorch's autograd differentiates while it runs.
    """
    traces: tuple[Trace, ...] = _last(jitted).backward_traces
    return traces


def last_prologue_traces(jitted: Any) -> tuple[Any, ...]:
    """The guards of the latest compilation as a Python program."""
    return (_last(jitted).prologue,)


def last_epilogue_traces(jitted: Any) -> tuple[Trace, ...]:
    """What runs after the program of the latest compilation; empty when there is nothing to do.

    It copies results into inputs that the program writes and, in training, makes results that are views.
    """
    epilogue = _last(jitted).epilogue
    return () if epilogue is None else (epilogue,)


def cache_hits(jitted: Any) -> int:
    """Number of calls that found a compiled entry; under transformations of torch.func, of programs that did."""
    return sum(program.hits for program in compiled_program(jitted).programs())


def cache_misses(jitted: Any) -> int:
    """Number of calls that did not; under transformations of torch.func, of programs that did not."""
    return sum(program.misses for program in compiled_program(jitted).programs())


def explain(jitted: Any) -> CompileReport:
    """What happened in the compilations of a program so far; print it, or use its fields."""
    report: CompileReport = compiled_program(jitted).report()
    return report


def save_trace(jitted: Any, path: Any) -> None:
    """Write the latest compilation's program to ``path`` as a Python module that runs by itself.

    Sizes that vary between calls are constants in it: those of the call that it was recorded for.
    """
    from thunder_core.saving.files import for_one_size
    from thunder_core.saving.files import save_trace as save

    entry = _last(jitted)
    defined = () if entry.sizes is None else entry.sizes.defined
    save(for_one_size(entry.traces[0], defined), path, entry.constants)


def load_trace(path: Any) -> Callable[..., Any]:
    """Read a program that `save_trace` wrote, possibly edited since; the result is callable and has a ``trace``."""
    from thunder_core.saving.files import load_trace as load

    program: Callable[..., Any] = load(path)
    return program
