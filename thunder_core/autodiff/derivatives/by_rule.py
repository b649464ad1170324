"""The derivative of an op by a hand-written rule."""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any, Final

import torch
from torch import Tensor

from thunder_core.autodiff.derivatives.derivative import PLAIN, Derivative, Query
from thunder_core.autodiff.derivatives.rules import Backward, Rule
from thunder_core.autodiff.derivatives.tracing import OpTracing, split_log
from thunder_core.errors import LoweringError
from thunder_core.ir.bound_symbol import BoundSymbol, metadata_of, tensor_outputs_of, tensors_of
from thunder_core.ir.proxy import TensorProxy
from thunder_core.tracing.signal_handlers import lowering_error
from thunder_core.tracing.tracer import Level


def fit(gradient: Tensor, like: Tensor) -> Tensor:
    """``gradient`` summed over broadcast dimensions, then cast to the dtype of ``like``, as autograd's engine does.

    Raises:
        RuntimeError: ``like`` does not broadcast to the shape of ``gradient``.
    """
    return _summed(gradient, like).to(like.dtype)


def _summed(gradient: Tensor, like: Tensor) -> Tensor:
    """``at::sum_to`` in as few ops as possible."""
    if gradient.shape == like.shape:
        return gradient
    if torch.broadcast_shapes(like.shape, gradient.shape) != gradient.shape:
        raise RuntimeError(f"a gradient of shape {tuple(gradient.shape)} for a tensor of shape {tuple(like.shape)}")
    extra = gradient.dim() - like.dim()
    # a dynamic size equals that of the gradient: forward did not broadcast it
    ones = [dim for dim, size in enumerate(like.shape) if isinstance(size, int) and size == 1]
    repeated = [extra + dim for dim in ones if gradient.shape[extra + dim] != 1]
    if not repeated:
        return torch.sum(gradient, tuple(range(extra)))
    summed = torch.sum(gradient, (*range(extra), *repeated), keepdim=True)
    return torch.reshape(summed, like.shape)


SOURCE: Final = "a hand-written rule"


def derive_by_rule(query: Query) -> Derivative | None:
    """The derivative traced from the rule of the query on fake tensors; None if no rule applies to this call.

    Raises:
        LoweringError: the rule fails; the message has its error.
    """
    rule = query.rule
    if rule is None or not _suits(query.bound, rule):
        return None
    try:
        return split_log(query, _Tracing(query, rule).log(), SOURCE)
    except _RuleDeclined:
        return None
    except Exception as error:  # a bug of the rule
        raise lowering_error(error, f"{SOURCE} failed: {type(error).__name__}: {error}") from error


class _RuleDeclined(Exception):
    pass


class _Tracing(OpTracing):
    """Runs forward and backward of the rule."""

    def __init__(self, query: Query, rule: Rule) -> None:
        super().__init__(query, Level.TORCH)
        self.rule = rule
        self.differentiate: Backward

    def forward(self) -> list[torch.Tensor]:
        args, kwargs = self.arguments()
        with self.tracer.recording(PLAIN):
            returned = self.rule(*args, **kwargs)
        if returned is NotImplemented:
            raise _RuleDeclined
        result, self.differentiate = returned
        results = self.results(result)
        if [metadata_of(tensor) for tensor in results] != [
            metadata_of(proxy) for proxy in tensor_outputs_of(self.bound)
        ]:
            raise LoweringError("its result differs from that of the op")
        return results

    def backward(self, results: list[torch.Tensor]) -> dict[str, torch.Tensor]:
        gradients: dict[str, torch.Tensor] = {}
        cotangents = self.cotangents(results)
        with self.tracer.recording(PLAIN):
            returned = self.differentiate(*cotangents)
            returned = returned if isinstance(returned, tuple | list) else (returned,)
            for name, gradient in self._by_name(returned):
                if gradient is not None and name in self.query.wanted:
                    fitting = fit(gradient, self.fakes[name])
                    gradients[name] = fitting if name not in gradients else gradients[name] + fitting
        return gradients

    def _by_name(self, returned: Any) -> list[tuple[str, torch.Tensor | None]]:
        """The gradients, each with the name of its tensor."""
        bound = _signature(self.rule).bind(*self.bound.args, **self.bound.kwargs)
        bound.apply_defaults()
        pairs: list[tuple[str, torch.Tensor | None]] = []
        if len(returned) > len(bound.arguments):
            raise LoweringError(f"it returns {len(returned)} gradients for {len(bound.arguments)} parameters")
        for argument, gradient in zip(bound.arguments.values(), returned):  # the last ones may be without a gradient
            if isinstance(argument, TensorProxy):
                pairs.append((argument.name, gradient))
            elif isinstance(gradient, list | tuple):
                pairs += [(proxy.name, item) for proxy, item in zip(argument, gradient, strict=True)]
        return pairs


def _suits(bound: BoundSymbol, rule: Rule) -> bool:
    """Whether the rule may be applied to the op."""
    if bound.effects.mutates or bound.effects.external or bound.context is None or bound.context.autocast:
        return False
    if any(proxy.dtype.is_complex or proxy.layout is not torch.strided for proxy in tensors_of(bound)):
        return False
    try:
        _signature(rule).bind(*bound.args, **bound.kwargs)
    except TypeError:
        return False
    return True


@cache
def _signature(rule: Rule) -> inspect.Signature:
    return inspect.signature(rule)
