"""Calls of compiled programs under torch.func transformations: vmap, grad, vjp, jvp and combinations of them.

Such a call applies `TransformedCall`, a `torch.autograd.Function`, to the tensors of the call. functorch unwraps its
transformations one by one, the innermost first. Each replaces the program by a transformed one (its `torch.func.vmap`,
or a derivative). The last program is compiled, and runs on tensors that no transformation has wrapped. A derivative
therefore recomputes the call: programs that use random numbers, write to tensors, or have other effects run as eager
PyTorch, except for random programs under vmap alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import torch

from thunder.compiled.function import NotTransformed
from thunder_core.checks.check import Check
from thunder_core.checks.global_state import autocast_state
from thunder_core.errors import RecompileError, ThunderError, UncacheableError
from thunder_core.pytorch_internals import (
    TransformType,
    current_level,
    get_interpreter_stack,
    get_unwrapped,
    is_batchedtensor,
    is_functorch_wrapped_tensor,
    is_zerotensor,
    maybe_get_level,
    peek_interpreter_stack,
    storage_identity,
    temporarily_clear_interpreter_stack,
    tree_flatten,
    unwrap_if_dead,
    version_of,
)
from thunder_core.runtime.cache_entry import CacheEntry
from thunder_core.runtime.warm_up import WarmUp
from thunder_core.settings import Settings
from thunder_core.symbols.checks import is_same
from thunder_frontend.record.traced_tensor import any_transformed
from thunder_functional.transformed_programs import (
    CONSTANTS,
    NO_LEVEL,
    FlatProgram,
    Tensors,
    TransformedCache,
    TransformedProgram,
    flat_program,
    joined,
    jvp_program,
    vjp_program,
    vmap_program,
)

_MOST_REFUSALS: Final = 8
"""After so many failed compilations of a kind of call, calls of this kind run as eager PyTorch."""


@dataclass
class _CallState:
    """The state of a call, which is shared by the transformations of the call.

    Attributes:
        differentiated: whether a backward may follow.
        given: the tensors of the call.
        module: the module whose parameters and buffers are the first of these tensors.
        names: the names of these parameters and buffers; empty if no transformation has wrapped any.
        template: the template of the result; None before the program has run.
        check: raises an error if the entry is no longer valid; set if a backward may follow.
    """

    differentiated: bool
    given: tuple[torch.Tensor, ...]
    module: Any
    names: tuple[str, ...]
    template: Any = None
    check: Callable[[], None] | None = None


@dataclass(frozen=True)
class _Invocation:
    """The first argument of `TransformedCall`: the program to run, and the state of the call."""

    transformed: TransformedProgram
    state: _CallState

    def derived(self, make: Callable[..., FlatProgram], *options: Any) -> _Invocation:
        return replace(self, transformed=self.transformed.derived(make, *options))

    def run(self, tensors: Tensors) -> Tensors:
        """Run the compiled program on tensors that no transformation has wrapped."""
        cache = self.transformed.cache
        if self.state.template is not None:
            return self._run_derivative(tensors)
        entry, inputs = self._entry(tensors)
        self._check_reads(entry, tensors)
        results, template = entry.run(_with_storage(inputs), (cache.called, *tensors), {})
        if any(_shared(results, inputs)):
            raise NotTransformed("its results share storage with its inputs or with each other, under torch.func")
        self.state.template = template
        if self.state.differentiated:
            self.state.check = _check(self.state, cache, entry, inputs, tensors)
        return tuple(results)

    def _entry(self, tensors: Tensors) -> tuple[CacheEntry, tuple[Any, ...]]:
        try:
            return self.transformed.cache.entry_for(tensors)
        except (NotTransformed, RecompileError):
            raise
        except Exception as error:  # of the program or of its recording; eager PyTorch raises it if it is the program's
            self.transformed.refusals += 1
            problem = str(error).split("\n", 1)[0]
            raise NotTransformed(f"under torch.func, compiling it raises {type(error).__name__}: {problem}") from error

    def _check_reads(self, entry: CacheEntry, tensors: Tensors) -> None:
        """Raise `NotTransformed` if a tensor that is not an argument was wrapped when the program was recorded.

        Its level belongs to another transformation. In later calls, such tensors are recognized among the inputs.
        """
        if entry in self.transformed.checked:
            return
        sources = [guard.source for guard in entry.prologue.guards if isinstance(guard, Check)]
        read = [source.read((self.transformed.cache.called, *tensors), {}) for source in sources]
        given = set(map(id, self.state.given))
        if any_transformed(tuple([value for value in read if id(value) not in given])):
            self.transformed.refusals = _MOST_REFUSALS
            raise NotTransformed("it reads a tensor of a torch.func transformation that is not among its arguments")
        self.transformed.checked.add(entry)

    def _run_derivative(self, tensors: Tensors) -> Tensors:
        """As `run`, for a derivative of a program that has run. If it is not compiled, it runs as eager PyTorch."""
        cache = self.transformed.cache
        try:
            entry, inputs = cache.entry_for(tensors)
        except RecompileError:
            raise
        except ThunderError as error:
            cache.fallbacks[error.problem] += 1
            inputs = tensors
            results, _ = self.transformed.function(cache.called, *tensors)
        else:
            results, _ = entry.run(_with_storage(inputs), (cache.called, *tensors), {})
        shared = _shared(results, inputs)  # to autograd, such results would be views, or inputs
        return tuple([result.clone() if one else result for result, one in zip(results, shared, strict=True)])


def _shared(results: Tensors, inputs: tuple[Any, ...]) -> list[bool]:
    """For each result whether it shares storage with an input or with a result before it."""
    storages = {storage_identity(value.untyped_storage()) for value in inputs if isinstance(value, torch.Tensor)}
    shared = []
    for result in results:
        storage = storage_identity(result.untyped_storage())
        shared.append(storage in storages)
        storages.add(storage)
    return shared


def _check(
    state: _CallState, cache: TransformedCache, entry: CacheEntry, inputs: tuple[Any, ...], tensors: Tensors
) -> Callable[[], None]:
    versions, level, grad = _versions(inputs), current_level.value, torch.is_grad_enabled()

    def check() -> None:
        with (
            temporarily_clear_interpreter_stack(),
            torch.set_grad_enabled(grad),
            _forward_level(level),
            _state_of_call(state),
        ):
            found = cache.cached_entry(tensors)
        same = (
            found is not None
            and found[0] is entry
            and len(found[1]) == len(inputs)
            and all(map(_is_unchanged, found[1], inputs))
        )
        if not same or _versions(inputs) != versions:
            raise UncacheableError(
                f"{cache.name} is differentiated by torch.func after something that it reads was changed",
                advice=("change it after the transformation", "give what changes to the function as an argument"),
            )

    return check


@contextmanager
def _forward_level(level: int) -> Iterator[None]:
    """A context in which guards read this level of forward-mode differentiation."""
    before = current_level.value
    setattr(current_level.owner, current_level.name, level)
    try:
        yield
    finally:
        setattr(current_level.owner, current_level.name, before)


@contextmanager
def _state_of_call(state: _CallState) -> Iterator[None]:
    """A context in which the module has the tensors of the call, as under its `torch.func.functional_call`."""
    before = []
    for name, tensor in zip(state.names, state.given, strict=False):
        path, _, attribute = name.rpartition(".")
        module = state.module.get_submodule(path)
        tensors = module._parameters if attribute in module._parameters else module._buffers
        before.append((tensors, attribute, tensors[attribute]))
        tensors[attribute] = tensor
    try:
        yield
    finally:
        for tensors, attribute, tensor in before:
            tensors[attribute] = tensor


def _versions(inputs: tuple[Any, ...]) -> list[int]:
    return [version_of(value) for value in inputs if isinstance(value, torch.Tensor) and not value.is_inference()]


def _is_unchanged(now: Any, before: Any) -> bool:
    """Whether an input is the same tensor or object, or an equal number."""
    return now is before or (isinstance(before, int | float) and is_same(now, before))


class TransformedCall(torch.autograd.Function):
    """Runs a program on tensors that transformations have wrapped; all of its results are new tensors."""

    @classmethod
    def apply(cls, call: _Invocation, *tensors: torch.Tensor) -> Any:
        """The results; below all transformations those of the compiled program, with its own autograd."""
        tensors = tuple([unwrap_if_dead(tensor) for tensor in tensors])
        if peek_interpreter_stack() is None:
            return call.run(_with_storage(tensors))
        return super().apply(call, *tensors)

    @staticmethod
    def forward(call: _Invocation, *tensors: torch.Tensor) -> Any:
        return call.run(tensors)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensors) -> None:
        ctx.call, *tensors = inputs
        ctx.used = tuple([_differentiable(result) for result in output])
        ctx.mark_non_differentiable(*[result for result in output if not _differentiable(result)])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], call: _Invocation, *tensors: torch.Tensor) -> tuple[Any, Any]:
        results = TransformedCall.apply(call.derived(vmap_program, tuple(in_dims[1:]), info.randomness), *tensors)
        return results, (0,) * len(results)

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor | None) -> Any:
        if ctx.call.state.check is not None:
            ctx.call.state.check()
        tensors = ctx.saved_tensors
        varied = tuple(
            [need and _differentiable(one) for need, one in zip(ctx.needs_input_grad[1:], tensors, strict=True)]
        )
        given = tuple([cotangent is not None for cotangent in cotangents])
        if not any(varied) or not any(given):
            return (None,) * (1 + len(tensors))
        call = ctx.call.derived(vjp_program, varied, given)
        gradients = iter(TransformedCall.apply(call, *tensors, *[one for one in cotangents if one is not None]))
        return None, *[next(gradients) if vary else None for vary in varied]

    @staticmethod
    def jvp(ctx: Any, _: None, *tangents: torch.Tensor | None) -> Any:
        varied = tuple([tangent is not None for tangent in tangents])
        if not any(varied) or not any(ctx.used):
            return (None,) * len(ctx.used)
        call = ctx.call.derived(jvp_program, varied, ctx.used)
        found = iter(TransformedCall.apply(call, *ctx.saved_tensors, *[one for one in tangents if one is not None]))
        return tuple([next(found) if used else None for used in ctx.used])


def _with_storage(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """The values, with dense zeros in place of PyTorch's zero tensors, which have no storage."""
    zeros = [isinstance(value, torch.Tensor) and is_zerotensor(value) for value in values]
    if not any(zeros):
        return values
    return tuple(
        [
            torch.zeros(value.shape, dtype=value.dtype, device=value.device) if zero else value
            for value, zero in zip(values, zeros, strict=True)
        ]
    )


