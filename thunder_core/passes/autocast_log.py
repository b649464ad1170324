"""What autocast does to one call, seen on fake tensors."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

import torch

from thunder_core.acquire.fake import AcquisitionFakeMode
from thunder_core.acquire.fake_tensors import make_derived
from thunder_core.acquire.operator_log import OperatorLog
from thunder_core.errors import LoweringError
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.context import Context
from thunder_core.ir.modes import modes_for_fakes
from thunder_core.ir.proxy import PROXY_TYPES, TensorProxy
from thunder_core.ir.trace import Trace
from thunder_core.ir.tree import iterate_leaves, map_leaves
from thunder_core.passes.autocast_policies import UNCHANGED, Rewrite
from thunder_core.passes.proxies import tensor_inputs_of, tensor_outputs_of

# Storage numbers that no log makes by itself.
_INPUT_STORAGE = -1_000_000

_trying: ContextVar[bool] = ContextVar("trying", default=False)


def _unexpected_failure(record: logging.LogRecord) -> bool:
    """PyTorch logs calls that fail on fake tensors. Here that is an answer."""
    return not _trying.get() or not str(record.msg).startswith("failed while attempting to run meta")


logging.getLogger("torch._subclasses.fake_tensor").addFilter(_unexpected_failure)


@dataclass(frozen=True, slots=True)
class CallLog:
    """The ATen operations of one call.

    Attributes:
        lines: the operations; conversions by a `Rewrite` are among them.
        inputs: by name, the tensors among the call's arguments, under other names and in memories of their own.
        outputs: the tensors that it returned, in order.
        converted: memories of arguments that were converted for the call.
        recording: names of values that require grad.
        differentiable: autograd, recording the operations one by one, gives the gradients of the call: nothing was
            detached, and no operation ran under another grad mode than the call.
    """

    lines: tuple[BoundSymbol, ...]
    inputs: dict[str, TensorProxy]
    outputs: tuple[TensorProxy, ...]
    converted: frozenset[int]
    recording: frozenset[str]
    differentiable: bool


def log_call(bound: BoundSymbol, context: Context, rewrite: Rewrite = UNCHANGED) -> CallLog:
    """Make the call on fake tensors, under ``context`` and without autocast's cache of weights.

    Raises:
        LoweringError: that is not possible, with the reason.
    """
    _refuse_objects(bound)
    before = _trying.set(True)
    try:
        return _Logging(bound, context).run(rewrite)
    except LoweringError:
        raise
    except Exception as error:  # whatever the call cannot do with fake tensors, or with other dtypes
        raise LoweringError(f"{type(error).__name__}: {error}") from error
    finally:
        _trying.reset(before)


class _AutogradLog(OperatorLog):
    """Also sees whether the operations alone tell autograd what the call tells it."""

    def __init__(self, mode: AcquisitionFakeMode, grad: bool) -> None:
        super().__init__(mode)
        self.grad = grad
        self.differentiable = True
        self.detached: dict[int, torch.Tensor] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if self.grad:
            used = any(id(leaf) in self.detached for leaf in iterate_leaves((args, kwargs or {})))
            self.differentiable &= torch.is_grad_enabled() and not used
        result = super().__torch_dispatch__(func, types, args, kwargs)
        if func is torch.ops.aten.detach.default:
            self.detached[id(result)] = result
        return result

    def recording(self) -> frozenset[str]:
        """Names of values that require grad: tensors know it; what one was before it was written follows from that."""
        known = {self.proxy(tensor).name for tensor in self._alive}
        names = {self.proxy(tensor).name for tensor in self._alive if tensor.requires_grad}
        for line in self.lines:
            if any(proxy.name in names for proxy in tensor_inputs_of(line)):
                outputs = [proxy for proxy in tensor_outputs_of(line) if proxy.name not in known]
                names.update(p.name for p in outputs if p.dtype.is_floating_point or p.dtype.is_complex)
        return frozenset(names)


class _Logging:
    """One run."""

    def __init__(self, bound: BoundSymbol, context: Context) -> None:
        self.bound = bound
        self.context = context
        self.mode = AcquisitionFakeMode()
        self.operators = _AutogradLog(self.mode, _records_gradients(bound, context))
        self.inputs: dict[str, TensorProxy] = {}
        self.fakes: dict[str, torch.Tensor] = {}
        self.converted: set[int] = set()

    def run(self, rewrite: Rewrite) -> CallLog:
        with torch.random.fork_rng(devices=[]), self.mode:
            for proxy in tensor_inputs_of(self.bound):
                if proxy.name not in self.fakes:
                    self._input(proxy)
            with _without_cache(self.context), self.operators:
                results = self._call(rewrite)
            outputs = tuple([self.operators.proxy(tensor) for tensor in results])
        detached = any(id(tensor) in self.operators.detached for tensor in results)
        return CallLog(
            tuple(self.operators.lines),
            self.inputs,
            outputs,
            frozenset(self.converted),
            self.operators.recording(),
            self.operators.differentiable and not (self.operators.grad and detached),
        )

    def _input(self, proxy: TensorProxy) -> None:
        fake = self.fakes[proxy.name] = make_derived(self.mode, proxy)
        # names are none that the log makes; memories are kept apart, which is no loss as the call writes none of them
        own = replace(proxy, name=f":{proxy.name}", storage=_INPUT_STORAGE - len(self.inputs))
        self.inputs[proxy.name] = own
        self.operators.define(fake, own)

    def _call(self, rewrite: Rewrite) -> list[torch.Tensor]:
        def value(leaf: Any) -> Any:
            if not isinstance(leaf, TensorProxy):
                return leaf
            dtype = rewrite.conversion(leaf)
            if dtype is None:
                return self.fakes[leaf.name]
            converted = self.fakes[leaf.name].to(dtype)
            self.converted.add(self.operators.proxy(converted).storage)
            return converted

        bound = rewrite.with_result_dtype(self.bound)
        result = bound.symbol.target(*map_leaves(value, bound.args), **map_leaves(value, bound.kwargs))
        results = [leaf for leaf in iterate_leaves(result) if isinstance(leaf, torch.Tensor)]
        if [tensor.dtype for tensor in results] != [proxy.dtype for proxy in tensor_outputs_of(bound)]:
            raise LoweringError("it returns something else than when it was recorded")
        return results


@contextmanager
def _without_cache(context: Context) -> Iterator[None]:
    with modes_for_fakes(context):
        torch.set_autocast_cache_enabled(False)  # modes_for_fakes restores it
        yield


def _records_gradients(bound: BoundSymbol, context: Context) -> bool:
    if not context.grad_enabled or context.inference:
        return False
    return any(proxy.requires_grad for proxy in tensor_inputs_of(bound))


def _refuse_objects(bound: BoundSymbol) -> None:
    if bound.effects.external or bound.effects.mutates:
        raise LoweringError("it does more than to compute")
    for leaf in iterate_leaves((bound.args, bound.kwargs, bound.output)):
        plain = leaf.layout is torch.strided if isinstance(leaf, TensorProxy) else not isinstance(leaf, PROXY_TYPES)
        if isinstance(leaf, Trace) or not plain:
            raise LoweringError("an argument or a result has no fake counterpart")
