"""What autocast does to one call, seen on fake tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from thunder_core.errors import LoweringError
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.context import Context
from thunder_core.ir.proxy import Proxy, TensorProxy
from thunder_core.ir.tensors import tensor_inputs_of, tensor_outputs_of
from thunder_core.ir.tree import iterate_leaves, map_leaves
from thunder_core.passes.autocast_policies import UNCHANGED, Rewrite
from thunder_core.tracing.fake_tensors import make_derived
from thunder_core.tracing.sizes import operators_for_sizes
from thunder_core.tracing.trace_call import refuse_objects
from thunder_core.tracing.tracer import Level, Tracer


@dataclass(frozen=True, slots=True)
class CallLog:
    """The ATen operations of one call.

    Attributes:
        lines: the operations; conversions by a `Rewrite` are among them.
        inputs: the tensors among the call's arguments in order, under other names and in new storages.
        outputs: the tensors that it returned, in order.
        converted: memories of arguments that were converted for the call.
        recording: names of values that require grad.
        differentiable: autograd, recording the operations one by one, gives the gradients of the call: nothing was
            detached, and no operation ran under another grad mode than the call.
    """

    lines: tuple[BoundSymbol, ...]
    inputs: tuple[Proxy, ...]
    outputs: tuple[TensorProxy, ...]
    converted: frozenset[int]
    recording: frozenset[str]
    differentiable: bool


def log_call(bound: BoundSymbol, context: Context, rewrite: Rewrite = UNCHANGED) -> CallLog:
    """Make the call on fake tensors, under ``context`` and without autocast's cache of weights.

    Raises:
        LoweringError: that is not possible, with the reason.
    """
    if bound.effects.external or bound.effects.mutates:
        raise LoweringError("it does more than to compute")
    refuse_objects(bound)
    try:
        return _Logging(bound, context).run(rewrite)
    except LoweringError:
        raise
    except Exception as error:  # whatever the call cannot do with fake tensors, or with other dtypes
        raise LoweringError(f"{type(error).__name__}: {error}") from error


class _Autograd:
    """Watches whether the operators alone tell autograd what the call tells it."""

    def __init__(self, grad: bool) -> None:
        self.grad = grad
        self.differentiable = True
        self.detached: dict[int, torch.Tensor] = {}

    def watch(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        if self.grad:
            self.differentiable &= torch.is_grad_enabled() and not self.are_detached((args, kwargs))
        if func is torch.ops.aten.detach.default:
            self.detached[id(result)] = result

    def are_detached(self, values: Any) -> bool:
        """Whether a tensor among the values was detached."""
        return any(id(leaf) in self.detached for leaf in iterate_leaves(values))


class _Logging:
    """One run."""

    def __init__(self, bound: BoundSymbol, context: Context) -> None:
        self.bound = bound
        self.context = context
        self.autograd = _Autograd(_records_gradients(bound, context))
        self.tracer = Tracer(Level.ATEN, watch=self.autograd.watch)
        self.fakes: dict[str, torch.Tensor] = {}
        self.converted: set[int] = set()

    def run(self, rewrite: Rewrite) -> CallLog:
        for proxy in tensor_inputs_of(self.bound):
            if proxy.name not in self.fakes:
                self.fakes[proxy.name] = make_derived(self.tracer.mode, proxy)
            self.tracer.input(self.fakes[proxy.name], proxy)
        fork = torch.random.fork_rng(devices=[])
        with fork, self.tracer.recording(self.context), operators_for_sizes(self.bound):
            results = self._call(rewrite)
            outputs = tuple([self.tracer.proxy(tensor) for tensor in results])
        detached = self.autograd.grad and self.autograd.are_detached(results)
        return CallLog(
            tuple(self.tracer.ops),
            tuple(self.tracer.inputs),
            outputs,
            frozenset(self.converted),
            self._recording(),
            self.autograd.differentiable and not detached,
        )

    def _recording(self) -> frozenset[str]:
        """Names of values that require grad: tensors know it; what one was before it was written follows from that."""
        known, names = self.tracer.computed(), set(self.tracer.requiring_grad())
        for line in self.tracer.ops:
            if any(proxy.name in names for proxy in tensor_inputs_of(line)):
                outputs = [proxy for proxy in tensor_outputs_of(line) if proxy.name not in known]
                names.update(p.name for p in outputs if p.dtype.is_floating_point or p.dtype.is_complex)
        return frozenset(names)

    def _call(self, rewrite: Rewrite) -> list[torch.Tensor]:
        def value(leaf: Any) -> Any:
            if not isinstance(leaf, TensorProxy):
                return leaf
            dtype = rewrite.conversion(leaf)
            if dtype is None:
                return self.fakes[leaf.name]
            converted = self.fakes[leaf.name].to(dtype)
            self.converted.add(self.tracer.proxy(converted).storage)
            return converted

        bound = rewrite.with_result_dtype(self.bound)
        result = bound.symbol.target(*map_leaves(value, bound.args), **map_leaves(value, bound.kwargs))
        results = [leaf for leaf in iterate_leaves(result) if isinstance(leaf, torch.Tensor)]
        if [tensor.dtype for tensor in results] != [proxy.dtype for proxy in tensor_outputs_of(bound)]:
            raise LoweringError("it returns something else than when it was recorded")
        return results


def _records_gradients(bound: BoundSymbol, context: Context) -> bool:
    if not context.grad_enabled or context.inference:
        return False
    return any(proxy.requires_grad for proxy in tensor_inputs_of(bound))