def _differentiable(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


class TransformedCalls:
    """The calls of a program under transformations: one compiled program for each kind of call.

    Calls of one kind have the same structure and the same plain values among their arguments.

    It has no reference to the cache of the program, so the two form no reference cycle.

    Args:
        function: the program.
        name: its name, for messages.
        settings: how it is compiled.
        warm_up: when calls may compile.
    """

    def __init__(self, function: Callable[..., Any], name: str, settings: Settings, warm_up: WarmUp) -> None:
        self._function = function
        self._name = name
        self._settings = settings
        self._warm_up = warm_up
        self._programs: dict[Any, TransformedProgram] = {}

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of a call.

        Raises:
            NotTransformed: the call has to run as eager PyTorch.
        """
        leaves, spec = tree_flatten((args, kwargs))
        names, state = _state(self._function)
        tensors = [*state, *[leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]]
        described = tuple([(True, None) if isinstance(leaf, torch.Tensor) else (False, leaf) for leaf in leaves])
        differentiated, may_be_random = _transformations(self._settings, tensors)
        if not all(tensor or type(leaf) in CONSTANTS for tensor, leaf in described):
            raise NotTransformed("under torch.func, arguments are tensors and plain values")
        key = (spec, tuple([(tensor, type(leaf), repr(leaf)) for tensor, leaf in described]), names, may_be_random)
        program = self._program(key, lambda: flat_program(spec, described, names), may_be_random)
        call = _Invocation(program, _CallState(differentiated, tuple(tensors), self._function, names))
        results = TransformedCall.apply(call, *tensors)
        return joined(call.state.template, results)

    def caches(self) -> Iterator[TransformedCache]:
        """The caches of all programs."""
        for program in tuple(self._programs.values()):
            yield from program.caches()

    def _program(self, key: Any, flat: Callable[[], FlatProgram], may_be_random: bool) -> TransformedProgram:
        program = self._programs.get(key)
        if program is None:
            if len(self._programs) >= self._settings.recompile_limit:
                raise NotTransformed(f"{len(self._programs)} kinds of calls under torch.func are compiled, the limit")
            created = TransformedProgram(
                flat(), self._function, self._name, self._settings, self._warm_up, may_be_random
            )
            program = self._programs.setdefault(key, created)
        if program.refusals >= _MOST_REFUSALS:
            raise NotTransformed("its calls under torch.func could not be compiled before")
        return program


def _state(function: Any) -> tuple[tuple[str, ...], list[torch.Tensor]]:
    """The parameters and buffers of a module that are arguments: all of them if a transformation has wrapped any."""
    if not isinstance(function, torch.nn.Module):
        return (), []
    state = {**dict(function.named_parameters()), **dict(function.named_buffers())}
    if not any_transformed(tuple(state.values())):
        return (), []
    return tuple(state), list(state.values())


def _transformations(settings: Settings, tensors: list[torch.Tensor]) -> tuple[bool, bool]:
    """Whether a backward may follow, and whether the program may be random.

    Raises:
        NotTransformed: the modes, the options or the arguments are not supported under transformations.
    """
    stack = get_interpreter_stack()
    kinds = {interpreter.key() for interpreter in stack}
    if not kinds <= {TransformType.Vmap, TransformType.Grad, TransformType.Jvp}:
        raise NotTransformed("a torch.func transformation other than vmap, grad, vjp and jvp is active")
    if current_level.value != NO_LEVEL and TransformType.Jvp not in kinds:
        raise NotTransformed("forward-mode differentiation is active")
    only_vmap = kinds == {TransformType.Vmap}
    if torch.is_inference_mode_enabled() or not (only_vmap or torch.is_grad_enabled()):
        raise NotTransformed("a torch.func derivative is taken under no_grad or inference_mode")
    if not only_vmap and autocast_state():
        raise NotTransformed("a torch.func derivative is taken under autocast")
    if settings.cache not in ("constant values", "symbolic values"):
        raise NotTransformed(f"a torch.func transformation is active, and the cache is {settings.cache!r}")
    if not isinstance(settings.dynamic, bool | str):
        raise NotTransformed("a torch.func transformation is active, and dynamic declares sizes")
    if not tensors:
        raise NotTransformed("a torch.func transformation is active, and no argument is a tensor")
    wrapped = [_levels(tensor) for tensor in tensors]
    batched = set().union(*wrapped)
    return TransformType.Grad in kinds, only_vmap and all(interpreter.level() in batched for interpreter in stack)


def _levels(tensor: torch.Tensor) -> set[int]:
    """The levels of vmap at which a tensor is batched."""
    levels = set()
    while is_functorch_wrapped_tensor(tensor):
        if is_batchedtensor(tensor):
            levels.add(maybe_get_level(tensor))
        tensor = get_unwrapped(tensor)
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        raise NotTransformed(f"under torch.func, arguments are not tensors of the class {type(tensor).__qualname__}")
    return levels
