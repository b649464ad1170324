"""The functions that compile programs. The compiler and PyTorch are imported by the first of their calls."""

from __future__ import annotations

import functools
import importlib.metadata
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Literal, TypedDict, TypeVar, Unpack, overload

from thunder._libraries import library
from thunder_core.errors import OptionError, PluginError, TransformError

T = TypeVar("T")


class Options(TypedDict, total=False):
    """The options of `jit`, for type checkers. `jit` describes them."""

    config: Any
    executors: Sequence[Any] | None
    transforms: Sequence[Any] | None
    cache: Literal["constant values", "same input", "no caching"]
    dynamic: bool | Literal["automatic"] | Mapping[str, Any]
    recompute: Literal["none", "cheap", "aggressive"] | Mapping[str, float]
    memory: int | str
    compile: Literal["ahead", "behind"]
    sharp_edges: Literal["allow", "warn", "error"]
    allow_recompiles: bool | Literal["eager"]
    recompile_warning: int
    recompile_limit: int
    outcome_limit: int
    tune: bool | float
    front_end: str
    tensor_classes: Sequence[Any]
    interceptions: Sequence[Any]
    requires: Sequence[str]


class _Default:
    """A default that `help` prints as text: the value is not known when the function is defined."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


_DECORATOR: Any = _Default("<decorator>")
_CONFIGURED: Any = _Default("<configured>")


@overload
def jit(fn: T, /, **options: Unpack[Options]) -> T: ...
@overload
def jit(**options: Unpack[Options]) -> Callable[[T], T]: ...
def jit(
    fn: Any = _DECORATOR,
    /,
    *,
    config: Any = None,
    executors: Sequence[Any] | None = None,
    transforms: Sequence[Any] | None = None,
    cache: Literal["constant values", "same input", "no caching"] = _CONFIGURED,
    dynamic: bool | Literal["automatic"] | Mapping[str, Any] = _CONFIGURED,
    recompute: Literal["none", "cheap", "aggressive"] | Mapping[str, float] = _CONFIGURED,
    memory: int | str = _CONFIGURED,
    compile: Literal["ahead", "behind"] = _CONFIGURED,
    sharp_edges: Literal["allow", "warn", "error"] = _CONFIGURED,
    allow_recompiles: bool | Literal["eager"] = _CONFIGURED,
    recompile_warning: int = _CONFIGURED,
    recompile_limit: int = _CONFIGURED,
    outcome_limit: int = _CONFIGURED,
    tune: bool | float = _CONFIGURED,
    front_end: str = _CONFIGURED,
    tensor_classes: Sequence[Any] = _CONFIGURED,
    interceptions: Sequence[Any] = _CONFIGURED,
    requires: Sequence[str] = _CONFIGURED,
    **unknown: Any,
) -> Any:
    """Compile a function or an `nn.Module` at its first call, and again at a call for which a guard fails.

    Options that are not given are those of ``config``, or else the defaults that are named here.

    Args:
        fn: the function or module. Without it, a decorator is returned: ``@thunder.jit(cache="no caching")``. A plugin
            may add kinds of programs: `thunder-plugin-export` those of `torch.export`.
        config: a path, a dict, a `ThunderConfig` or the name of a preset; None for the default. Other arguments
            override it.
        executors: the executors that are offered the operations, in order: names, ``{name: options}``, or objects. The
            reference executor is always the last; ``[]`` selects it alone. By default those of the preset for the
            program's device.
        transforms: the transforms to add to the pipeline, in the same forms.
        cache: ``"constant values"`` (default) guards everything that the program reads; ``"same input"`` trusts that
            only the data of tensors changes; ``"no caching"`` compiles at each call.
        dynamic: the sizes of inputs that may vary without recompilation. ``"automatic"`` (default): those that differed
            between calls. ``True``: all that can, from the first call on. ``False``: none. Sizes of arguments are
            declared as by ``dynamic_shapes`` of `torch.export.export`: ``{"x": {0: Dim("batch", max=64)}}``; see
            docs/shapes_and_values.md.
        recompute: the values that backward recomputes instead of saving them: ``"none"``, ``"cheap"`` (default),
            ``"aggressive"``, or ``{"budget": 0.5}`` for a share of the bytes that the default saves.
        memory: the bytes that a program may need, or text such as ``"22 GiB"``, with parameters, buffers, arguments and
            gradients. If it needs more with ``recompute``, backward recomputes what does not fit; a program that cannot
            fit raises MemoryBudgetError, which states the least. See docs/memory.md. No limit by default.
        compile: ``"ahead"`` (default) compiles fused regions before the first call runs them. ``"behind"`` does not
            wait: PyTorch's kernels run them until other processes have compiled them. The kernels are exchanged between
            two calls, which can change rounding; see docs/using.md. With ``THUNDER_DETERMINISTIC=1`` both wait.
        sharp_edges: what to do when the program consumes Python's or NumPy's random state: ``"allow"``, ``"warn"``
            (default) or ``"error"``, which also refuses programs whose Python code reads values of tensors.
        allow_recompiles: whether a call may compile after the first one, or after the calls in a `warm_up`. ``True`` is
            the default; with ``False`` such a call raises RecompileError; with ``"eager"`` eager PyTorch runs it.
        recompile_warning: the number of compilations after which one warning says what changes; 8 by default.
        recompile_limit: the largest number of compiled entries, after which eager PyTorch runs other calls; 64 by
            default.
        outcome_limit: the largest number of entries that differ only in values of tensors; 16 by default.
        tune: choose the executors by measurement at the first call of a module, within this number of seconds; ``True``
            for 120, ``False`` by default. docs/tuning.md says what it measures.
        front_end: how programs are recorded; ``"run"`` by default.
        tensor_classes: support for tensors that hold tensors, in the forms of ``executors``.
        interceptions: plugins that record calls which the core refuses, in the same forms.
        requires: distributions that must be installed: ``["thunder-plugin-cudnn>=0.1"]``.
        unknown: any other option is an error, with the nearest name, or what replaces the option of `torch.compile`.

    Returns:
        For a module a compiled instance of its class that shares its ``__dict__``; for a function a compiled function.
        `original` returns ``fn``.

    Raises:
        ConfigError: an option is unknown, or its value is not accepted; with all problems. It is an `OptionError`.
        OptionError: ``fn`` cannot be compiled, or ``dynamic`` declares sizes of a parameter that it does not have.
        PluginError: an executor, a transform or another part cannot be used; with the command that repairs it.
    """
    given = {
        "cache": cache,
        "dynamic": dynamic,
        "recompute": recompute,
        "memory": memory,
        "compile": compile,
        "sharp_edges": sharp_edges,
        "allow_recompiles": allow_recompiles,
        "recompile_warning": recompile_warning,
        "recompile_limit": recompile_limit,
        "outcome_limit": outcome_limit,
        "tune": tune,
        "front_end": front_end,
        "tensor_classes": tensor_classes,
        "interceptions": interceptions,
        "requires": requires,
    }
    options = {name: value for name, value in given.items() if value is not _CONFIGURED} | unknown
    settings = _settings(config, executors=executors, transforms=transforms, **options)
    if fn is _DECORATOR:
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
        argument, arguments that are not floating-point tensors.

    Raises:
        OptionError: as `jit`, or ``f`` is not callable.
        PluginError: as `jit`, or the package ``thunder-functional`` is not installed.
    """
    transformations = _transformations()
    return _transformed(f, options, "grad", lambda: transformations.Gradient(f, argnums, has_aux=has_aux))


