"""A trace: a straight-line program of bound symbols."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch

from thunder_core.errors import SizeVariesError
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.context import Context
from thunder_core.ir.proxy import OpaqueProxy, Proxy, TensorProxy
from thunder_core.ir.size import Size, SizeExpr, as_constant, symbols_of, with_size
from thunder_core.ir.symbol import Symbol, Tag
from thunder_core.ir.tree import iterate_leaves, list_proxies, list_sizes, map_leaves


def producers_of(ops: Iterable[BoundSymbol]) -> dict[str, BoundSymbol]:
    """The op that defines each value, by name; inputs have no entry."""
    return {proxy.name: op for op in ops for proxy in op.outputs()}


@dataclass(frozen=True, slots=True)
class Uses:
    """The readers of each value of a program, by name.

    Attributes:
        users: the ops that read a value, in order; an op that reads it twice appears twice.
        returned: how often each value occurs in the output of the program.
    """

    users: Mapping[str, Sequence[BoundSymbol]]
    returned: Mapping[str, int]

    @classmethod
    def of(cls, ops: Iterable[BoundSymbol], output: Any) -> Uses:
        """The uses in the ops and in the nested containers ``output``."""
        users: dict[str, list[BoundSymbol]] = {}
        for op in ops:
            for proxy in op.inputs():
                users.setdefault(proxy.name, []).append(op)
        return cls(users, Counter([proxy.name for proxy in list_proxies((output,))]))


def needed_ops(ops: Sequence[BoundSymbol], needed: Iterable[str]) -> list[BoundSymbol]:
    """The ops that the values named ``needed`` or ops with effects depend on, and the latter themselves, in order."""
    live = set(needed)
    needed_from_end = []
    for op in reversed(ops):
        if not op.effects.pure or any(proxy.name in live for proxy in op.outputs()):
            needed_from_end.append(op)
            live.update(proxy.name for proxy in op.inputs())
    return needed_from_end[::-1]


class Stage(enum.Enum):
    """The stage of a trace, which restricts the effects of its ops. The verifier checks it between passes."""

    ACQUIRED = "acquired"  # as recorded: in-place ops and writes through views are allowed
    FUNCTIONAL = "functional"  # no op writes to a tensor
    EXECUTABLE = "executable"  # claimed by executors; may write to its inputs; frees values after their last use


@dataclass(frozen=True, slots=True)
class Trace:
    """A straight-line program.

    Attributes:
        name: the name of the Python function it prints as.
        inputs: parameters of that function, in order.
        symbols: its ops, in order.
        output: the returned value: nested containers of proxies and literals.
        stage: the effects that its ops may have.
        provenance: name of the pass that produced it, for messages.
        context: the modes that the whole program runs under (guarded by the prologue).
        deletions: names to free after the op of that index; filled by the last pass.
    """

    name: str
    inputs: tuple[Proxy, ...]
    symbols: tuple[BoundSymbol, ...]
    output: Any
    stage: Stage
    provenance: str
    context: Context
    deletions: dict[int, tuple[str, ...]] = field(default_factory=dict)

    # derived from the ops on first access
    _producers: dict[str, BoundSymbol] | None = field(default=None, init=False, repr=False, compare=False)
    _sizes: tuple[str, ...] | None = field(default=None, init=False, repr=False, compare=False)
    _uses: Uses | None = field(default=None, init=False, repr=False, compare=False)
    _aliases: Any = field(default=None, init=False, repr=False, compare=False)

    def with_symbols(self, symbols: Iterable[BoundSymbol], provenance: str) -> Trace:
        """The trace with other ops, produced by the pass ``provenance``."""
        return replace(self, symbols=tuple(symbols), provenance=provenance, deletions={})

    def with_gradients(self, names: Container[str]) -> Trace:
        """The trace in which, of its computed values, exactly those of these names require grad."""
        inputs = {proxy.name for proxy in self.inputs}

        def value(leaf: Any) -> Any:
            if not isinstance(leaf, TensorProxy) or leaf.name in inputs or leaf.requires_grad == (leaf.name in names):
                return leaf
            return replace(leaf, requires_grad=not leaf.requires_grad)

        ops = [op.map_leaves(value) for op in self.symbols]
        return replace(self, symbols=tuple(ops), output=map_leaves(value, self.output))

    def with_constant_sizes(self, values: Mapping[str, int] | None = None) -> Trace:
        """The trace for these values of its size symbols, by default those of the recording."""
        return self.with_sizes(partial(as_constant, values=values))

    def with_sizes(self, value: Callable[[SizeExpr], Size], *, checks: bool = True) -> Trace:
        """The trace with ``value(size)`` in place of each varying size.

        Args:
            checks: whether sizes that ops check values against are replaced too.
        """

        def of_leaf(leaf: Any) -> Any:
            return leaf.with_sizes(value) if isinstance(leaf, TensorProxy) else with_size(leaf, value)

        ops = [op.with_sizes(value, literals=checks or Tag.GUESS not in op.symbol.tags) for op in self.symbols]
        inputs = tuple([of_leaf(proxy) for proxy in self.inputs])
        return replace(self, inputs=inputs, symbols=tuple(ops), output=map_leaves(of_leaf, self.output))

    def names(self) -> set[str]:
        """Every name defined in the trace."""
        return {proxy.name for proxy in self.inputs} | self.producers.keys()

    def bodies(self) -> Iterator[Trace]:
        """The traces among the arguments of its ops, such as the body of a checkpoint."""
        for bound in self.symbols:
            yield from bodies_of(bound)

    def programs(self) -> Iterator[Trace]:
        """The trace and, recursively, the traces among the arguments of its ops."""
        yield self
        for bound in self.symbols:
            if Tag.HIGHER_ORDER in bound.symbol.tags:
                for body in bodies_of(bound):
                    yield from body.programs()

    def values(self) -> Iterator[Proxy]:
        """All values defined in the trace itself, without its bodies."""
        yield from self.inputs
        for bound in self.symbols:
            yield from bound.outputs()

    def all_values(self) -> Iterator[Proxy]:
        """All values defined in the trace and in its bodies."""
        yield from self.values()
        for body in self.bodies():
            yield from body.all_values()

    @property
    def producers(self) -> Mapping[str, BoundSymbol]:
        """The op that defines each value, by name; inputs have no entry."""
        if self._producers is None:
            object.__setattr__(self, "_producers", producers_of(self.symbols))
        return self._producers or {}

    @property
    def sizes(self) -> tuple[str, ...]:
        """Names of the size symbols in its inputs, ops and output: further parameters, after the inputs.

        Symbols that its ops define are not included.
        """
        if self._sizes is None:
            names = set(self._symbols()) - self.producers.keys()
            object.__setattr__(self, "_sizes", tuple(sorted(names, key=lambda name: (len(name), name))))
        return self._sizes or ()

    def check_sizes(self) -> None:
        """Raise SizeVariesError if an argument is a SymInt that the compiler failed to convert to a `SizeExpr`."""
        for bound in self.symbols:
            for leaf in iterate_leaves((bound.args, bound.kwargs, bound.output)):
                sizes = leaf.sizes if isinstance(leaf, TensorProxy) else (leaf,)
                if any(isinstance(size, torch.SymInt) for size in sizes):
                    raise SizeVariesError(
                        f"{bound.symbol.name} is recorded without its symbols", location=bound.location
                    )

    def check_bodies(self) -> None:
        """Raise SizeVariesError if a body defines size symbols: ops after it cannot use them."""
        for body in self.bodies():
            if not body.producers.keys().isdisjoint(body._symbols()):
                raise SizeVariesError(
                    f"{body.name}, a trace among the arguments of an op, has sizes that depend on its values"
                )

    def _symbols(self) -> Iterator[str]:
        for proxy in self.inputs:
            if isinstance(proxy, TensorProxy):
                yield from symbols_of(proxy.sizes)
        for bound in self.symbols:
            for size in list_sizes((*bound.args, bound.kwargs) if bound.kwargs else bound.args):
                yield from size.symbols
            if Tag.HIGHER_ORDER in bound.symbol.tags:
                for body in bodies_of(bound):
                    yield from body.sizes
        for size in list_sizes((self.output,)):
            yield from size.symbols

    def producer(self, name: str) -> BoundSymbol | None:
        """The op that defines the value ``name``; None for an input."""
        return self.producers.get(name)

    def users(self, name: str) -> Sequence[BoundSymbol]:
        """The ops that read the value ``name``, in order; an op that reads it twice appears twice."""
        return self._all_uses().users.get(name, ())

    def is_returned(self, name: str) -> bool:
        """Whether the value ``name`` is in the output."""
        return name in self._all_uses().returned

    def use_count(self, name: str) -> int:
        """How often the value ``name`` is used: by ops, and in the output."""
        return len(self.users(name)) + self._all_uses().returned.get(name, 0)

    def _all_uses(self) -> Uses:
        if self._uses is None:
            object.__setattr__(self, "_uses", Uses.of(self.symbols, self.output))
        assert self._uses is not None
        return self._uses

    def python(self, *, lowered: bool = False) -> str:
        """The trace as a Python module that defines one function; ``lowered`` adds parts as comments."""
        from thunder_core.ir.printer import print_trace

        return print_trace(self, lowered=lowered)

    def __repr__(self) -> str:
        return f"<Trace {self.name}: {self.stage.value}, {len(self.symbols)} ops, from {self.provenance}>"

    def __str__(self) -> str:
        return self.python()


class OpPrograms:
    """The traces of an autograd.Function: its attribute ``programs``, if a symbol's target is its ``apply``.

    Attributes:
        traces: the forward trace, followed by the backward trace if there is one. Forward takes the arguments of an op
            and returns its results, followed by values for backward. Backward takes cotangents, then these values.
        returned: the number of results of an op.
        differentiable: the number of results that have a cotangent; they come first.
        places: the positions of the arguments whose gradients backward returns.
    """

    traces: tuple[Trace, ...] = ()
    returned: int = 0
    differentiable: int = 0
    places: Sequence[int] = ()

    @property
    def cotangents(self) -> tuple[Proxy, ...]:
        """The cotangents that backward takes."""
        return self.traces[1].inputs[: self.differentiable]


def op_programs(symbol: Symbol) -> OpPrograms | None:
    """The programs of the autograd.Function that ops of a symbol apply, if it has any.

    If autograd records the op while it runs, the target is `thunder_core.autodiff.derivatives.by_eager.record_graph`.
    """
    target = next(iter(symbol.target.args), None) if isinstance(symbol.target, partial) else symbol.target
    programs = getattr(getattr(target, "__self__", None), "programs", None)
    return programs if isinstance(programs, OpPrograms) else None


def programs_of(symbol: Symbol) -> tuple[Trace, ...]:
    """The forward and backward traces that ops of a symbol run; empty if it has none."""
    programs = op_programs(symbol)
    return () if programs is None else programs.traces


def derivatives_of(trace: Trace) -> dict[str, Trace]:
    """The backward programs of the ops that autograd records while they run, by the names of the graphs."""
    found: dict[str, Trace] = {}
    for op in trace.symbols:
        programs = programs_of(op.symbol)
        if len(programs) > 1:
            found |= {proxy.name: programs[1] for proxy in op.outputs() if isinstance(proxy, OpaqueProxy)}
    return found


def bodies_of(bound: BoundSymbol) -> list[Trace]:
    """The traces among the arguments of an op, such as the body of a checkpoint."""
    return [leaf for leaf in iterate_leaves((bound.args, bound.kwargs)) if isinstance(leaf, Trace)]


def with_bodies(ops: Iterable[BoundSymbol]) -> Iterator[BoundSymbol]:
    """The ops, each after the ops of its bodies."""
    for bound in ops:
        for body in bodies_of(bound):
            yield from with_bodies(body.symbols)
        yield bound
