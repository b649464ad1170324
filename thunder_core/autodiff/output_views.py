"""Results that are views: the epilogue creates them again, outside of the compiled `torch.autograd.Function`.

Autograd treats the results of one function as separate tensors, and rejects writes to results that are views of tensors
inside of the function. A result that is a view (of an input, of another result, of an intermediate value) is therefore
created again by its view ops in the epilogue. Autograd then tracks which tensor is a view of which, and a write to one
is visible in the others and in gradients, as in eager PyTorch.
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
    """Moves the view ops of results that are views to the epilogue.

    In-place ops stay functional in later passes: backward may read the values that they overwrite.

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
    """Moves ops to the epilogue.

    Attributes:
        values: the new results of the computation.
    """

    def __init__(self, functional: Functionalized) -> None:
        self.functional = functional
        trace = functional.computation
        self.inputs = {proxy.name: index for index, proxy in enumerate(trace.inputs)}
        self.producers = trace.producers
        self.values: dict[str, Proxy] = {}
        self.ops: list[BoundSymbol] = []
        self.views: dict[str, Proxy] = {}
        self.arguments: dict[str, tuple[Proxy, FromInput | FromComputation]] = {}
        epilogue = functional.epilogue
        if epilogue is not None:
            for proxy, source in zip(epilogue.inputs, functional.epilogue_arguments, strict=True):
                self.arguments[proxy.name] = (proxy, self._kept(source))
        self.output = list(epilogue.output) if epilogue is not None else []

    def moved(self) -> Functionalized:
        results = tuple([self._result(source) for source in self.functional.results])
        old = self.functional.epilogue
        ops = (*(old.symbols if old is not None else ()), *self.ops)
        trace = self.functional.computation
        epilogue = None
        if ops or self.output:
            inputs = tuple(proxy for proxy, _ in self.arguments.values())
            context = old.context if old is not None else trace.context
            epilogue = Trace("epilogue", inputs, ops, tuple(self.output), Stage.ACQUIRED, "output views", context)
        return replace(
            self.functional,
            computation=replace(trace, output=tuple(self.values.values())),
            epilogue=epilogue,
            epilogue_arguments=tuple(source for _, source in self.arguments.values()),
            results=results,
        )

    def _kept(self, source: FromInput | FromComputation) -> FromInput | FromComputation:
        """The new source of a value that the computation already returned before the pass."""
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
        value = self._view(proxy)
        if value not in self.output:
            self.output.append(value)
        return FromEpilogue(self.output.index(value))

    def is_view(self, proxy: Proxy) -> bool:
        """Whether ``proxy`` is the result of an op that returns a view of one other tensor."""
        op = self.producers.get(proxy.name)
        return op is not None and op.is_view() and len({item.name for item in op.inputs()}) == 1

    def _view(self, proxy: Proxy) -> Proxy:
        """The proxy of the epilogue for the value ``proxy`` of the computation."""
        if proxy.name in self.views:
            return self.views[proxy.name]
        if proxy.name in self.inputs:
            self.arguments.setdefault(proxy.name, (proxy, FromInput(self.inputs[proxy.name])))
            return self.arguments[proxy.name][0]
        if not self.is_view(proxy):
            self.arguments.setdefault(proxy.name, (proxy, self._returned(proxy)))
            return self.arguments[proxy.name][0]
        op = self.producers[proxy.name]

        def renamed(leaf: Any) -> Any:
            if isinstance(leaf, TensorProxy):
                self.views[leaf.name] = replace(leaf, name=f"{leaf.name}_view")
                return self.views[leaf.name]
            return leaf

        (base,) = {item.name: item for item in op.inputs()}.values()
        again = self._view(base)
        moved = op.map_arguments(lambda leaf: again if getattr(leaf, "name", None) == base.name else leaf)
        self.ops.append(replace(moved, output=map_leaves(renamed, op.output)))
        return self.views[proxy.name]
