"""The derivative that a hand-written rule gives for a line."""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any, Final

import torch
from torch import Tensor

from thunder_core.autodiff.derivative import PLAIN, Derivative, Query
from thunder_core.autodiff.rules import find_rule
from thunder_core.autodiff.rules.rule import Backward, Rule
from thunder_core.autodiff.tracing import LineTracing, split_log
from thunder_core.errors import LoweringError
from thunder_core.ir.bound_symbol import BoundSymbol, metadata_of, tensor_inputs_of, tensor_outputs_of
from thunder_core.ir.proxy import TensorProxy
from thunder_core.tracing.tracer import Level


def fit(gradient: Tensor, like: Tensor) -> Tensor:
    """``gradient`` summed over what broadcasting repeated, then converted, as autograd's engine does both.

    Raises if its shape is none that ``like`` broadcasts to.
    """
    return _summed(gradient, like).to(like.dtype)


def _summed(gradient: Tensor, like: Tensor) -> Tensor:
    """``at::sum_to`` in as few lines as possible."""
    if gradient.shape == like.shape:
        return gradient
    if torch.broadcast_shapes(like.shape, gradient.shape) != gradient.shape:
        raise RuntimeError(f"a gradient of shape {tuple(gradient.shape)} for a tensor of shape {tuple(like.shape)}")
    extra = gradient.dim() - like.dim()
    # a size that varies is that of the gradient: forward has broadcast it to no other
    ones = [dim for dim, size in enumerate(like.shape) if isinstance(size, int) and size == 1]
    repeated = [extra + dim for dim in ones if gradient.shape[extra + dim] != 1]
    if not repeated:
        return torch.sum(gradient, tuple(range(extra)))
    summed = torch.sum(gradient, (*range(extra), *repeated), keepdim=True)
    return torch.reshape(summed, like.shape)


SOURCE: Final = "a hand-written rule"


def derive_by_rule(query: Query) -> Derivative | None:
    """Run the rule of the line's symbol on fake tensors; None if there is none for this call.

    Raises:
        LoweringError: the rule fails, with the reason.
    """
    rule = find_rule(query.bound.symbol)
    if rule is None or not _suits(query.bound, rule):
        return None
    try:
        return split_log(query, _Tracing(query, rule).log(), SOURCE)
    except _Declined:
        return None
    except Exception as error:  # a bug of the rule
        raise LoweringError(f"{SOURCE} failed: {type(error).__name__}: {error}") from error


class _Declined(Exception):
    pass


class _Tracing(LineTracing):
    """The rule computes both halves."""

    def __init__(self, query: Query, rule: Rule) -> None:
        super().__init__(query, Level.TORCH)
        self.rule = rule
        self.differentiate: Backward

    def forward(self) -> list[torch.Tensor]:
        args, kwargs = self.arguments()
        with self.tracer.recording(PLAIN):
            answer = self.rule(*args, **kwargs)
        if answer is NotImplemented:
            raise _Declined
        result, self.differentiate = answer
        results = self.results(result)
        if [metadata_of(tensor) for tensor in results] != [
            metadata_of(proxy) for proxy in tensor_outputs_of(self.bound)
        ]:
            raise LoweringError("its result is another than that of the line")
        return results

    def backward(self, results: list[torch.Tensor]) -> dict[str, torch.Tensor]:
        gradients: dict[str, torch.Tensor] = {}
        cotangents = self.cotangents(results)
        with self.tracer.recording(PLAIN):
            answer = self.differentiate(*cotangents)
            found = answer if isinstance(answer, tuple | list) else (answer,)
            for name, gradient in self._by_name(found):
                if gradient is not None and name in self.query.wanted:
                    fitting = fit(gradient, self.fakes[name])
                    gradients[name] = fitting if name not in gradients else gradients[name] + fitting
        return gradients

    def _by_name(self, found: Any) -> list[tuple[str, torch.Tensor | None]]:
        """The gradients with the names of the tensors that they are for."""
        bound = _signature(self.rule).bind(*self.bound.args, **self.bound.kwargs)
        bound.apply_defaults()
        pairs: list[tuple[str, torch.Tensor | None]] = []
        for argument, gradient in zip(bound.arguments.values(), found):
            if isinstance(argument, TensorProxy):
                pairs.append((argument.name, gradient))
            elif isinstance(gradient, list):
                pairs += [(proxy.name, item) for proxy, item in zip(argument, gradient, strict=True)]
        return pairs


def _suits(bound: BoundSymbol, rule: Rule) -> bool:
    """Whether the rule may be asked."""
    if bound.effects.mutates or bound.effects.external or bound.context is None or bound.context.autocast:
        return False
    tensors = (*tensor_inputs_of(bound), *tensor_outputs_of(bound))
    if any(proxy.dtype.is_complex or proxy.layout is not torch.strided for proxy in tensors):
        return False
    try:
        _signature(rule).bind(*bound.args, **bound.kwargs)
    except TypeError:
        return False
    return True


@cache
def _signature(rule: Rule) -> inspect.Signature:
    return inspect.signature(rule)
