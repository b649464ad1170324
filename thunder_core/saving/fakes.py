"""What the calls of a printed program give: each is run on fake tensors, as acquisition does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from thunder_core.acquire.fake import AcquisitionFakeMode, Observed, make_alias, make_derived, make_fake
from thunder_core.acquire.higher_order import CHECKPOINT
from thunder_core.acquire.outcome import Outcome, infer
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.context import AUTOCAST_DEVICE_TYPES, Context
from thunder_core.ir.program import compile_trace
from thunder_core.ir.proxy import Proxy, TensorProxy
from thunder_core.ir.symbol import Symbol
from thunder_core.ir.trace import Trace
from thunder_core.ir.tree import iterate_leaves, map_leaves
from thunder_core.symbols.control_flow import COND


class FakeRun:
    """Runs the lines of a trace one after the other on fake tensors.

    Args:
        inputs: the trace's inputs.
        leaves: whether inputs that require grad are leaves of the autograd graph, as parameters are.
    """

    def __init__(self, inputs: Sequence[Proxy], *, leaves: bool) -> None:
        self._mode = AcquisitionFakeMode()
        self._fakes: dict[str, torch.Tensor] = {}
        self._storages: dict[int, Any] = {}
        with self._mode.observing():
            for proxy in inputs:
                if isinstance(proxy, TensorProxy):
                    self._fakes[proxy.name] = self._input(proxy, leaves)

    def call(self, bound: BoundSymbol, ambient: Context) -> Outcome:
        """Run ``bound``, whose output is not known yet. Raises whatever the call raises on such arguments."""
        target = _STAND_INS.get(bound.symbol, bound.symbol.target)
        tensors = [self._fakes[proxy.name] for proxy in bound.inputs() if isinstance(proxy, TensorProxy)]
        args, kwargs = self._substitute(bound.args), self._substitute(bound.kwargs)
        with self._mode, self._mode.observing() as observed, _entered(bound.context or ambient):
            outcome, self._results = self._infer(target, args, kwargs, tensors, observed)
        return outcome

    def name_results(self, names: Sequence[str | None]) -> None:
        """Give the results of the last call, in order, the names that later lines use."""
        for name, fake in zip(names, self._results, strict=True):
            if name is not None:
                self._fakes[name] = fake

    def _infer(
        self, target: Callable[..., Any], args: Any, kwargs: Any, tensors: list[torch.Tensor], observed: Observed
    ) -> tuple[Outcome, list[torch.Tensor]]:
        return infer(target, args, kwargs, tensors, observed)

    def _input(self, proxy: TensorProxy, leaves: bool) -> torch.Tensor:
        base = self._storages.get(proxy.storage)
        if base is not None:
            return make_alias(base, proxy, leaf=leaves)
        fake = make_fake(self._mode, proxy) if leaves else make_derived(self._mode, proxy)
        self._storages[proxy.storage] = fake
        return fake

    def _substitute(self, value: Any) -> Any:
        def leaf(item: Any) -> Any:
            if isinstance(item, TensorProxy):
                return self._fakes[item.name]
            return compile_trace(item) if isinstance(item, Trace) else item

        return map_leaves(leaf, value)


@contextmanager
def _entered(context: Context) -> Iterator[None]:
    """The modes of a context, but for inference mode, in which fake tensors are no use."""
    before = {kind: (torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in AUTOCAST_DEVICE_TYPES}
    grad = context.grad_enabled and not context.inference
    # not `torch.autocast`: on a machine without that kind of device it stays off
    with torch.inference_mode(False), torch.set_grad_enabled(grad), torch.autocast("cpu", enabled=False):
        enabled = dict(context.autocast)
        try:
            for kind, (_, dtype) in before.items():
                torch.set_autocast_enabled(kind, kind in enabled)
                torch.set_autocast_dtype(kind, enabled.get(kind, dtype))
            yield
        finally:
            for kind, (was_enabled, dtype) in before.items():
                torch.set_autocast_enabled(kind, was_enabled)
                torch.set_autocast_dtype(kind, dtype)


def _run_body(body: Callable[..., Any], *operands: Any, **options: Any) -> Any:
    """A checkpoint region gives what its body gives."""
    return body(*operands)


def _run_branch(pred: Any, true_branch: Callable[..., Any], false_branch: Callable[..., Any], operands: Any) -> Any:
    """A choice gives new tensors that look like those of the first branch; both branches may have effects."""
    false_branch(*operands)
    return map_leaves(_lookalike, true_branch(*operands))


def _lookalike(leaf: Any) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    copy = torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device=leaf.device)
    return copy.requires_grad_() if leaf.requires_grad else copy


# How symbols that take programs are run on fake tensors, which have no values to decide upon.
_STAND_INS: dict[Symbol, Callable[..., Any]] = {CHECKPOINT: _run_body, COND: _run_branch}
HIGHER_ORDER = {symbol.name: symbol for symbol in _STAND_INS}


def bodies(bound: BoundSymbol) -> list[Trace]:
    """The programs among the arguments of a line."""
    return [leaf for leaf in iterate_leaves((bound.args, bound.kwargs)) if isinstance(leaf, Trace)]
