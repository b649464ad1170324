"""The derivative that PyTorch's autograd gives for a line, traced on fake tensors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from thunder_core.acquire.fake import AcquisitionFakeMode, make_fake
from thunder_core.acquire.operator_log import OperatorLog
from thunder_core.autodiff.derivative import PLAIN, Derivative, Query
from thunder_core.autodiff.split_log import Log, split_log
from thunder_core.errors import LoweringError
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.modes import modes_for_fakes
from thunder_core.ir.proxy import PROXY_TYPES, TensorProxy
from thunder_core.ir.trace import Trace
from thunder_core.ir.tree import iterate_leaves, map_leaves
from thunder_core.passes.proxies import outputs_of, tensor_inputs_of

# Storage numbers that no log makes by itself.
_INPUT_STORAGE = -1_000_000
_COTANGENT_STORAGE = -2_000_000


def derive_by_autograd(query: Query) -> Derivative:
    """Run the line and its backward on fake tensors and keep the operations.

    Raises:
        LoweringError: that is not possible, with the reason.
    """
    refuse_objects(query.bound)
    try:
        return split_log(query, _Tracing(query).log(), "PyTorch's autograd")
    except LoweringError:
        raise
    except Exception as error:  # whatever PyTorch's kernels, or a user's formula, cannot do with fake tensors
        raise LoweringError(f"{type(error).__name__}: {error}") from error


class _Tracing:
    """One run."""

    def __init__(self, query: Query) -> None:
        self.query = query
        self.bound = query.bound
        self.mode = AcquisitionFakeMode()
        self.operators = OperatorLog(self.mode)
        self.inputs: dict[str, TensorProxy] = {}
        self.fakes: dict[str, torch.Tensor] = {}
        self.cotangents: dict[str, TensorProxy] = {}
        for proxy in tensor_inputs_of(self.bound):
            if proxy.name not in self.fakes:
                self._input(proxy)

    def _input(self, proxy: TensorProxy) -> None:
        wanted = replace(proxy, requires_grad=proxy.name in self.query.wanted)
        fake = self.fakes[proxy.name] = make_fake(self.mode, wanted)
        # memories are kept apart: that is no loss for a line that writes nothing
        self.inputs[proxy.name] = replace(proxy, storage=_INPUT_STORAGE - len(self.inputs))
        self.operators.define(fake, self.inputs[proxy.name])

    def log(self) -> Log:
        with torch.random.fork_rng(devices=[]), self.mode:
            results = self._forward()
            forward_lines = len(self.operators.lines)
            gradients = self._backward(results)
        return Log(
            tuple(self.operators.lines),
            forward_lines,
            self.inputs,
            self.cotangents,
            tuple([self.operators.proxy(tensor) for tensor in results]),
            {name: self.operators.proxy(tensor) for name, tensor in gradients.items()},
        )

    def _forward(self) -> list[torch.Tensor]:
        def value(leaf: Any) -> Any:
            return self.fakes[leaf.name] if isinstance(leaf, TensorProxy) else leaf

        bound = self.bound
        args, kwargs = map_leaves(value, bound.args), map_leaves(value, bound.kwargs)
        assert bound.context is not None
        with modes_for_fakes(bound.context), torch.enable_grad(), self.operators:
            result = bound.symbol.target(*args, **kwargs)
        results = [leaf for leaf in iterate_leaves(result) if isinstance(leaf, torch.Tensor)]
        if len(results) != len(outputs_of(bound)):
            raise LoweringError(f"it returned {len(results)} tensors")
        return results

    def _backward(self, results: list[torch.Tensor]) -> dict[str, torch.Tensor]:
        outputs, cotangents = [], []
        for proxy, result in zip(outputs_of(self.bound), results, strict=True):
            if proxy.name in self.query.reached and result.requires_grad:
                outputs.append(result)
                cotangents.append(self._cotangent(proxy.name, result))
        wanted = [(name, fake) for name, fake in self.fakes.items() if name in self.query.wanted]
        if not outputs or not wanted:
            return {}
        with modes_for_fakes(PLAIN), self.operators:
            gradients = torch.autograd.grad(outputs, [fake for _, fake in wanted], cotangents, allow_unused=True)
        return {name: tensor for (name, _), tensor in zip(wanted, gradients, strict=True) if tensor is not None}

    def _cotangent(self, name: str, result: torch.Tensor) -> torch.Tensor:
        if result.layout is not torch.strided:
            raise LoweringError("a result is sparse")
        proxy = TensorProxy(
            f"{name}_cotangent",
            tuple(result.shape),
            torch.empty_like(result, device="meta").stride(),  # dense, also where the result shows elements twice
            result.dtype,
            result.device,
            False,
            _COTANGENT_STORAGE - len(self.cotangents),
        )
        self.cotangents[name] = proxy
        fake = make_fake(self.mode, proxy)
        self.operators.define(fake, proxy)
        return fake


def refuse_objects(bound: BoundSymbol) -> None:
    """Raise LoweringError for a line whose arguments or results have no fake counterpart."""
    for leaf in iterate_leaves((bound.args, bound.kwargs, bound.output)):
        if isinstance(leaf, Trace):
            raise LoweringError("it takes a program")
        if isinstance(leaf, PROXY_TYPES) and not isinstance(leaf, TensorProxy):
            raise LoweringError(f"it works on {leaf.name}, which is no tensor")
        if isinstance(leaf, TensorProxy) and leaf.layout is not torch.strided:
            raise LoweringError(f"it works on the sparse tensor {leaf.name}")
