"""Calls of compiled programs under torch.func transformations: vmap, grad, vjp, jvp and what consists of them.

Such a call applies `TransformedCall`, a `torch.autograd.Function`, to the tensors of the call. functorch takes its
transformations off one by one, the innermost first. Each makes another program of the call's (`torch.func.vmap` of it,
or a derivative), and that one is compiled and runs on tensors that no transformation has wrapped. So a derivative
computes again what the call computed: programs that draw random numbers, write, or do other things that happen once
run as eager PyTorch, unless nothing but vmap is active and they only draw.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import torch

from thunder_core.acquire.mode import any_wrapped
from thunder_core.config.declared_sizes import DeclaredSizes
from thunder_core.errors import ThunderError, UncacheableError
from thunder_core.guards.check import Check
from thunder_core.guards.global_state import autocast_state
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
from thunder_core.runtime.compiled import Compiled
from thunder_core.runtime.entry import Entry
from thunder_core.runtime.transformed_programs import (
    CONSTANTS,
    NO_LEVEL,
    FlatProgram,
    NotTransformed,
    PlainPrograms,
    Tensors,
    Transformed,
    flat_program,
    joined,
    jvp_program,
    vjp_program,
    vmap_program,
)
from thunder_core.symbols.checks import is_same

_MOST_REFUSALS: Final = 8  # compilations of a kind of call in vain, after which it is no longer tried


@dataclass
class _Ran:
    """What ran for a call.

    Attributes:
        differentiated: a backward may follow.
        given: the tensors of the call.
        module: whose parameters and buffers of these names are the first tensors of the call.
        names: empty for other functions, and where no transformation has wrapped these tensors.
        template: of the result.
        check: raises an error where the program would be another one by now; set where a backward may follow.
    """

    differentiated: bool
    given: tuple[torch.Tensor, ...]
    module: Any
    names: tuple[str, ...]
    template: Any = None
    check: Callable[[], None] | None = None


@dataclass(frozen=True)
class _Call:
    """The first argument of `TransformedCall`: what to run, and where to say what ran."""

    transformed: Transformed
    ran: _Ran

    def derived(self, make: Callable[..., FlatProgram], *options: Any) -> _Call:
        return replace(self, transformed=self.transformed.derived(make, *options))

    def run(self, tensors: Tensors) -> Tensors:
        """Run the program on tensors that no transformation has wrapped."""
        compiled = self.transformed.compiled
        if self.ran.template is not None:
            return self._run_derivative(tensors)
        entry, inputs = self._found(tensors)
        self._check_reads(entry, tensors)
        results, template = entry.run(_with_memory(inputs), (compiled.called, *tensors), {})
        if any(_shared(results, inputs)):
            raise NotTransformed("it returns memory of its inputs, or the same memory twice, under torch.func")
        self.ran.template = template
        if self.ran.differentiated:
            self.ran.check = _check(self.ran, compiled, entry, inputs, tensors)
        return tuple(results)

    def _found(self, tensors: Tensors) -> tuple[Entry, tuple[Any, ...]]:
        try:
            return self.transformed.compiled.found(tensors)
        except NotTransformed:
            raise
        except Exception as error:  # the program's, or of recording it: eager PyTorch shows which
            self.transformed.refusals += 1
            problem = str(error).split("\n", 1)[0]
            raise NotTransformed(f"under torch.func, compiling it raises {type(error).__name__}: {problem}") from error

    def _check_reads(self, entry: Entry, tensors: Tensors) -> None:
        """Raises `NotTransformed` where a tensor that is not given was wrapped when the program was recorded.

        Its level means another transformation there. Afterwards, the inputs tell such tensors.
        """
        if entry in self.transformed.checked:
            return
        sources = [guard.source for guard in entry.prologue.guards if isinstance(guard, Check)]
        read = [source.read((self.transformed.compiled.called, *tensors), {}) for source in sources]
        given = set(map(id, self.ran.given))
        if any_wrapped(tuple([value for value in read if id(value) not in given])):
            self.transformed.refusals = _MOST_REFUSALS
            raise NotTransformed("it reads a tensor of a torch.func transformation that is not among its arguments")
        self.transformed.checked.add(entry)

    def _run_derivative(self, tensors: Tensors) -> Tensors:
        """As `run`, where the program itself has run; what is not compiled is the same function in eager PyTorch."""
        compiled = self.transformed.compiled
        try:
            entry, inputs = compiled.found(tensors)
        except ThunderError as error:
            compiled.fallbacks[error.problem] += 1
            inputs = tensors
            results, _ = self.transformed.function(compiled.called, *tensors)
        else:
            results, _ = entry.run(_with_memory(inputs), (compiled.called, *tensors), {})
        shared = _shared(results, inputs)  # such results would be views, or the arguments themselves, to autograd
        return tuple([result.clone() if one else result for result, one in zip(results, shared, strict=True)])


def _shared(results: Tensors, inputs: tuple[Any, ...]) -> list[bool]:
    """For each result whether it shares memory with an input or with a result before it."""
    storages = {storage_identity(value.untyped_storage()) for value in inputs if isinstance(value, torch.Tensor)}
    shared = []
    for result in results:
        storage = storage_identity(result.untyped_storage())
        shared.append(storage in storages)
        storages.add(storage)
    return shared


def _check(
    ran: _Ran, compiled: PlainPrograms, entry: Entry, inputs: tuple[Any, ...], tensors: Tensors
) -> Callable[[], None]:
    versions, level, grad = _versions(inputs), current_level.value, torch.is_grad_enabled()

    def check() -> None:
        with (
            temporarily_clear_interpreter_stack(),
            torch.set_grad_enabled(grad),
            _forward_level(level),
            _state_of_call(ran),
        ):
            found = compiled.known(tensors)
        same = (
            found is not None
            and found[0] is entry
            and len(found[1]) == len(inputs)
            and all(map(_is_unchanged, found[1], inputs))
        )
        if not same or _versions(inputs) != versions:
            raise UncacheableError(
                f"{compiled.name} is differentiated by torch.func after something that it reads was changed",
                advice=("change it after the transformation", "give what changes to the function as an argument"),
            )

    return check


@contextmanager
def _forward_level(level: int) -> Iterator[None]:
    """Guards read that forward-mode differentiation is at this level."""
    before = current_level.value
    setattr(current_level.owner, current_level.name, level)
    try:
        yield
    finally:
        setattr(current_level.owner, current_level.name, before)


@contextmanager
def _state_of_call(ran: _Ran) -> Iterator[None]:
    """The module has the parameters and buffers that it had in the call: `torch.func.functional_call` is over."""
    before = []
    for name, tensor in zip(ran.names, ran.given, strict=False):
        path, _, attribute = name.rpartition(".")
        module = ran.module.get_submodule(path)
        held = module._parameters if attribute in module._parameters else module._buffers
        before.append((held, attribute, held[attribute]))
        held[attribute] = tensor
    try:
        yield
    finally:
        for held, attribute, tensor in before:
            held[attribute] = tensor


def _versions(inputs: tuple[Any, ...]) -> list[int]:
    return [version_of(value) for value in inputs if isinstance(value, torch.Tensor) and not value.is_inference()]


def _is_unchanged(now: Any, before: Any) -> bool:
    """Whether an input, a tensor, a number that varies between calls or another object, is what it was."""
    return now is before or (isinstance(before, int | float) and is_same(now, before))


class TransformedCall(torch.autograd.Function):
    """Runs a program on tensors that transformations have wrapped; all of its results are new tensors."""

    @classmethod
    def apply(cls, call: _Call, *tensors: torch.Tensor) -> Any:
        """The results; below all transformations those of the compiled program, with its own autograd."""
        tensors = tuple([unwrap_if_dead(tensor) for tensor in tensors])
        if peek_interpreter_stack() is None:
            return call.run(_with_memory(tensors))
        return super().apply(call, *tensors)

    @staticmethod
    def forward(call: _Call, *tensors: torch.Tensor) -> Any:
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
    def vmap(info: Any, in_dims: tuple[Any, ...], call: _Call, *tensors: torch.Tensor) -> tuple[Any, Any]:
        results = TransformedCall.apply(call.derived(vmap_program, tuple(in_dims[1:]), info.randomness), *tensors)
        return results, (0,) * len(results)

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor | None) -> Any:
        if ctx.call.ran.check is not None:
            ctx.call.ran.check()
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


def _with_memory(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """The values, with zeros for PyTorch's zero tensors, which have no memory for kernels to read."""
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


