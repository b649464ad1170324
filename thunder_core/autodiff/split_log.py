"""From the log of a line's forward and backward to its derivative."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count

from thunder_core.autodiff.derivative import PLAIN, Derivative, Query
from thunder_core.errors import LoweringError
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.builder import Inlining
from thunder_core.ir.definitions import needed_ops, producers_of
from thunder_core.ir.proxy import Proxy, TensorProxy
from thunder_core.ir.trace import Stage, Trace
from thunder_core.passes.functionalize import without_writes


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