def value_and_grad(
    f: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False, **options: Any
) -> Callable[..., Any]:
    """`grad` that returns the value of ``f`` first: ``(value, gradient)``, or ``((value, aux), gradient)``."""
    transformations = _transformations()
    return _transformed(
        f,
        options,
        "value_and_grad",
        lambda: transformations.Gradient(f, argnums, has_aux=has_aux, with_value=True),
    )


def vjp(f: Callable[..., Any], **options: Any) -> Callable[[Any, Any], Any]:
    """A compiled function that computes vector-Jacobian products of ``f``, like `torch.func.vjp`.

    Args:
        f: a function or an `nn.Module` of positional arguments, all of them trees of floating-point or complex tensors,
            that returns such a tree.
        options: those of `jit`.

    Returns:
        A function ``(primals, cotangents) -> (outputs, gradients)``. ``primals`` is the tuple of the arguments, or
        the only argument if it is not a tuple; gradients have the structure of the primals. ``cotangents`` have the
        structure and shapes of the outputs. Errors and further differentiation are as with `grad`.

    Raises:
        OptionError: as `jit`, or ``f`` is not callable.
        PluginError: as `jit`, or the package ``thunder-functional`` is not installed.
    """
    transformations = _transformations()
    return _transformed(f, options, "vjp", lambda: transformations.VectorJacobianProduct(f))


def train_step(
    model: Any,
    loss_fn: Callable[..., Any] | None,
    optimizer: Any,
    *,
    max_norm: float | None = None,
    scheduler: Any = None,
    **options: Any,
) -> Callable[..., Any]:
    """A compiled training step: forward, backward and optimizer as one program.

    It computes what this function does, compiled by `jit`::

        def step(*inputs, target):
            loss = loss_fn(model(*inputs), target)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)  # with max_norm
            optimizer.step()
            scheduler.step()  # with a scheduler
            optimizer.zero_grad()
            return loss.detach()

    Args:
        model: an `nn.Module`, compiled or not.
        loss_fn: called with the result of the model and the last argument of the step; returns a scalar tensor. None
            for a model whose result is the loss or has it as ``loss``, as the models of Transformers: all arguments go
            to the model.
        optimizer: of `torch.optim`, for parameters of the model. Its state and its ``state_dict`` are PyTorch's.
        max_norm: the norm to which gradients are clipped.
        scheduler: of `torch.optim.lr_scheduler`.
        options: those of `jit`.

    Returns:
        A function that takes the model's arguments and, with ``loss_fn``, the target after them. It returns the loss
        without a graph. For steps of another form, compile a function of your own: `jit` handles these in the same way.

    Raises:
        OptionError: as `jit`, or ``loss_fn`` cannot be called, or ``optimizer`` lacks ``step`` or ``zero_grad``.
        PluginError: as `jit`, or the package ``thunder-plugin-training`` is not installed.
    """
    steps = library("training", "train_step", "thunder.train_step", "thunder_plugin_")
    step: Callable[..., Any] = jit(steps.TrainStep.of(model, loss_fn, optimizer, max_norm, scheduler), **options)
    return step


