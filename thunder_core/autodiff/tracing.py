"""A line and its backward on fake tensors, with everything that is called written down."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, Generic, TypeVar

import torch

from thunder_core.acquire.fake import AcquisitionFakeMode
from thunder_core.acquire.fake_tensors import make_fake
from thunder_core.acquire.function_log import FunctionLog
from thunder_core.acquire.operator_log import OperatorLog
from thunder_core.autodiff.derivative import Query
from thunder_core.autodiff.split_log import Log
from thunder_core.errors import LoweringError
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.proxy import PROXY_TYPES, TensorProxy
from thunder_core.ir.trace import Trace
from thunder_core.ir.tree import iterate_leaves, map_leaves
from thunder_core.passes.proxies import tensor_inputs_of

# Storage numbers that no log makes by itself.
_INPUT_STORAGE: Final = -1_000_000
_COTANGENT_STORAGE: Final = -2_000_000

LogType = TypeVar("LogType", OperatorLog, FunctionLog)


class LineTracing(ABC, Generic[LogType]):
    """One run, in two halves; subclasses say who computes them.

    Attributes:
        query: what is asked.
        calls: the log.
        fakes: the tensors among the line's inputs, by name. They require grad where a gradient is wanted.
    """

    def __init__(self, query: Query, log_type: type[LogType]) -> None:
        refuse_objects(query.bound)
        self.query = query
        self.bound = query.bound
        self.mode = AcquisitionFakeMode()
        self.calls: LogType = log_type(self.mode)
        self.fakes: dict[str, torch.Tensor] = {}
        self._inputs: dict[str, TensorProxy] = {}
        self._cotangents: dict[str, TensorProxy] = {}
        for proxy in tensor_inputs_of(self.bound):
            if proxy.name not in self.fakes:
                self._input(proxy)

    @abstractmethod
    def forward(self) -> list[torch.Tensor]:
        """Make the call; its results, in order."""

    @abstractmethod
    def backward(self, results: list[torch.Tensor]) -> dict[str, torch.Tensor]:
        """The gradients of wanted inputs, by name."""

    def log(self) -> Log:
        """Run both halves. The states of random generators stay as they are."""
        with torch.random.fork_rng(devices=[]), self.mode:
            results = self.forward()
            forward_lines = len(self.calls.lines)
            gradients = self.backward(results)
        return Log(
            tuple(self.calls.lines),
            forward_lines,
            self._inputs,
            self._cotangents,
            tuple([self.calls.proxy(tensor) for tensor in results]),
            {name: self.calls.proxy(tensor) for name, tensor in gradients.items()},
        )

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of the line, of fake tensors."""

        def value(leaf: Any) -> Any:
            return self.fakes[leaf.name] if isinstance(leaf, TensorProxy) else leaf

        args, kwargs = map_leaves(value, self.bound.args), map_leaves(value, self.bound.kwargs)
        return args, kwargs

    def results(self, result: Any) -> list[torch.Tensor]:
        """The tensors among the leaves of a result that the line defines, in order.

        PyTorch's functions give tensors of no elements where its operators give none at all.
        """
        leaves, wanted = list(iterate_leaves(result)), list(iterate_leaves(self.bound.output))
        found = [leaf for leaf, own in zip(leaves, wanted) if isinstance(own, TensorProxy)]
        if len(leaves) != len(wanted) or not all(isinstance(leaf, torch.Tensor) for leaf in found):
            raise LoweringError(f"it returned {len(leaves)} things")
        return found

    def cotangents(self, results: Sequence[torch.Tensor | None]) -> list[torch.Tensor | None]:
        """For each result the fake that stands for its cotangent; None if it gets none, and for None."""
        pairs = zip(self.bound.outputs(), results, strict=True)
        wanted = self.query.reached
        return [self._cotangent(p.name, r) if r is not None and p.name in wanted else None for p, r in pairs]

    def _input(self, proxy: TensorProxy) -> None:
        wanted = replace(proxy, requires_grad=proxy.name in self.query.wanted)
        fake = self.fakes[proxy.name] = make_fake(self.mode, wanted)
        # memories are kept apart: that is no loss for a line that writes nothing
        number = len(self._inputs)
        self._inputs[proxy.name] = replace(proxy, name=f":{number}", storage=_INPUT_STORAGE - number)
        self.calls.define(fake, self._inputs[proxy.name])

    def _cotangent(self, name: str, result: torch.Tensor) -> torch.Tensor:
        if result.layout is not torch.strided:
            raise LoweringError("a result is sparse")
        stride = self.query.cotangent_strides.get(name)
        if stride is None:  # dense, also where the result shows elements twice
            stride = torch.empty_like(result, device="meta").stride()
        proxy = TensorProxy(
            f":{name}_cotangent",
            tuple(result.shape),
            stride,
            result.dtype,
            result.device,
            False,
            _COTANGENT_STORAGE - len(self._cotangents),
        )
        self._cotangents[name] = proxy
        fake = make_fake(self.mode, proxy)
        self.calls.define(fake, proxy)
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
