"""Tracing of an op and its backward on fake tensors, and the split of the logged ops into forward and backward."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import torch

from thunder_core.autodiff.derivatives.derivative import PLAIN, Derivative, Query
from thunder_core.errors import LoweringError
from thunder_core.ir.bound_symbol import BoundSymbol, tensor_inputs_of
from thunder_core.ir.builder import Inlining
from thunder_core.ir.proxy import Proxy, TensorProxy
from thunder_core.ir.size import from_fake, on_fakes
from thunder_core.ir.trace import Stage, Trace, needed_ops, producers_of
from thunder_core.ir.tree import iterate_leaves, map_leaves
from thunder_core.passes import operations
from thunder_core.passes.functionalize import without_writes
from thunder_core.passes.rewrite import Match, Rule, rewrite_ops
from thunder_core.tracing.fake_tensors import make_fake
from thunder_core.tracing.trace_call import refuse_objects
from thunder_core.tracing.tracer import Level, Tracer


@dataclass(frozen=True, slots=True)
class Log:
    """The ops logged for one op of the trace. Its proxies are separate from those of the trace.

    Attributes:
        ops: the ops of forward, then the ops of backward.
        backward_start: the position of the first op of backward.
        inputs: the tensors among the op's inputs, by name, each in a separate storage.
        cotangents: the cotangents, by name of the output.
        outputs: the op's outputs, in order.
        gradients: the gradients, by name of the input.
    """

    ops: tuple[BoundSymbol, ...]
    backward_start: int
    inputs: dict[str, TensorProxy]
    cotangents: dict[str, TensorProxy]
    outputs: tuple[TensorProxy, ...]
    gradients: dict[str, TensorProxy]


def split_log(query: Query, log: Log, source: str) -> Derivative:
    """The derivative: ops that depend on a cotangent belong to backward, the others to forward.

    Raises:
        LoweringError: the logged ops do not compute each output, and backward needs values that they compute.
    """
    return _Split(query, _pure(log)).derivative(source)


class _Split:
    """A log without in-place ops, split into forward and backward.

    Attributes:
        forward: the ops that depend on no cotangent.
        backward: the ops that depend on a cotangent, and on which a gradient depends.
        needed: names of the values that backward and the gradients need, but that depend on no cotangent.
    """

    def __init__(self, query: Query, log: Log) -> None:
        self.bound = query.bound
        self.log = log
        dependent = {proxy.name for proxy in log.cotangents.values()}
        self.forward: list[BoundSymbol] = []
        self.backward: list[BoundSymbol] = []
        for op in log.ops:
            if dependent.isdisjoint(proxy.name for proxy in op.inputs()):
                self.forward.append(op)
            else:
                self.backward.append(op)
                dependent.update(proxy.name for proxy in op.outputs())
        gradients = {proxy.name for proxy in log.gradients.values()}
        self.backward = needed_ops(self.backward, gradients)
        uses = {proxy.name for op in self.backward for proxy in op.inputs()} | gradients
        self.needed = uses - dependent

    def derivative(self, source: str) -> Derivative:
        """The derivative, with the names of the trace; ``source`` as in `Derivative`."""
        names = [proxy.name for proxy in self.log.outputs]
        all_computed = producers_of(self.forward).keys() >= set(names)
        if all_computed and len(set(names)) == len(names):
            forward = self._forward()
        elif self.needed <= {proxy.name for proxy in self.log.inputs.values()}:  # for example, if an output is an input
            forward = [self.bound]
        else:
            raise LoweringError("an output of it is an input, or another output")
        inlining = self._inlining(self.bound.outputs() if all_computed else [])

        def inlined(op: BoundSymbol) -> BoundSymbol:
            if op is self.bound:
                return op
            return replace(inlining.op(op), context=PLAIN, location=self.bound.location)

        return Derivative(
            self.bound,
            tuple(map(inlined, forward)),
            tuple(map(inlined, self.backward)),
            {name: inlining.value(proxy) for name, proxy in self.log.cotangents.items()},
            {name: inlining.value(proxy) for name, proxy in self.log.gradients.items()},
            source,
        )

    def _inlining(self, outputs: Sequence[Proxy]) -> Inlining:
        """The map from values of the log to values of the trace.

        The other values of the log get the names ``:0``, ``:1``, ... and negative storages.

        Args:
            outputs: the outputs of the op; empty if an output of the log is one of its inputs, mapped already.
        """
        arguments = {proxy.name: proxy for proxy in self.bound.inputs()}
        pairs = [(proxy, arguments[name]) for name, proxy in self.log.inputs.items()]
        names, storages = count(), count(-1, -1)
        return Inlining(
            [*pairs, *zip(self.log.outputs, outputs)], lambda proxy: f":{next(names)}", lambda: next(storages)
        )

    def _forward(self) -> list[BoundSymbol]:
        """The ops of forward: the undecomposed op where possible, otherwise the logged ops.

        It is possible if each value that backward needs is an input or output of the op, or is computed from these by
        views and by ops without effects that backward logged. The undecomposed op is clearer, and more executors claim
        it.
        """
        known = {proxy.name for proxy in (*self.log.inputs.values(), *self.log.outputs)}
        producers = producers_of(self.forward)
        of_backward = {id(op) for op in self.log.ops[self.log.backward_start :]}
        additional: set[int] = set()

        def reachable(name: str) -> bool:
            if name in known:
                return True
            op = producers[name]
            allowed = op.is_view() or (id(op) in of_backward and op.effects.pure)
            if not allowed or not all(reachable(proxy.name) for proxy in op.inputs()):
                return False
            additional.add(id(op))
            return True

        if all(reachable(name) for name in sorted(self.needed)):
            return [self.bound, *[op for op in self.forward if id(op) in additional]]
        return needed_ops(self.forward, self.needed | {proxy.name for proxy in self.log.outputs})


def _pure(log: Log) -> Log:
    """The log with its in-place ops functionalized."""
    if not any(op.effects.mutates for op in log.ops):
        return log
    inputs = (*log.inputs.values(), *log.cotangents.values())
    output = (*log.outputs, *log.gradients.values())
    trace = without_writes(Trace("derivative", inputs, log.ops, output, Stage.ACQUIRED, "log", PLAIN))
    ops = tuple(rewrite_ops(trace.symbols, [_copies_of_clones(trace)]))
    gradient_start = len(log.outputs)
    return replace(
        log,
        ops=ops,
        backward_start=len(ops),  # functionalization mixes the ops of forward and backward
        outputs=trace.output[:gradient_start],
        gradients=dict(zip(log.gradients, trace.output[gradient_start:], strict=True)),
    )


def _copies_of_clones(trace: Trace) -> Rule[Match]:
    """`functional_call` of the tensors themselves in place of one that copies clones of them, which only it reads.

    An op that calls a function with copies of its arguments has both: its own copies are clones in the log, and the
    write of the called function is functionalized again.
    """

    def clone_of(name: str) -> BoundSymbol | None:
        clone = trace.producer(name)
        if clone is None or clone.symbol.target is not torch.clone or trace.use_count(name) != 1:
            return None
        return clone if clone.args[0].stride == clone.output.stride else None

    def pattern(call: BoundSymbol) -> Iterator[Match]:
        if call.symbol.target is not operations.functional_call:
            return
        leaves = list(iterate_leaves(call.args[2:]))
        clones = [clone for position in call.args[1] if (clone := clone_of(leaves[position].name)) is not None]
        names = [clone.args[0].name for clone in clones] + [proxy.name for proxy in call.inputs()]
        if clones and len(set(names)) == len(names):  # else the function reads what it writes
            yield Match((*clones, call))

    def replacement(match: Match) -> list[BoundSymbol]:
        *clones, call = match.ops
        cloned = {clone.output.name: clone.args[0] for clone in clones}
        return [call.map_arguments(lambda leaf: cloned.get(leaf.name, leaf) if isinstance(leaf, TensorProxy) else leaf)]

    return Rule(pattern, replacement)


class OpTracing(ABC):
    """Runs forward and backward of an op on fake tensors; subclasses implement both.

    Attributes:
        query: the op and the gradients to compute.
        tracer: records the calls.
        fakes: fake tensors for the tensors among the op's inputs, by name. They require grad if their gradients are
            computed.
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
        """Run forward; returns its results, in order."""

    @abstractmethod
    def backward(self, results: list[torch.Tensor]) -> dict[str, torch.Tensor]:
        """Run backward; returns the gradients by the names of the inputs."""

    def log(self) -> Log:
        """Run forward and backward, and return the log. The states of random generators are restored."""
        tracer = self.tracer
        # anomaly mode would compare fake gradients with NaN, which reads their values
        with torch.autograd.set_detect_anomaly(False), torch.random.fork_rng(devices=[]), tracer.mode:
            results = self.forward()
            backward_start = len(tracer.ops)
            gradients = self.backward(results)
            return Log(
                tuple(tracer.ops),
                backward_start,
                self._inputs,
                self._cotangents,
                tuple([tracer.proxy(tensor) for tensor in results]),
                {name: tracer.proxy(tensor) for name, tensor in gradients.items()},
            )

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of the op, with fake tensors for proxies."""

        def value(leaf: Any) -> Any:
            return self.fakes[leaf.name] if isinstance(leaf, TensorProxy) else on_fakes(leaf)

        args, kwargs = map_leaves(value, self.bound.args), map_leaves(value, self.bound.kwargs)
        return args, kwargs

    def results(self, result: Any) -> list[torch.Tensor]:
        """The leaves of a result for which the output of the op has tensors, in order.

        PyTorch's operators return None, and its functions a tensor without elements, for results that do not exist;
        these are omitted.

        Raises:
            LoweringError: the result has another number of leaves, or a leaf that should be a tensor is not.
        """
        leaves, outputs = list(iterate_leaves(result)), list(iterate_leaves(self.bound.output))
        if len(leaves) != len(outputs):
            raise LoweringError(f"it returned {len(leaves)} values instead of {len(outputs)}")
        tensors = [leaf for leaf, output in zip(leaves, outputs, strict=True) if isinstance(output, TensorProxy)]
        for leaf in tensors:
            if not isinstance(leaf, torch.Tensor):
                raise LoweringError(f"it returned {type(leaf).__name__} instead of a tensor")
        return tensors

    def cotangents(self, results: Sequence[torch.Tensor | None]) -> list[torch.Tensor | None]:
        """The fake cotangent of each result; None if the result is None or has no cotangent."""
        pairs = zip(self.bound.outputs(), results, strict=True)
        reached = self.query.reached
        return [self._cotangent(p.name, r) if r is not None and p.name in reached else None for p, r in pairs]

    def _input(self, proxy: TensorProxy) -> None:
        # each input has a separate storage: aliasing is irrelevant for an op without writes
        differentiable = replace(proxy, requires_grad=proxy.name in self.query.wanted)
        fake = self.fakes[proxy.name] = make_fake(self.tracer.mode, differentiable)
        self._inputs[proxy.name] = self.tracer.input(fake, proxy)

    def _cotangent(self, name: str, result: torch.Tensor) -> torch.Tensor:
        if result.layout is not torch.strided:
            raise LoweringError("a result is sparse")
        stride = self.query.cotangent_strides.get(name)
        if stride is None:  # dense, even if elements of the result overlap
            stride = from_fake(torch.empty_like(result, device="meta").stride())
        proxy = TensorProxy(name, from_fake(tuple(result.shape)), stride, result.dtype, result.device, False, 0)
        fake = make_fake(self.tracer.mode, proxy)
        self._cotangents[name] = self.tracer.input(fake, proxy)
        return fake
