"""Views across the border of a checkpoint region: each side makes them itself, from one tensor.

What a region writes it is given as copies where the program is made functional, and backward gives it other tensors
than forward does. Copies of a buffer and of a view of it would no longer be one memory. Nor would autograd know that
one result of a region is a view of another.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import replace
from typing import Any

from thunder_core.acquire.region import Region
from thunder_core.acquire.variable import Variable
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.tree import map_leaves


class ViewHistory:
    """Which tensors are views of which, seen at the end of a region. A tensor object goes by its first name.

    Args:
        region: whose tensors still have the names that writes inside gave them.
    """

    def __init__(self, region: Region) -> None:
        self._lines = {
            proxy.name: line
            for lines in (*reversed(region.trace.outwards()), region.lines)
            for line in lines
            for proxy in line.outputs()
        }
        self._first: dict[str, str] = {}
        self._variables: dict[str, Variable] = {}
        origins: dict[Variable, str] = {}
        for variable, old in region.tensors.renamed:
            first = origins.setdefault(variable, old.name)
            self._first[variable.proxy.name] = self._first[old.name] = first
            self._variables[first] = variable

    def first(self, proxy: TensorProxy) -> str:
        """The first name of a tensor object."""
        return self._first.get(proxy.name, proxy.name)

    def variable(self, name: str) -> Variable | None:
        """The tensor object of that first name; None for one that nothing wrote."""
        return self._variables.get(name)

    def proxy(self, name: str) -> TensorProxy:
        """The result of a line that has this name."""
        return next(p for p in self._lines[name].outputs() if isinstance(p, TensorProxy) and p.name == name)

    def path(self, name: str, within: Container[str] | None = None) -> tuple[str, list[BoundSymbol]]:
        """Of what a tensor is a view, and the calls that made it so; ``within``, if given, has all their results."""
        path: list[BoundSymbol] = []
        while (within is None or name in within) and (base := self._base(name)) is not None:
            path.append(self._lines[name])
            name = self.first(base)
        return name, path[::-1]

    def again(self, lines: Iterable[BoundSymbol], named: dict[str, TensorProxy]) -> list[BoundSymbol]:
        """Calls made again, each once, on and for the values that ``named`` has of tensor objects."""

        def value(leaf: Any) -> Any:
            return named.get(self.first(leaf), leaf) if isinstance(leaf, TensorProxy) else leaf

        once = {id(line): line for line in lines}.values()
        return [replace(line.map_arguments(value), output=map_leaves(value, line.output)) for line in once]

    def _base(self, name: str) -> TensorProxy | None:
        """The only argument of the call that made ``name``, if that made views of it and did nothing else."""
        line = self._lines.get(name)
        if line is None or not line.is_view() or len(line.inputs()) != 1:
            return None
        (base,) = line.inputs()
        return base if isinstance(base, TensorProxy) else None


def make_views_inside(history: ViewHistory, region: Region) -> None:
    """Have a finished ``region`` make again what it uses of a memory that it writes, all from one tensor.

    Tensors that are no views of one tensor (inputs that share memory, say) remain what it is given.
    """
    mutates = region.effects().mutates
    used = [proxy for proxy in region.free() if isinstance(proxy, TensorProxy) and proxy.name in mutates]
    before: list[BoundSymbol] = []
    for group in _by_memory(used, lambda proxy: proxy):
        paths = [history.path(history.first(proxy)) for proxy in group]
        roots = {root for root, _ in paths}
        if len(group) > 1 and len(roots) == 1:
            named = _current(history, roots)
            named.update((history.first(proxy), proxy) for proxy in group)
            before += history.again([line for _, path in paths for line in path], named)
    region.lines[:0] = before


class Results:
    """The tensors that a region leaves.

    Of several in one memory, and where the region writes memory from outside, it returns none that is a view of
    another: `lines` make these after it. To autograd the results of a reentrant region are all its own, however.

    Attributes:
        returned: those that it returns.
        views: the others.
    """

    def __init__(self, history: ViewHistory, region: Region, live: list[Variable], reentrant: bool) -> None:
        self.returned: list[Variable] = []
        self.views: list[Variable] = []
        self._history = history
        self._defined = region.defined()
        self._steps: list[BoundSymbol] = []
        self._objects: dict[str, Variable] = {history.first(variable.proxy): variable for variable in live}
        mutates = region.effects().mutates
        written = {p.storage for p in region.free() if isinstance(p, TensorProxy) and p.name in mutates}
        for group in _by_memory(live, lambda variable: variable.proxy):
            if not reentrant and (len(group) > 1 or group[0].proxy.storage in written):
                self._split(group)
            else:
                self.returned += group

    def lines(self) -> list[BoundSymbol]:
        """The calls that make the views, once all tensors have the names that they have outside of the region."""
        return self._history.again(self._steps, {name: variable.proxy for name, variable in self._objects.items()})

    def _split(self, group: list[Variable]) -> None:
        history = self._history
        for variable in group:
            root, path = history.path(history.first(variable.proxy), self._defined)
            if not path:
                self._return(variable)
                continue
            self.views.append(variable)
            self._steps += path
            known = self._objects.get(root) or history.variable(root)
            if root in self._defined:
                known = known or Variable(history.proxy(root))
                self._return(known)
            if known is not None:
                self._objects[root] = known

    def _return(self, variable: Variable) -> None:
        if variable not in self.returned:
            self.returned.append(variable)


def _current(history: ViewHistory, names: Iterable[str]) -> dict[str, TensorProxy]:
    """What tensor objects are called now."""
    found = [(name, history.variable(name)) for name in names]
    return {name: variable.proxy for name, variable in found if variable is not None}


def _by_memory(items: Iterable[Any], proxy: Callable[[Any], TensorProxy]) -> list[list[Any]]:
    groups: dict[int, list[Any]] = {}
    for item in items:
        groups.setdefault(proxy(item).storage, []).append(item)
    return list(groups.values())
