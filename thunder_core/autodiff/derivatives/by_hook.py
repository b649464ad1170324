"""The derivative of identity ops whose backward calls hooks with the gradients."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any, Final

import torch

from thunder_core.autodiff.derivatives.derivative import PLAIN, Derivative, Query, dense_stride, stand_in
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.effects import Effects
from thunder_core.ir.proxy import Proxy, TensorProxy
from thunder_core.ir.symbol import Symbol, Tag
from thunder_core.passes.operations import with_strides
from thunder_core.symbols.gradient_hooks import HOOKED, MODULE_INPUTS, MODULE_OUTPUTS, Gradients, ModuleCall, checked
from thunder_core.symbols.registry import registry

Metadata = tuple[tuple[int, ...], torch.dtype, torch.device, tuple[int, ...]]
"""Shape, dtype, device, and the strides that ops after the hooks expect."""


def output_hooks(call: ModuleCall, gradients: Gradients, values: tuple[Metadata | None, ...]) -> Gradients:
    """The output gradients of a module's call after its hooks ran; None for outputs without gradient."""
    replaced = call.at_outputs(gradients, tuple([value is not None for value in values]))
    present = tuple([new if old is not None else None for new, old in zip(replaced, gradients, strict=True)])
    return _as_expected(present, values)


def input_hooks(call: ModuleCall, gradients: Gradients, values: tuple[Metadata | None, ...]) -> Gradients:
    """The input gradients of a module's call after its hooks ran. Hooks get zeros for inputs without gradient."""
    given = [
        torch.zeros(value[0], dtype=value[1], device=value[2]) if gradient is None and value is not None else gradient
        for gradient, value in zip(gradients, values, strict=True)
    ]
    return _as_expected(call.at_inputs(tuple(given), tuple([value is not None for value in values])), values)


def tensor_hooks(
    hooks: tuple[Callable[..., Any], ...], gradients: Gradients, values: tuple[Metadata | None, ...]
) -> Gradients:
    """The gradient of a tensor after its hooks ran, in order of registration."""
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
    """The gradients of inputs of the program as replaced by a function of `on_input_gradients`."""
    return _as_expected(hook(gradients, reached, *options), values)


def _as_expected(gradients: Gradients, values: tuple[Metadata | None, ...]) -> Gradients:
    """The gradients, which hooks may have replaced, with the strides that the next ops expect."""
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


def gradient_metadata(value: TensorProxy) -> tuple[Any, ...]:
    """The metadata of a gradient of ``value`` that ops after the hooks rely on."""
    return value.shape, value.dtype, value.device, dense_stride(value)


def calls_hooks_later(bound: BoundSymbol) -> bool:
    """Whether the backward of the op calls hooks. False for the ops of backward that call them."""
    return bound.symbol in _BACKWARD


def derive_by_hook(query: Query) -> Derivative:
    """The derivative whose forward is the identity, and whose backward calls the hooks with all gradients at once.

    The op is one of `thunder_core.symbols.gradient_hooks`: it takes ``(owner, values)`` and returns the values. The
    owner is a module call or a tuple of hooks.
    """
    bound = query.bound
    owner, values = bound.args
    pairs = [(value, result) for value, result in zip(values, bound.output, strict=True) if value is not None]
    symbol = _BACKWARD[bound.symbol]
    storages = count(-1, -1)
    cotangents = {
        result.name: stand_in(result, f":{result.name}_cotangent", next(storages))
        for _, result in pairs
        if result.name in query.reached and result.requires_grad
    }
    gradients: dict[str, Proxy] = {
        value.name: stand_in(value, f":{value.name}_gradient", next(storages))
        for value, _ in pairs
        if value.name in query.wanted
    }
    each = Tag.COMPONENTWISE in symbol.tags
    along = {value.name: result.name for value, result in pairs} if each else {}
    if each:
        gradients = {name: proxy for name, proxy in gradients.items() if along[name] in cotangents}
    given = tuple([cotangents.get(result.name) if result is not None else None for result in bound.output])
    metadata = tuple([None if value is None else gradient_metadata(value) for value in values])
    outputs = tuple([gradients.get(value.name) if value is not None else None for value in values])
    backward = BoundSymbol(
        symbol, (owner, given, metadata), {}, outputs, Effects(external=True), PLAIN, location=bound.location
    )
    forward = tuple([_alias(value, result, bound) for value, result in pairs])
    return Derivative(bound, forward, (backward,), cotangents, gradients, "hooks", along)


def _alias(value: TensorProxy, result: TensorProxy, bound: BoundSymbol) -> BoundSymbol:
    symbol, args, kwargs = registry.resolve(torch.ops.aten.alias.default, (value,), {})  # can be differentiated again
    return BoundSymbol(symbol, args, kwargs, result, context=PLAIN, location=bound.location)
