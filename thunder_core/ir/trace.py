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
from thunder_core.ir.proxy import Proxy, TensorProxy
from thunder_core.ir.size import Size, SizeExpr, as_constant, symbols_of, with_size
from thunder_core.ir.symbol import Tag
from thunder_core.ir.tree import iterate_leaves, list_proxies, list_sizes, map_leaves


def producers_of(lines: Iterable[BoundSymbol]) -> dict[str, BoundSymbol]:
    """The line that defines each value, by name; inputs of the program are not among them."""
    return {proxy.name: line for line in lines for proxy in line.outputs()}


@dataclass(frozen=True, slots=True)
class Uses:
    """Who reads each value of a program, by name.

    Attributes:
        users: lines, in order; a line that reads a value twice is there twice.
        returned: how often each value is in the output of the program.
    """

    users: Mapping[str, Sequence[BoundSymbol]]
    returned: Mapping[str, int]

    @classmethod
    def of(cls, lines: Iterable[BoundSymbol], output: Any) -> Uses:
        """The uses in ``lines`` and in the nested containers ``output``."""
        users: dict[str, list[BoundSymbol]] = {}
        for line in lines:
            for proxy in line.inputs():
                users.setdefault(proxy.name, []).append(line)
        return cls(users, Counter([proxy.name for proxy in list_proxies((output,))]))


def needed_ops(ops: Sequence[BoundSymbol], needed: Iterable[str]) -> list[BoundSymbol]:
    """The ops that the values named ``needed`` depend on, and those with effects."""
    live = set(needed)
    kept = []
    for op in reversed(ops):
        if not op.effects.pure or any(proxy.name in live for proxy in op.outputs()):
            kept.append(op)
            live.update(proxy.name for proxy in op.inputs())
    return kept[::-1]


class Stage(enum.Enum):
    """What a trace may contain at a point of the pipeline. The verifier checks it between passes."""

    ACQUIRED = "acquired"  # as the user wrote it: in-place operations and writes through views are allowed
    FUNCTIONAL = "functional"  # no symbol mutates anything
    EXECUTABLE = "executable"  # claimed by executors; may mutate its inputs, frees values after their last use


