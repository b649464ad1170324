"""Results that are views: made after the program, on the tensors that the user holds.

To autograd, what one function returns are separate tensors, and it refuses writes to those that are views of what only
that function knows. A result that is a view (of an input, of another result, of a value in between) is therefore made
again by the lines that made it, outside of that function: then autograd knows what is a view of what, and writes to one
show in the others and in gradients, as in eager.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.proxy import Proxy, TensorProxy
from thunder_core.ir.trace import Stage, Trace
from thunder_core.ir.tree import map_leaves
from thunder_core.passes.base import Pass, PassContext
from thunder_core.passes.functionalize import FromComputation, FromEpilogue, FromInput, Functionalized, ResultSource


@dataclass(frozen=True)
class MoveOutputViews(Pass[Functionalized]):
    """Lets the epilogue make the results that are views.

    In-place calls stay in their functional form from here on: backward may read the values that they overwrite.

    Attributes:
        functionalized: as for `thunder_core.passes.reinplace.Reinplace`.
    """

    name: ClassVar[str] = "MoveOutputViews"
    consumes: ClassVar[frozenset[Stage]] = frozenset({Stage.FUNCTIONAL})

    functionalized: Functionalized

    def run(self, trace: Trace, context: PassContext) -> Functionalized:
        given = replace(self.functionalized, computation=trace, mutations=())
        mover = _Mover(given)
        return mover.moved() if any(map(mover.is_view, trace.output)) else given

    def traces(self, result: Functionalized) -> tuple[Trace, ...]:
        return result.traces


class _Mover:
    """Moves lines to the epilogue.

    Attributes:
        values: what the computation returns afterwards.
    """

    def __init__(self, functional: Functionalized) -> None:
        self.functional = functional
        trace = functional.computation
        self.inputs = {proxy.name: index for index, proxy in enumerate(trace.inputs)}
        self.producers = trace.producers
        self.values: dict[str, Proxy] = {}
        self.lines: list[BoundSymbol] = []
        self.made: dict[str, Proxy] = {}
        self.arguments: dict[str, tuple[Proxy, FromInput | FromComputation]] = {}
        epilogue = functional.epilogue
        if epilogue is not None:
            for proxy, source in zip(epilogue.inputs, functional.epilogue_arguments, strict=True):
                self.arguments[proxy.name] = (proxy, self._kept(source))
        self.output = list(epilogue.output) if epilogue is not None else []

    def moved(self) -> Functionalized:
        results = tuple([self._result(source) for source in self.functional.results])
        old = self.functional.epilogue
        lines = (*(old.symbols if old is not None else ()), *self.lines)
        trace = self.functional.computation
        epilogue = None
        if lines or self.output:
            inputs = tuple(proxy for proxy, _ in self.arguments.values())
            context = old.context if old is not None else trace.context
            epilogue = Trace("epilogue", inputs, lines, tuple(self.output), Stage.ACQUIRED, "output views", context)
        return replace(
            self.functional,
            computation=replace(trace, output=tuple(self.values.values())),
            epilogue=epilogue,
            epilogue_arguments=tuple(source for _, source in self.arguments.values()),
            results=results,
        )

    def _kept(self, source: FromInput | FromComputation) -> FromInput | FromComputation:
        """The place of a value that the computation returned already."""
        if isinstance(source, FromInput):
            return source
        return self._returned(self.functional.computation.output[source.index])

    def _returned(self, proxy: Proxy) -> FromComputation:
        self.values.setdefault(proxy.name, proxy)
        return FromComputation(list(self.values).index(proxy.name))

    def _result(self, source: ResultSource) -> ResultSource:
        if not isinstance(source, FromComputation):
            return source
        proxy = self.functional.computation.output[source.index]
        if not self.is_view(proxy):
            return self._returned(proxy)
        value = self._made_again(proxy)
        if value not in self.output:
            self.output.append(value)
        return FromEpilogue(self.output.index(value))

    def is_view(self, proxy: Proxy) -> bool:
        """Whether ``proxy`` is made as a view of one other tensor."""
        line = self.producers.get(proxy.name)
        return line is not None and line.is_view() and len({item.name for item in line.inputs()}) == 1

    def _made_again(self, proxy: Proxy) -> Proxy:
        """``proxy`` in the epilogue."""
        if proxy.name in self.made:
            return self.made[proxy.name]
        if proxy.name in self.inputs:
            self.arguments.setdefault(proxy.name, (proxy, FromInput(self.inputs[proxy.name])))
            return self.arguments[proxy.name][0]
        if not self.is_view(proxy):
            self.arguments.setdefault(proxy.name, (proxy, self._returned(proxy)))
            return self.arguments[proxy.name][0]
        line = self.producers[proxy.name]

        def renamed(leaf: Any) -> Any:
            if isinstance(leaf, TensorProxy):
                self.made[leaf.name] = replace(leaf, name=f"{leaf.name}_view")
                return self.made[leaf.name]
            return leaf

        (base,) = {item.name: item for item in line.inputs()}.values()
        again = self._made_again(base)
        moved = line.map_arguments(lambda leaf: again if getattr(leaf, "name", None) == base.name else leaf)
        self.lines.append(replace(moved, output=map_leaves(renamed, line.output)))
        return self.made[proxy.name]
