"""The derivative of lines that hand values on and have hooks called with the values' gradients."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any, Final

import torch

from thunder_core.autodiff.derivative import PLAIN, Derivative, Query, dense_stride, stand_in
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.effects import Effects
from thunder_core.ir.proxy import Proxy, TensorProxy
from thunder_core.ir.symbol import Symbol, Tag
from thunder_core.passes.operations import with_strides
from thunder_core.symbols.gradient_hooks import HOOKED, MODULE_INPUTS, MODULE_OUTPUTS, Gradients, ModuleCall, checked
from thunder_core.symbols.registry import registry

Metadata = tuple[tuple[int, ...], torch.dtype, torch.device, tuple[int, ...]]
"""Shape, dtype, device and the strides that lines after the hooks expect."""


def output_hooks(call: ModuleCall, gradients: Gradients, values: tuple[Metadata | None, ...]) -> Gradients:
    """What the hooks of a module's call make of the gradients of its outputs, None for those that have none."""
    found = call.at_outputs(gradients, tuple([value is not None for value in values]))
    present = tuple([new if old is not None else None for new, old in zip(found, gradients, strict=True)])
    return _as_expected(present, values)


def input_hooks(call: ModuleCall, gradients: Gradients, values: tuple[Metadata | None, ...]) -> Gradients:
    """What the hooks of a module's call make of the gradients of its inputs. Hooks see zeros for those without one."""
    given = [
        torch.zeros(value[0], dtype=value[1], device=value[2]) if gradient is None and value is not None else gradient
        for gradient, value in zip(gradients, values, strict=True)
    ]
    return _as_expected(call.at_inputs(tuple(given), tuple([value is not None for value in values])), values)


def tensor_hooks(
    hooks: tuple[Callable[..., Any], ...], gradients: Gradients, values: tuple[Metadata | None, ...]
) -> Gradients:
    """What the hooks of a tensor, one after the other, make of its gradient."""
    (gradient,) = gradients
    for hook in hooks:
        result = hook(gradient)
        if result is not None:
            gradient = checked(gradient, result, hook)
    return _as_expected((gradient,), values)


def input_hook(
    hook: Callable[..., Gradients],
    gradients: Gradients,
    values: tuple[Metadata, ...],
    reached: tuple[bool, ...],
    *options: Any,
) -> Gradients:
    """What a function makes of the gradients of inputs of the program: `on_input_gradients`."""
    return _as_expected(hook(gradients, reached, *options), values)


def _as_expected(gradients: Gradients, values: tuple[Metadata | None, ...]) -> Gradients:
    """Gradients, which hooks may have replaced, with the strides that the next lines expect."""
    pairs = zip(gradients, values, strict=True)
    return tuple([g if g is None or value is None else with_strides(g, value[3]) for g, value in pairs])


_HOOK: Final = frozenset({Tag.HOOK})
_EACH: Final = frozenset({Tag.HOOK, Tag.COMPONENTWISE})
_BACKWARD: Final = {
    MODULE_INPUTS: Symbol(f"{__name__}.input_hooks", input_hooks, tags=_HOOK),
    MODULE_OUTPUTS: Symbol(f"{__name__}.output_hooks", output_hooks, tags=_EACH),
    HOOKED: Symbol(f"{__name__}.tensor_hooks", tensor_hooks, tags=_EACH),
}

INPUT_HOOK: Final = Symbol(f"{__name__}.input_hook", input_hook, tags=_HOOK)


def metadata_of(value: TensorProxy) -> tuple[Any, ...]:
    """What lines after hooks expect of a gradient of ``value``."""
    return value.shape, value.dtype, value.device, dense_stride(value)


def calls_hooks_later(bound: BoundSymbol) -> bool:
    """Whether hooks are called when backward comes to the line; not so of the lines of backward that call them."""
    return bound.symbol in _BACKWARD


def derive_by_hook(query: Query) -> Derivative:
    """Forward hands the values on; backward calls the hooks with all gradients together.

    The line is one of those of `thunder_core.symbols.gradient_hooks` with the arguments ``(who, values)``; its results
    are the values.
    """
    bound = query.bound
    who, values = bound.args
    pairs = [(value, made) for value, made in zip(values, bound.output, strict=True) if value is not None]
    symbol = _BACKWARD[bound.symbol]
    storages = count(-1, -1)
    cotangents = {
        made.name: stand_in(made, f":{made.name}_cotangent", next(storages))
        for _, made in pairs
        if made.name in query.reached and made.requires_grad
    }
    gradients: dict[str, Proxy] = {
        value.name: stand_in(value, f":{value.name}_gradient", next(storages))
        for value, _ in pairs
        if value.name in query.wanted
    }
    each = Tag.COMPONENTWISE in symbol.tags
    along = {value.name: made.name for value, made in pairs} if each else {}
    if each:
        gradients = {name: proxy for name, proxy in gradients.items() if along[name] in cotangents}
    given = tuple([cotangents.get(made.name) if made is not None else None for made in bound.output])
    metadata = tuple([None if value is None else metadata_of(value) for value in values])
    found = tuple([gradients.get(value.name) if value is not None else None for value in values])
    backward = BoundSymbol(
        symbol, (who, given, metadata), {}, found, Effects(external=True), PLAIN, location=bound.location
    )
    forward = tuple([_handed_on(value, made, bound) for value, made in pairs])
    return Derivative(bound, forward, (backward,), cotangents, gradients, "hooks", along)


def _handed_on(value: TensorProxy, made: TensorProxy, bound: BoundSymbol) -> BoundSymbol:
    symbol, args, kwargs = registry.resolve(torch.ops.aten.alias.default, (value,), {})  # can be differentiated again
    return BoundSymbol(symbol, args, kwargs, made, context=PLAIN, location=bound.location)
