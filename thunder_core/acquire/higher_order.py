"""Calls that take programs: autograd.Function, checkpoint, cond. They are recorded as one symbol, never flattened."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import MethodType
from typing import Any

import torch
import torch.utils.checkpoint
from torch.utils._python_dispatch import _disable_current_modes

from thunder_core.acquire.arguments import Call, convert
from thunder_core.acquire.outcome import Slot
from thunder_core.acquire.recorder import Recorder
from thunder_core.acquire.traced_tensor import TracedTensor
from thunder_core.acquire.user_frames import user_location
from thunder_core.acquire.variable import Variable
from thunder_core.errors import UnsupportedError
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.context import Context, current_context
from thunder_core.ir.effects import Effects
from thunder_core.ir.proxy import Proxy, TensorProxy
from thunder_core.ir.symbol import Symbol, Tag
from thunder_core.ir.trace import Stage, Trace
from thunder_core.ir.tree import iterate_leaves, map_leaves
from thunder_core.symbols import control_flow
from thunder_core.symbols.opaque import callable_symbol

CHECKPOINT = Symbol(
    "torch.utils.checkpoint.checkpoint", torch.utils.checkpoint.checkpoint, tags=frozenset({Tag.HIGHER_ORDER})
)

# `torch.autograd.Function.apply` itself, whatever it is replaced by while a program is recorded.
APPLY = vars(torch.autograd.Function)["apply"].__func__

# Symbols that draw no numbers themselves but move the state of the generators.
_STATEFUL = frozenset({Tag.RANDOM})
MANUAL_SEED = Symbol("torch.manual_seed", torch.manual_seed, tags=_STATEFUL)
GET_RNG_STATE = Symbol("torch.get_rng_state", torch.get_rng_state, tags=_STATEFUL)
SET_RNG_STATE = Symbol("torch.set_rng_state", torch.set_rng_state, tags=_STATEFUL)


def autograd_function(
    recorder: Recorder, cls: type[torch.autograd.Function], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Record ``cls.apply(...)`` as one symbol; its forward and backward run as the user wrote them."""
    with torch._C.DisableTorchFunction():
        return recorder.call_symbol(callable_symbol(MethodType(APPLY, cls)), args, kwargs)


def manual_seed(recorder: Recorder, seed: int) -> None:
    """Record a seeding of PyTorch's generators, in its place among the random calls."""
    recorder.lines.append(
        BoundSymbol(MANUAL_SEED, (seed,), {}, None, Effects(random=True, external=True), None, user_location(3))
    )


def get_rng_state(recorder: Recorder, original: Callable[[], torch.Tensor]) -> torch.Tensor:
    """Record a read of the CPU generator's state, in its place among the random calls."""
    with torch._C.DisableTorchFunction(), _disable_current_modes():
        state = original()
    proxy = TensorProxy(
        recorder.names.intermediate(),
        tuple(state.shape),
        state.stride(),
        state.dtype,
        state.device,
        False,
        recorder.new_storage(None),
    )
    recorder.lines.append(
        BoundSymbol(GET_RNG_STATE, (), {}, proxy, Effects(random=True, external=True), None, user_location(3))
    )
    return recorder.traced(Variable(proxy, location=user_location(3)))


def set_rng_state(recorder: Recorder, original: Callable[..., None], state: torch.Tensor) -> None:
    """Record a restoration of the CPU generator's state."""
    proxy = recorder.variable(state).proxy
    recorder.lines.append(
        BoundSymbol(SET_RNG_STATE, (proxy,), {}, None, Effects(random=True, external=True), None, user_location(3))
    )


class Region:
    """Lines recorded apart from their surroundings, to become the body of a higher-order symbol."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.lines: list[BoundSymbol] = []
        self.first_made = len(recorder.made)
        self.first_renamed = len(recorder.renamed)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Send lines here for the duration."""
        recorder = self.recorder
        outer, recorder.lines = recorder.lines, self.lines
        try:
            yield
        finally:
            recorder.lines = outer

    def live_tensors(self) -> list[TracedTensor]:
        """Traced tensors made in the region that somebody still holds."""
        tensors = [reference() for reference in self.recorder.made[self.first_made :]]
        return [tensor for tensor in tensors if tensor is not None]

    def defined(self) -> set[str]:
        return {proxy.name for line in self.lines for proxy in line.outputs()}

    def free(self) -> tuple[Proxy, ...]:
        """Values used but not defined in the region, in order of first use."""
        defined = self.defined()
        found: dict[str, Proxy] = {}
        for line in self.lines:
            for proxy in line.inputs():
                if proxy.name not in defined:
                    found.setdefault(proxy.name, proxy)
        return tuple(found.values())

    def effects(self) -> Effects:
        """Union of the lines' effects, as seen from outside."""
        storages = set()
        for line in self.lines:
            mutated = set(line.effects.mutates)
            storages |= {p.storage for p in line.inputs() if isinstance(p, TensorProxy) and p.name in mutated}
        mutates = tuple(p.name for p in self.free() if isinstance(p, TensorProxy) and p.storage in storages)
        return Effects(
            mutates,
            any(line.effects.random for line in self.lines),
            any(line.effects.external for line in self.lines),
        )

    def restore_names(self) -> None:
        """Tensors from outside that were written inside go by their old names again: the memory is the same."""
        defined = self.defined()
        for variable, name in reversed(self.recorder.renamed[self.first_renamed :]):
            if name not in defined and variable.proxy.name in defined:
                variable.proxy = replace(variable.proxy, name=name)

    def body(self, stem: str, inputs: tuple[Proxy, ...], output: Any) -> Trace:
        """The region as a trace."""
        name = self.recorder.names.for_input(stem)
        context, ambient = current_context(), self.recorder.ambient
        lines = [_relative(line, ambient, context) for line in self.lines]
        return Trace(name, inputs, tuple(lines), output, Stage.ACQUIRED, "acquisition", context)