def _transformed_calls(function: Callable[..., Any], name: str, settings: Any, warm_up: Any) -> Any:
    """The compiler of the calls of a program under transformations of `torch.func`."""
    from thunder.compiled.function import NotTransformed

    try:
        module = library("functional", "transformed_calls", "compiled calls under torch.func")
    except PluginError as error:
        raise NotTransformed(error.problem) from error
    return module.TransformedCalls(function, name, settings, warm_up)


def _transformations() -> Any:
    """The module of functional transformations."""
    return library("functional", "transformations", "grad, value_and_grad and vjp")


def _transformed(f: Any, options: dict[str, Any], name: str, make: Callable[[], Any]) -> Callable[..., Any]:
    _check_program(f, name)
    transformed: Callable[..., Any] = jit(make(), **options)
    return transformed


def _settings(config: Any, **options: Any) -> Any:
    """The settings of a compilation. The first call imports the compiler and the plugins, which takes 0.3 s.

    Garbage collections of PyTorch's objects would add a quarter of that.
    """
    global _imported
    from thunder_core.runtime.garbage_collection import postponed_collections

    with nullcontext() if _imported else postponed_collections(imports=True):
        import thunder.compiled.module  # noqa: F401  # here, and not by `_jit`, where objects are collected
        from thunder.config import settings_of

        _imported = True
        return settings_of(config, **options)


_imported = False  # whether a call has imported the compiler


@functools.cache
def _warn_of_name_clash() -> None:
    """Warn of ``lightning-thunder``, which installs a package of the same name and overwrites files of this one."""
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
    from thunder.compiled.function import ThunderFunction, transform_calls_with
    from thunder.compiled.module import compile_module
    from thunder.config.program_kinds import for_program
    from thunder_core import progress
    from thunder_core.checks.originals import uncompiled

    _warn_of_name_clash()
    progress.show_with(progress_bar.display)
    transform_calls_with(_transformed_calls)
    fn = uncompiled(fn)
    if isinstance(fn, ThunderFunction):
        _check_transforms(fn, settings)
        return ThunderFunction(fn.function, settings)
    fn, settings = for_program(fn, settings)
    if isinstance(fn, torch.nn.Module):
        for transform in settings.transforms:
            changed = transform.on_module(fn)
            if not isinstance(changed, torch.nn.Module | None):
                raise TransformError(
                    f"the method on_module of the transform {transform.name!r} returned an object of type "
                    f"{type(changed).__name__}, not a module",
                    advice=("return the module to compile in the place of the given one, or None to keep that",),
                )
            fn = fn if changed is None else changed
        if settings.config.tune:
            library("tuning", "first_call", "jit(tune=...)", "thunder_plugin_")
        return compile_module(fn, settings)
    _check_program(fn, "jit")
    _check_transforms(fn, settings)
    if settings.config.tune:
        raise OptionError(
            f"tune measures modules, and {getattr(fn, '__name__', fn)} is a function: its calls may have effects that "
            "cannot be undone",
            advice=("run `thunder tune`, and pass the file that it writes as config",),
        )
    return ThunderFunction(fn, settings)


def _check_transforms(fn: Any, settings: Any) -> None:
    """Raise OptionError for a function that is compiled with transforms of modules."""
    for transform in settings.transforms:
        if transform.of_modules:
            raise OptionError(
                f"the transform {transform.name!r} changes modules, and {getattr(fn, '__name__', fn)} is not a module",
                advice=(f"compile the module that the function calls with {transform.name!r}",),
            )


def _check_program(given: Any, name: str) -> None:
    """Raise OptionError for an object that cannot be compiled."""
    if isinstance(given, type):
        raise OptionError(
            f"thunder.{name} takes a function or an nn.Module, not the class {given.__name__}",
            advice=(f"create an instance first: thunder.{name}({given.__name__}(...))",),
        )
    if not callable(given):
        raise OptionError(
            f"thunder.{name} takes a function or an nn.Module, not an object of type {type(given).__name__}",
            advice=(_instead(given, name),),
        )


def _instead(given: Any, name: str) -> str:
    """Advice for what was given in place of a program."""
    if isinstance(given, str):
        return f"load the model first; thunder.load({given!r}) reads a file of thunder.save"
    if isinstance(given, Mapping):
        return f"if it is a state dict, load it into a module first: model.load_state_dict(...); thunder.{name}(model)"
    return f"compile before the call: thunder.{name}(f)(x), not thunder.{name}(f(x))"
