"""The functions that users call. Everything heavy is imported when a program is compiled, not with the package."""

from __future__ import annotations

import functools
import importlib.metadata
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from thunder_core.errors import OptionError

if TYPE_CHECKING:
    from thunder_core.ir.trace import Trace
    from thunder_core.report.compile_report import CompileReport


def jit(
    fn: Any = None,
    /,
    *,
    config: Any = None,
    executors: Sequence[Any] | None = None,
    transforms: Sequence[Any] | None = None,
    **options: Any,
) -> Any:
    """Compile a function or an `nn.Module`; compilation happens at the first call, and again when a guard fails.

    Args:
        fn: what to compile. Without it, a decorator is returned: ``@thunder.jit(cache="no caching")``.
        config: a file, a dict, a `ThunderConfig` or the name of a preset; None for the default. What else is given here
            overrides it.
        executors: who is asked to run operations, in order: names, ``{name: options}``, or executors themselves. ``[]``
            for the reference executor alone, which follows them in any case.
        transforms: passes to add to the pipeline, in the same forms.
        options: ``cache``, ``sharp_edges``, ``recompute``, ``recompile_warning``, ``recompile_limit``, ``front_end``,
            ``requires``; see `thunder_core.config.model.ThunderConfig`.

    Returns:
        A `ThunderModule` that shares everything with the module, or a callable like the function.

    Raises:
        ConfigError: an unknown option or a value that is not accepted; all problems at once. It is an `OptionError`.
        PluginError: something that is named cannot be used; the message says what to do.
    """
    from thunder_core.config.resolve import settings_of

    settings = settings_of(config, executors=executors, transforms=transforms, **options)
    if fn is None:
        return functools.partial(_jit, settings=settings)
    return _jit(fn, settings)


def grad(
    f: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False, **options: Any
) -> Callable[..., Any]:
    """A compiled function that computes the gradient of ``f``, like `torch.func.grad`.

    Args:
        f: a function or an `nn.Module` that returns a real scalar tensor. It may be random, and write to tensors from
            outside of it (as batch normalization does), but not to the arguments that it is differentiated for.
        argnums: position of the argument to differentiate for, a tree of floating-point or complex tensors; or several
            positions.
        has_aux: ``f`` returns a pair instead, the scalar and any tree of tensors.
        options: those of `jit`.

    Returns:
        A function with the arguments of ``f``. It returns the gradient, of the structure of the argument (for several
        ``argnums`` a tuple of these), zero where ``f`` does not use it; with ``has_aux`` the pair of the gradient and
        the other item of what ``f`` returned. It can be differentiated again. Parameters of a module are not
        differentiated for; use `torch.func.functional_call` inside of ``f`` for that.

        The call raises RuntimeError or ValueError for what `torch.func.grad` does: another result of ``f``, no such
        argument, arguments that are no floating-point tensors.

    Raises:
        OptionError: as `jit`, or ``f`` is not callable.
    """
    from thunder_core.autodiff.functional import Gradient

    return _transformed(f, options, "grad", lambda: Gradient(f, argnums, has_aux=has_aux))


def value_and_grad(
    f: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False, **options: Any
) -> Callable[..., Any]:
    """`grad` that returns the value of ``f`` first: ``(value, gradient)``, or ``((value, aux), gradient)``."""
    from thunder_core.autodiff.functional import Gradient

    return _transformed(f, options, "value_and_grad", lambda: Gradient(f, argnums, has_aux=has_aux, with_value=True))


