"""The derivative of an op by PyTorch's autograd, traced on fake tensors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

import torch

from thunder_core.autodiff.derivatives.derivative import PLAIN, Derivative, Query
from thunder_core.autodiff.derivatives.tracing import Log, OpTracing, split_log
from thunder_core.errors import LoweringError
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.proxy import differentiable
from thunder_core.ir.trace import producers_of
from thunder_core.passes.rewrite import Match, Rule, rewrite_ops
from thunder_core.pytorch_errata import has_other_formula
from thunder_core.pytorch_internals import OpOverload, dispatch_has_kernel_for_dispatch_key
from thunder_core.tracing.signal_handlers import lowering_error
from thunder_core.tracing.sizes import operators_for_sizes
from thunder_core.tracing.tracer import Level

_AUTOGRAD_KEYS: Final = ("Autograd", "AutogradCPU", "AutogradCUDA", "CompositeImplicitAutograd")


def derive_by_autograd(query: Query) -> Derivative:
    """The derivative recorded from running the op and its backward on fake tensors.

    Raises:
        LoweringError: the op or its backward does not run on fake tensors; the message has the reason.
    """
    try:
        log = _Tracing(query, Level.ATEN).log()
        ops = tuple(rewrite_ops(log.ops, [_sums_of_gradients(log)]))
        return split_log(query, replace(log, ops=ops), "PyTorch's autograd")
    except LoweringError:
        raise
    except Exception as error:  # any error of PyTorch's kernels, or of a user's formula, on fake tensors
        raise lowering_error(error, f"{type(error).__name__}: {error}") from error


class _Tracing(OpTracing):
    """Runs forward under autograd, and backward with `torch.autograd.grad`."""

    def forward(self) -> list[torch.Tensor]:
        args, kwargs = self.arguments()
        assert self.bound.context is not None
        context = replace(self.bound.context, grad_enabled=True, inference=False)
        with self.tracer.recording(context), operators_for_sizes(self.bound):
            result = self.bound.symbol.target(*args, **kwargs)
        _refuse_unregistered(self.tracer.ops)
        return self.results(result)

    def backward(self, results: list[torch.Tensor]) -> dict[str, torch.Tensor]:
        reached = [result if result.requires_grad else None for result in results]
        pairs = zip(reached, self.cotangents(reached), strict=True)
        reached_pairs = [
            (result, cotangent) for result, cotangent in pairs if result is not None and cotangent is not None
        ]
        wanted = [(name, fake) for name, fake in self.fakes.items() if name in self.query.wanted]
        if not reached_pairs or not wanted:
            return {}
        _refuse_other_formulas(result for result, _ in reached_pairs)
        # autograd calls kernels of GPUs in other threads, where nothing is recorded
        with self.tracer.recording(PLAIN), torch.autograd.set_multithreading_enabled(False):
            gradients = torch.autograd.grad(
                [result for result, _ in reached_pairs],
                [fake for _, fake in wanted],
                [cotangent for _, cotangent in reached_pairs],
                allow_unused=True,
            )
            # the next derivative is recorded for plain elements, not for lazy conjugates
            return {
                name: tensor.resolve_conj().resolve_neg() if tensor.is_conj() or tensor.is_neg() else tensor
                for (name, _), tensor in zip(wanted, gradients, strict=True)
                if tensor is not None
            }


def _sums_of_gradients(log: Log) -> Rule[Match]:
    """One op for each gradient that autograd's engine sums over broadcast dimensions.

    For dimensions that the argument lacks, the engine calls a sum that keeps them, and reshapes its result.
    """
    producers = producers_of(log.ops)
    uses = Counter([proxy.name for op in log.ops for proxy in op.inputs()])
    gradients = {gradient.name for gradient in log.gradients.values()}

    def pattern(reshape: BoundSymbol) -> Iterator[Match]:
        if reshape.symbol.target is not torch.reshape or reshape.output.name not in gradients:
            return
        total = producers.get(reshape.args[0].name)
        if total is None or total.symbol.target is not torch.sum or total.args[2:] != (True,):
            return
        shape, result = total.args[0].shape, reshape.output.shape
        count = len(shape) - len(result)
        if total.args[1] == tuple(range(count)) and shape[count:] == result and uses[total.output.name] == 1:
            yield Match((total, reshape))

    def replacement(match: Match) -> tuple[BoundSymbol, ...]:
        total, reshape = match.ops
        return (replace(total, args=total.args[:2], output=reshape.output),)

    return Rule(pattern, replacement)


def _refuse_other_formulas(results: Iterable[torch.Tensor]) -> None:
    """Raise `LoweringError` if autograd's formula of a node between results and inputs is another one on fakes."""
    pending = [(result.grad_fn, result.device) for result in results]
    visited = set()
    while pending:
        node, device = pending.pop()
        if node is None or node in visited:
            continue
        visited.add(node)
        if has_other_formula(node.name(), device):
            raise LoweringError(f"{node.name()} of eager PyTorch depends on values")
        pending += [(following, device) for following, _ in node.next_functions]


def _refuse_unregistered(ops: Iterable[BoundSymbol]) -> None:
    """Raise `LoweringError` if an operator has no autograd kernel, such as one of a `torch.library.Library`.

    PyTorch then warns and differentiates what the operator's kernel calls. Fake tensors do not run this kernel.
    """
    for op in ops:
        operator = op.symbol.target
        if isinstance(operator, OpOverload) and any(map(differentiable, op.inputs())) and not _has_autograd(operator):
            raise LoweringError(f"{operator.name()} has no autograd kernel, so eager PyTorch differentiates its kernel")


def _has_autograd(operator: OpOverload) -> bool:
    return any(dispatch_has_kernel_for_dispatch_key(operator.name(), key) for key in _AUTOGRAD_KEYS)