@dataclass(frozen=True, slots=True)
class Trace:
    """A straight-line program.

    Attributes:
        name: the name of the Python function it prints as.
        inputs: parameters of that function, in order.
        symbols: its lines.
        output: what it returns: nested containers of proxies and literals.
        stage: what it may contain.
        provenance: name of the pass that produced it, for messages.
        context: the modes that the whole program runs under (guarded by the prologue).
        deletions: names to free after the line of that index; filled by the last pass.
    """

    name: str
    inputs: tuple[Proxy, ...]
    symbols: tuple[BoundSymbol, ...]
    output: Any
    stage: Stage
    provenance: str
    context: Context
    deletions: dict[int, tuple[str, ...]] = field(default_factory=dict)

    # derived from the lines when they are first needed
    _producers: dict[str, BoundSymbol] | None = field(default=None, init=False, repr=False, compare=False)
    _sizes: tuple[str, ...] | None = field(default=None, init=False, repr=False, compare=False)
    _uses: Uses | None = field(default=None, init=False, repr=False, compare=False)
    _aliases: Any = field(default=None, init=False, repr=False, compare=False)

    def with_symbols(self, symbols: Iterable[BoundSymbol], provenance: str) -> Trace:
        """The same program with other lines, produced by the pass ``provenance``."""
        return replace(self, symbols=tuple(symbols), provenance=provenance, deletions={})

    def with_gradients(self, names: Container[str]) -> Trace:
        """The same program, in which of the values that it computes those of these names require grad."""
        inputs = {proxy.name for proxy in self.inputs}

        def value(leaf: Any) -> Any:
            if not isinstance(leaf, TensorProxy) or leaf.name in inputs or leaf.requires_grad == (leaf.name in names):
                return leaf
            return replace(leaf, requires_grad=not leaf.requires_grad)

        ops = [replace(op.map_arguments(value), output=map_leaves(value, op.output)) for op in self.symbols]
        return replace(self, symbols=tuple(ops), output=map_leaves(value, self.output))

    def with_constant_sizes(self, values: Mapping[str, int] | None = None) -> Trace:
        """The same program where the symbols have these values, by default those of the recording."""
        return self.with_sizes(partial(as_constant, values=values))

    def with_sizes(self, value: Callable[[SizeExpr], Size], *, checks: bool = True) -> Trace:
        """The same program with something else for each size that varies.

        Args:
            checks: also for those that lines check values against.
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
        """The traces among the arguments of its lines, such as the body of a checkpoint."""
        for bound in self.symbols:
            yield from bodies_of(bound)

    def programs(self) -> Iterator[Trace]:
        """The trace, and those among the arguments of its lines, all the way down."""
        yield self
        for bound in self.symbols:
            if Tag.HIGHER_ORDER in bound.symbol.tags:
                for body in bodies_of(bound):
                    yield from body.programs()

    def values(self) -> Iterator[Proxy]:
        """Every value that is defined in the trace itself."""
        yield from self.inputs
        for bound in self.symbols:
            yield from bound.outputs()

    def all_values(self) -> Iterator[Proxy]:
        """Every value that is defined in the trace and in its bodies."""
        yield from self.values()
        for body in self.bodies():
            yield from body.all_values()

    @property
    def producers(self) -> Mapping[str, BoundSymbol]:
        """The line that defines each value, by name; inputs are not among them."""
        if self._producers is None:
            object.__setattr__(self, "_producers", producers_of(self.symbols))
        return self._producers or {}

    @property
    def sizes(self) -> tuple[str, ...]:
        """Names of the symbols in its inputs, lines and output: further parameters, behind the inputs.

        Those that its lines define are not among them.
        """
        if self._sizes is None:
            names = set(self._symbols()) - self.producers.keys()
            object.__setattr__(self, "_sizes", tuple(sorted(names, key=lambda name: (len(name), name))))
        return self._sizes or ()

    def check_sizes(self) -> None:
        """Raise SizeVariesError if there are sizes as fakes have them, which a part of the compiler left so."""
        for bound in self.symbols:
            for leaf in iterate_leaves((bound.args, bound.kwargs, bound.output)):
                sizes = (*leaf.shape, *leaf.stride, leaf.offset) if isinstance(leaf, TensorProxy) else (leaf,)
                if any(isinstance(size, torch.SymInt) for size in sizes):
                    raise SizeVariesError(
                        f"{bound.symbol.name} is recorded without its symbols", location=bound.location
                    )

    def check_bodies(self) -> None:
        """Raise SizeVariesError if a trace among its arguments defines sizes, which later lines do not get."""
        for body in self.bodies():
            if not body.producers.keys().isdisjoint(body._symbols()):
                raise SizeVariesError(f"{body.name}, a program that a line takes, has sizes that its values decide")

    def _symbols(self) -> Iterator[str]:
        for proxy in self.inputs:
            if isinstance(proxy, TensorProxy):
                yield from symbols_of((*proxy.shape, *proxy.stride, proxy.offset))
        for bound in self.symbols:
            for size in list_sizes((*bound.args, bound.kwargs) if bound.kwargs else bound.args):
                yield from size.symbols
            if Tag.HIGHER_ORDER in bound.symbol.tags:
                for body in bodies_of(bound):
                    yield from body.sizes
        for size in list_sizes((self.output,)):
            yield from size.symbols

    def producer(self, name: str) -> BoundSymbol | None:
        """The line that defines the value ``name``; None for an input."""
        return self.producers.get(name)

    def users(self, name: str) -> Sequence[BoundSymbol]:
        """The lines that read the value ``name``, in order; a line that reads it twice is there twice."""
        return self._all_uses().users.get(name, ())

    def is_returned(self, name: str) -> bool:
        """Whether the value ``name`` is in the output."""
        return name in self._all_uses().returned

    def use_count(self, name: str) -> int:
        """How often the value ``name`` is read: by lines, and in the output."""
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

    def __str__(self) -> str:
        return self.python()


def bodies_of(bound: BoundSymbol) -> list[Trace]:
    """The traces among the arguments of a line, such as the body of a checkpoint."""
    return [leaf for leaf in iterate_leaves((bound.args, bound.kwargs)) if isinstance(leaf, Trace)]
