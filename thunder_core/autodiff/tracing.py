"""A line and its backward on fake tensors, with everything that is called written down."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from thunder_core.autodiff.derivative import Query
from thunder_core.autodiff.split_log import Log
from thunder_core.errors import LoweringError
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.size import from_fake, on_fakes
from thunder_core.ir.tensors import tensor_inputs_of
from thunder_core.ir.tree import iterate_leaves, map_leaves
from thunder_core.tracing.fake_tensors import make_fake
from thunder_core.tracing.trace_call import refuse_objects
from thunder_core.tracing.tracer import Level, Tracer


class LineTracing(ABC):
    """One run, in two halves; subclasses say who computes them.

    Attributes:
        query: what is asked.
        tracer: records what is called.
        fakes: the tensors among the line's inputs, by name. They require grad where a gradient is wanted.
    """

    def __init__(self, query: Query, level: Level) -> None:
        refuse_objects(query.bound)
        self.query = query
        self.bound = query.bound
        self.tracer = Tracer(level)
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
        tracer = self.tracer
        with torch.random.fork_rng(devices=[]), tracer.mode:
            results = self.forward()
            forward_lines = len(tracer.ops)
            gradients = self.backward(results)
            return Log(
                tuple(tracer.ops),
                forward_lines,
                self._inputs,
                self._cotangents,
                tuple([tracer.proxy(tensor) for tensor in results]),
                {name: tracer.proxy(tensor) for name, tensor in gradients.items()},
            )

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of the line, of fake tensors."""

        def value(leaf: Any) -> Any:
            return self.fakes[leaf.name] if isinstance(leaf, TensorProxy) else on_fakes(leaf)

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
        # storages are kept apart: that is no loss for a line that writes nothing
        wanted = replace(proxy, requires_grad=proxy.name in self.query.wanted)
        fake = self.fakes[proxy.name] = make_fake(self.tracer.mode, wanted)
        self._inputs[proxy.name] = self.tracer.input(fake, proxy)

    def _cotangent(self, name: str, result: torch.Tensor) -> torch.Tensor:
        if result.layout is not torch.strided:
            raise LoweringError("a result is sparse")
        stride = self.query.cotangent_strides.get(name)
        if stride is None:  # dense, also where the result shows elements twice
            stride = from_fake(torch.empty_like(result, device="meta").stride())
        proxy = TensorProxy(name, from_fake(tuple(result.shape)), stride, result.dtype, result.device, False, 0)
        fake = make_fake(self.tracer.mode, proxy)
        self._cotangents[name] = self.tracer.input(fake, proxy)
        return fake