def transformed_call(compiled: Compiled, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of a call under transformations.

    Raises:
        NotTransformed: the call has to run as eager PyTorch.
    """
    leaves, spec = tree_flatten((args, kwargs))
    names, state = _state(compiled.function)
    tensors = [*state, *[leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]]
    described = tuple([(True, None) if isinstance(leaf, torch.Tensor) else (False, leaf) for leaf in leaves])
    differentiated, may_draw = _transformations(compiled, tensors)
    if not all(tensor or type(leaf) in CONSTANTS for tensor, leaf in described):
        raise NotTransformed("under torch.func, arguments are tensors and plain values")
    key = (spec, tuple([(tensor, type(leaf), repr(leaf)) for tensor, leaf in described]), names, may_draw)
    kind = compiled.transformed.get(key)
    if kind is None:
        if len(compiled.transformed) >= compiled.settings.config.recompile_limit:
            raise NotTransformed(f"{len(compiled.transformed)} kinds of calls under torch.func are compiled, the limit")
        made = Transformed(compiled, flat_program(spec, described, names), may_draw)
        kind = compiled.transformed.setdefault(key, made)
    if kind.refusals >= _MOST_REFUSALS:
        raise NotTransformed("its calls under torch.func could not be compiled before")
    call = _Call(kind, _Ran(differentiated, tuple(tensors), compiled.function, names))
    results = TransformedCall.apply(call, *tensors)
    return joined(call.ran.template, results)


def _state(function: Any) -> tuple[tuple[str, ...], list[torch.Tensor]]:
    """Parameters and buffers of a module that are arguments: all, where a transformation has wrapped any."""
    if not isinstance(function, torch.nn.Module):
        return (), []
    state = {**dict(function.named_parameters()), **dict(function.named_buffers())}
    if not any_wrapped(tuple(state.values())):
        return (), []
    return tuple(state), list(state.values())


def _transformations(compiled: Compiled, tensors: list[torch.Tensor]) -> tuple[bool, bool]:
    """Whether a backward may follow, and whether the call may draw random numbers.

    Raises:
        NotTransformed: something about the call or the modes is not as in a compiled program.
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
    if compiled.settings.config.cache not in ("constant values", "symbolic values"):
        raise NotTransformed(
            f"a torch.func transformation is active, and the cache is {compiled.settings.config.cache!r}"
        )
    if isinstance(compiled.settings.config.dynamic, DeclaredSizes):
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
        raise NotTransformed(f"under torch.func, arguments are no tensors of the class {type(tensor).__qualname__}")
    return levels
