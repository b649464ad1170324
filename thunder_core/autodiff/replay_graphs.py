"""Replay of lines that eager differentiates: `torch.func` does, under the recorder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from thunder_core.acquire.recorder import Recorder
from thunder_core.autodiff.eager_graph import gradients_of
from thunder_core.autodiff.replay import Replay
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.location import SourceLocation
from thunder_core.ir.proxy import OpaqueProxy
from thunder_core.ir.tensors import tensor_outputs_of
from thunder_core.ir.tree import iterate_leaves, map_leaves


class ReplayWithGraphs(Replay):
    """A `Replay` that knows the lines of `thunder_core.autodiff.by_eager`.

    The graph that such a line leaves for its backward exists when the program runs, and can be gone through once. So
    the line is recorded under `torch.func.vjp` instead, operator by operator, and so is its backward: those lines can
    be differentiated again. What `torch.func` asks of a user's `torch.autograd.Function` (a ``setup_context``) is asked
    here.

    Args:
        originals: the lines before differentiation, by name of an output.
    """

    def __init__(
        self,
        recorder: Recorder,
        values: dict[str, Any],
        names: dict[str, str],
        location: SourceLocation | None,
        originals: Mapping[str, BoundSymbol],
    ) -> None:
        super().__init__(recorder, values, names, location)
        self.originals = originals

    def _line(self, line: BoundSymbol) -> None:
        outputs = line.outputs()
        if outputs and isinstance(outputs[-1], OpaqueProxy) and outputs[-1].type_name == "EagerGraph":
            self._record_graph(line, outputs[-1])
        elif line.symbol.target is gradients_of:
            self._gradients_of(line)
        else:
            super()._line(line)

    def _record_graph(self, line: BoundSymbol, graph: OpaqueProxy) -> None:
        original = self.originals[tensor_outputs_of(line)[0].name]
        arguments = map_leaves(self._value, (original.args, original.kwargs))
        leaves = list(iterate_leaves(arguments))
        wanted = [leaves[position] for position in line.args[-3]]
        places: list[bool] = []
        differentiable: list[bool] = []

        def function(*tensors: torch.Tensor) -> tuple[Any, Any]:
            given = {id(old): new for old, new in zip(wanted, tensors, strict=True)}
            args, kwargs = map_leaves(lambda leaf: given.get(id(leaf), leaf), arguments)
            result = original.symbol.target(*args, **kwargs)
            places[:] = [isinstance(leaf, torch.Tensor) for leaf in iterate_leaves(result)]
            found = [leaf for leaf in iterate_leaves(result) if isinstance(leaf, torch.Tensor)]
            differentiable[:] = [leaf.is_floating_point() or leaf.is_complex() for leaf in found]
            pairs = list(zip(found, differentiable, strict=True))
            return tuple([leaf for leaf, yes in pairs if yes]), tuple([leaf for leaf, yes in pairs if not yes])

        recorded: Any = torch.func.vjp(function, *wanted, has_aux=True)
        outputs, pull, others = recorded
        floating, rest = iter(outputs), iter(others)
        results = [next(floating if yes else rest) for yes in differentiable]
        self.define(line, results)
        self.values[graph.name] = pull, places, differentiable, results

    def _gradients_of(self, line: BoundSymbol) -> None:
        graph, _, cotangents = map_leaves(self._value, line.args)
        pull, places, differentiable, results = graph
        cotangents = [cotangent for cotangent, tensor in zip(cotangents, places, strict=True) if tensor]
        given = [
            self.call(torch.zeros_like, result) if cotangent is None else cotangent
            for result, cotangent, yes in zip(results, cotangents, differentiable, strict=True)
            if yes
        ]
        for proxy, gradient in zip(line.outputs(), pull(tuple(given)), strict=True):
            self.values[proxy.name] = gradient