def _relative(line: BoundSymbol, ambient: Context, context: Context) -> BoundSymbol:
    """A line recorded under the modes ``ambient``, as a line of a trace under the modes ``context``."""
    own = line.context or ambient
    return replace(line, context=None if own == context else own)


def _fresh(recorder: Recorder, variable: Variable) -> TensorProxy:
    """A name for the value of ``variable`` outside of the region that computed it."""
    variable.proxy = replace(variable.proxy, name=recorder.names.intermediate())
    return variable.proxy


@contextmanager
def checkpoint_region(recorder: Recorder, options: dict[str, Any]) -> Iterator[None]:
    """Record what runs inside as the body of one checkpoint symbol; what stays alive is its output."""
    region = Region(recorder)
    with region.recording():
        yield
    emit_checkpoint(recorder, region, [tensor.variable for tensor in region.live_tensors()], options)


def checkpoint(
    recorder: Recorder, function: Callable[..., Any], operands: tuple[Any, ...], options: dict[str, Any]
) -> Any:
    """Run ``function`` as a checkpoint region and return its result."""
    with checkpoint_region(recorder, options):
        return function(*operands)


def emit_checkpoint(recorder: Recorder, region: Region, live: list[Variable], options: dict[str, Any]) -> None:
    """Append the checkpoint symbol for a finished region."""
    region.restore_names()
    defined = region.defined()
    live = [variable for variable in dict.fromkeys(live) if variable.proxy.name in defined]
    free, effects = region.free(), region.effects()
    body = region.body("checkpoint_body", free, tuple(variable.proxy for variable in live))
    output = tuple(_fresh(recorder, variable) for variable in live)
    shown = recorder.own_context(current_context())
    recorded = convert(options, Call(recorder))  # a ``context_fn`` may be an object without a literal
    recorder.lines.append(BoundSymbol(CHECKPOINT, (body, *free), recorded, output, effects, shown, user_location(4)))


def cond(
    recorder: Recorder,
    pred: Any,
    true_fn: Callable[..., Any],
    false_fn: Callable[..., Any],
    operands: tuple[Any, ...],
) -> Any:
    """Record both branches and return tensors with the metadata they agree on.

    Raises:
        UnsupportedError: the branches differ in structure or metadata, or write to tensors from outside.
    """
    if isinstance(pred, bool):
        return true_fn(*operands) if pred else false_fn(*operands)
    bodies, results = [], []
    for function in (true_fn, false_fn):
        region = Region(recorder)
        with region.recording():
            result = function(*operands)
        if region.effects().mutates:
            raise UnsupportedError(
                "a branch of torch.cond writes to a tensor from outside of it",
                location=user_location(3),
                advice=("return the new value from both branches instead",),
            )
        bodies.append(region)
        results.append(result)
    proxies = [map_leaves(lambda leaf: _proxy_of(recorder, leaf), result) for result in results]
    _check_agreement(*proxies)
    free = tuple({p.name: p for region in bodies for p in region.free()}.values())
    outside = {p.name: p for side in proxies for p in iterate_leaves(side) if isinstance(p, TensorProxy)}
    free += tuple(p for name, p in outside.items() if not any(name in r.defined() for r in bodies) and p not in free)
    traces = [
        region.body(f"{side}_branch", free, output)
        for region, side, output in zip(bodies, ("true", "false"), proxies, strict=True)
    ]
    random = any(region.effects().random for region in bodies)
    variables: list[Variable] = []

    def fresh(leaf: Any) -> Any:
        if not isinstance(leaf, TensorProxy):
            return leaf
        storage = recorder.new_storage(None)
        variables.append(Variable(replace(leaf, name=recorder.names.intermediate(), storage=storage, offset=0)))
        return Slot(len(variables) - 1)

    structure = map_leaves(fresh, proxies[0])
    output = map_leaves(lambda leaf: variables[leaf.index].proxy if isinstance(leaf, Slot) else leaf, structure)
    predicate = recorder.variable(pred).proxy
    recorder.lines.append(
        BoundSymbol(
            control_flow.COND,
            (predicate, *traces, free),
            {},
            output,
            Effects(random=random),
            recorder.own_context(current_context()),
            user_location(3),
        )
    )
    return map_leaves(
        lambda leaf: recorder.traced(variables[leaf.index]) if isinstance(leaf, Slot) else leaf, structure
    )


def _proxy_of(recorder: Recorder, leaf: Any) -> Any:
    return recorder.variable(leaf).proxy if isinstance(leaf, torch.Tensor) else leaf


def _check_agreement(first: Any, second: Any) -> None:
    def describe(leaf: Any) -> Any:
        if isinstance(leaf, TensorProxy):
            return (tuple(leaf.shape), tuple(leaf.stride), leaf.dtype, leaf.device)
        return leaf

    one, other = map_leaves(describe, first), map_leaves(describe, second)
    if one != other:
        raise UnsupportedError(
            f"the branches of torch.cond return different things: {one} and {other}",
            location=user_location(4),
            advice=("make both branches return tensors of the same shape, strides and dtype",),
        )