def vjp(f: Callable[..., Any], **options: Any) -> Callable[[Any, Any], Any]:
    """A compiled function that computes vector-Jacobian products of ``f``, like `torch.func.vjp`.

    Args:
        f: a function or an `nn.Module` of positional arguments, all of them trees of floating-point or complex tensors,
            that returns such a tree.
        options: those of `jit`.

    Returns:
        A function ``(primals, cotangents) -> (outputs, gradients)``. ``primals`` is the tuple of the arguments, or the
        only argument if it is no tuple; gradients have the structure of the primals. ``cotangents`` have the structure
        and shapes of the outputs. What is said of errors and of further differentiation at `grad` holds here.

    Raises:
        OptionError: as `jit`, or ``f`` is not callable.
    """
    from thunder_core.autodiff.functional import VectorJacobianProduct

    return _transformed(f, options, "vjp", lambda: VectorJacobianProduct(f))


def _transformed(f: Any, options: dict[str, Any], name: str, make: Callable[[], Any]) -> Callable[..., Any]:
    if not callable(f) or isinstance(f, type):
        raise OptionError(f"thunder.{name} takes a function or an nn.Module, not {f!r}")
    transformed: Callable[..., Any] = jit(make(), **options)
    return transformed


@functools.cache
def _warn_of_name_clash() -> None:
    """``lightning-thunder`` installs a package of the same name: files of one overwrite those of the other."""
    try:
        other = importlib.metadata.version("lightning-thunder")
    except importlib.metadata.PackageNotFoundError:
        return
    warnings.warn(
        f"lightning-thunder {other} is installed in this environment and has a package named thunder as well; "
        "uninstall it, then reinstall thunder-core",
        stacklevel=4,
    )


def _jit(fn: Any, settings: Any) -> Any:
    import torch

    from thunder import progress_bar
    from thunder_core import progress
    from thunder_core.runtime.function import ThunderFunction
    from thunder_core.runtime.module import ThunderModule

    _warn_of_name_clash()
    progress.show_with(progress_bar.display)
    if isinstance(fn, ThunderModule):
        fn = fn._original
    if isinstance(fn, ThunderFunction):
        return ThunderFunction(fn.function, settings)
    if isinstance(fn, torch.nn.Module):
        for transform in settings.transforms:
            transform.on_module(fn)
        return ThunderModule(fn, settings)
    if not callable(fn) or isinstance(fn, type):
        raise OptionError(f"thunder.jit takes a function or an nn.Module, not {fn!r}")
    return ThunderFunction(fn, settings)


def _compiled(jitted: Any) -> Any:
    from thunder_core.runtime.compiled import Compiled
    from thunder_core.runtime.module import ThunderModule

    if isinstance(jitted, ThunderModule):
        return jitted._compiled
    if isinstance(jitted, Compiled):
        return jitted
    bound = getattr(jitted, "__func__", None)
    if isinstance(bound, Compiled):
        return bound
    raise OptionError(f"{jitted!r} was not made by thunder.jit")


def _last(jitted: Any) -> Any:
    compiled = _compiled(jitted)
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
    """Number of calls that found a compiled entry."""
    hits: int = _compiled(jitted).hits
    return hits


def cache_misses(jitted: Any) -> int:
    """Number of calls that did not."""
    misses: int = _compiled(jitted).misses
    return misses


def explain(jitted: Any) -> CompileReport:
    """What happened in the compilations of a program so far; print it, or use its fields."""
    report: CompileReport = _compiled(jitted).report()
    return report


def save_trace(jitted: Any, path: Any) -> None:
    """Write the latest compilation's program to ``path`` as a Python module that runs by itself."""
    from thunder_core.saving.files import save_trace as save

    entry = _last(jitted)
    save(entry.traces[0], path, entry.constants)


def load_trace(path: Any) -> Callable[..., Any]:
    """Read a program that `save_trace` wrote, possibly edited since; the result is callable and has a ``trace``."""
    from thunder_core.saving.files import load_trace as load

    program: Callable[..., Any] = load(path)
    return program


__all__ = [
    "cache_hits",
    "cache_misses",
    "explain",
    "grad",
    "jit",
    "last_backward_traces",
    "last_epilogue_traces",
    "last_prologue_traces",
    "last_traces",
    "load_trace",
    "save_trace",
    "value_and_grad",
    "vjp",
]
