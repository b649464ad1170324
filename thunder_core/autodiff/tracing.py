"""A line and its backward on fake tensors, with everything that is called written down."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import torch

from thunder_core.autodiff.derivative import PLAIN, Derivative, Query
from thunder_core.errors import LoweringError
from thunder_core.ir.bound_symbol import BoundSymbol, tensor_inputs_of
from thunder_core.ir.builder import Inlining
from thunder_core.ir.proxy import Proxy, TensorProxy
from thunder_core.ir.size import from_fake, on_fakes
from thunder_core.ir.trace import Stage, Trace, needed_ops, producers_of
from thunder_core.ir.tree import iterate_leaves, map_leaves
from thunder_core.passes.functionalize import without_writes
from thunder_core.tracing.fake_tensors import make_fake
from thunder_core.tracing.trace_call import refuse_objects
from thunder_core.tracing.tracer import Level, Tracer


@dataclass(frozen=True, slots=True)
class Log:
    """What was logged for one line. All proxies are the log's.

    Attributes:
        lines: operations of forward, then those of backward.
        forward_lines: number of those of forward.
        inputs: tensors among the line's inputs by name, in memories of their own.
        cotangents: by name of the output.
        outputs: the line's outputs, in order.
        gradients: by name of the input.
    """

    lines: tuple[BoundSymbol, ...]
    forward_lines: int
    inputs: dict[str, TensorProxy]
    cotangents: dict[str, TensorProxy]
    outputs: tuple[TensorProxy, ...]
    gradients: dict[str, TensorProxy]


def split_log(query: Query, log: Log, source: str) -> Derivative:
    """The derivative: lines that depend on a cotangent are backward, the others forward.

    Raises:
        LoweringError: the line's outputs are not values that the log makes.
    """
    return _Split(query, _pure(log)).derivative(source)


class _Split:
    def __init__(self, query: Query, log: Log) -> None:
        self.bound = query.bound
        self.own_outputs = query.bound.outputs()
        self.log = log
        tainted = {proxy.name for proxy in log.cotangents.values()}
        self.forward: list[BoundSymbol] = []
        self.backward: list[BoundSymbol] = []
        for line in log.lines:
            if tainted.isdisjoint(proxy.name for proxy in line.inputs()):
                self.forward.append(line)
            else:
                self.backward.append(line)
                tainted.update(proxy.name for proxy in line.outputs())
        gradients = {proxy.name for proxy in log.gradients.values()}
        self.backward = needed_ops(self.backward, gradients)
        uses = {proxy.name for line in self.backward for proxy in line.inputs()} | gradients
        self.needed = uses - tainted

    def derivative(self, source: str) -> Derivative:
        made = producers_of(self.forward).keys()
        names = [proxy.name for proxy in self.log.outputs]
        if len(set(names)) == len(names) and made >= set(names):
            forward = self._forward()
        elif self.needed <= {proxy.name for proxy in self.log.inputs.values()}:  # an output is an input, say
            forward = [self.bound]
        else:
            raise LoweringError("an output of it is an input, or another output")
        inlining = self._inlining(self.own_outputs if made >= set(names) else [])

        def own(line: BoundSymbol) -> BoundSymbol:
            if line is self.bound:
                return line
            return replace(inlining.op(line), context=PLAIN, location=self.bound.location)

        return Derivative(
            self.bound,
            tuple(map(own, forward)),
            tuple(map(own, self.backward)),
            {name: inlining.value(proxy) for name, proxy in self.log.cotangents.items()},
            {name: inlining.value(proxy) for name, proxy in self.log.gradients.items()},
            source,
        )

    def _inlining(self, own_outputs: Sequence[Proxy]) -> Inlining:
        """From the log's values to those of the line; others are called ``:0, :1, ...``, in storages below zero."""
        arguments = {proxy.name: proxy for proxy in self.bound.inputs()}
        pairs = [(proxy, arguments[name]) for name, proxy in self.log.inputs.items()]
        names, storages = count(), count(-1, -1)
        return Inlining(
            [*pairs, *zip(self.log.outputs, own_outputs)], lambda proxy: f":{next(names)}", lambda: next(storages)
        )

    def _forward(self) -> list[BoundSymbol]:
        """The line itself in place of the operators that it consists of, where that loses nothing.

        That is so when each value that backward needs is an input or output of the line, a view of one, or computed
        from these by backward's own formula. Higher-level lines are clearer, and executors know more of them.
        """
        known = {proxy.name for proxy in (*self.log.inputs.values(), *self.log.outputs)}
        producers = producers_of(self.forward)
        formula = {id(line) for line in self.log.lines[self.log.forward_lines :]}
        kept: set[int] = set()

        def reachable(name: str) -> bool:
            if name in known:
                return True
            line = producers[name]
            simple = line.is_view() or (id(line) in formula and line.effects.pure)
            if not simple or not all(reachable(proxy.name) for proxy in line.inputs()):
                return False
            kept.add(id(line))
            return True

        if all(reachable(name) for name in sorted(self.needed)):
            return [self.bound, *[line for line in self.forward if id(line) in kept]]
        return needed_ops(self.forward, self.needed | {proxy.name for proxy in self.log.outputs})


def _pure(log: Log) -> Log:
    """The same log without writes to memory."""
    if not any(line.effects.mutates for line in log.lines):
        return log
    inputs = (*log.inputs.values(), *log.cotangents.values())
    output = (*log.outputs, *log.gradients.values())
    trace = without_writes(Trace("derivative", inputs, log.lines, output, Stage.ACQUIRED, "log", PLAIN))
    count = len(log.outputs)
    return replace(
        log,
        lines=trace.symbols,
        forward_lines=len(trace.symbols),  # which lines came from backward is not known any more
        outputs=trace.output[:count],
        gradients=dict(zip(log.gradients, trace.output[count:], strict=True)),
    )


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
