"""A line as the torch functions that some Python function calls in its place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import torch

from thunder_core.acquire.fake import AcquisitionFakeMode
from thunder_core.acquire.fake_tensors import make_fake
from thunder_core.acquire.function_log import FunctionLog
from thunder_core.errors import LoweringError
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.bounded_cache import BoundedCache
from thunder_core.ir.context import Context
from thunder_core.ir.modes import modes_for_fakes
from thunder_core.ir.proxy import PROXY_TYPES, TensorProxy
from thunder_core.ir.tree import iterate_leaves, map_leaves
from thunder_core.passes.proxies import metadata_of, tensor_inputs_of, tensor_outputs_of
from thunder_core.pytorch_internals import EnableTorchFunction
from thunder_core.symbols.lowering import call_key

_cache: Final = BoundedCache[tuple[BoundSymbol, tuple[BoundSymbol, ...]]](1024)


def rewritten_form(
    bound: BoundSymbol, function: Callable[..., Any], ambient: Context
) -> tuple[BoundSymbol, tuple[BoundSymbol, ...]]:
    """A line equal to ``bound`` but for names, and the calls that ``function`` makes with its arguments.

    They take that line's inputs and define its outputs. The same objects for equal lines: these are recorded once.

    Args:
        ambient: the context of the trace.

    Raises:
        LoweringError: ``function`` fails, or what it returns is not what the line does.
    """
    context = bound.context or ambient
    key = call_key(bound, context)
    return _cache.get(None if key is None else (key, function), lambda: _Recording(bound, context).of(function))


class _Recording:
    """One run of a rewrite on fake tensors. The line's own values are called ``:0, :1, ...``, as no others are."""

    def __init__(self, bound: BoundSymbol, context: Context) -> None:
        self.context = context
        self.names: dict[str, str] = {}
        self.bound = replace(bound.map_arguments(self._own), output=map_leaves(self._own, bound.output))
        self.mode = AcquisitionFakeMode()
        self.log = FunctionLog(self.mode)
        self.fakes: dict[str, torch.Tensor] = {}
        for proxy in tensor_inputs_of(self.bound):
            if proxy.name not in self.fakes:
                self.fakes[proxy.name] = make_fake(self.mode, proxy)
                self.log.define(self.fakes[proxy.name], proxy)

    def of(self, function: Callable[..., Any]) -> tuple[BoundSymbol, tuple[BoundSymbol, ...]]:
        """The model and its lines."""
        name = self.bound.symbol.name
        args, kwargs = map_leaves(self._value, self.bound.args), map_leaves(self._value, self.bound.kwargs)
        with torch.random.fork_rng(devices=[]), self.mode:
            try:
                with modes_for_fakes(self.context), EnableTorchFunction(), self.log:
                    result = function(*args, **kwargs)
            except Exception as error:  # of the author of the rewrite
                raise LoweringError(f"the rewrite of {name} failed: {type(error).__name__}: {error}") from error
            made = [leaf for leaf in iterate_leaves(result) if isinstance(leaf, torch.Tensor)]
            own = tensor_outputs_of(self.bound)
            if [metadata_of(tensor) for tensor in made] != [metadata_of(proxy) for proxy in own]:
                raise LoweringError(f"the rewrite of {name} returns something else than it does")
            found = [self.log.proxy(tensor) for tensor in made]
        return self.bound, _with_results(self.log.lines, found, own, self.log.requiring_grad())

    def _own(self, leaf: Any) -> Any:
        if not isinstance(leaf, PROXY_TYPES):
            return leaf
        return replace(leaf, name=self.names.setdefault(leaf.name, f":{len(self.names)}"))

    def _value(self, leaf: Any) -> Any:
        return self.fakes[leaf.name] if isinstance(leaf, TensorProxy) else leaf


def _with_results(
    lines: list[BoundSymbol], found: list[TensorProxy], own: list[TensorProxy], active: frozenset[str]
) -> tuple[BoundSymbol, ...]:
    """The lines with the results named as the line's own."""
    made = {proxy.name for line in lines for proxy in tensor_outputs_of(line)}
    names = {old.name: new for old, new in zip(found, own, strict=True)}
    if len(names) != len(found) or not made.issuperset(names):
        raise LoweringError("a rewrite returns one of its arguments, or a result twice")
    storages = {old.storage: new.storage for old, new in zip(found, own, strict=True)}

    def rename(leaf: Any) -> Any:
        if not isinstance(leaf, TensorProxy):
            return leaf
        if leaf.name in names:
            return names[leaf.name]
        return replace(leaf, storage=storages.get(leaf.storage, leaf.storage), requires_grad=leaf.name in active)

    return tuple([replace(line.map_arguments(rename), output=map_leaves(rename, line.output)) for line in lines])
