"""Hooks that a program sets on its own tensors: one line right after the tensor was computed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from thunder_core.ir.aliases import Aliases
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.builder import Builder
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.symbol import Tag
from thunder_core.ir.tensors import tensor_inputs_of
from thunder_core.ir.trace import Trace
from thunder_core.ir.tree import map_leaves
from thunder_core.symbols.gradient_hooks import HOOKED


def place_tensor_hooks(trace: Trace) -> Trace:
    """The trace with a line ``(y,) = hooked(hooks, (y_before_hooks,))`` for each value with hooks.

    A hook gets the sum of the gradients of all uses of a value, those before ``register_hook`` among them; so all uses
    come after that line. Hooks on inputs of the program stay as they are: PyTorch's autograd calls them.
    """
    hooks: defaultdict[str, list[BoundSymbol]] = defaultdict(list)
    for bound in trace.symbols:
        if sets_hook(bound) and trace.producer(bound.args[0].name) is not None:
            hooks[bound.args[0].name].append(bound)
    if not hooks:
        return trace
    builder = Builder.of(trace, bodies=False)
    lines: list[BoundSymbol] = []
    for bound in trace.symbols:
        own = [proxy for proxy in bound.outputs() if proxy.name in hooks]
        if own:
            lines += _with_hooks(builder, bound, {proxy.name: hooks[proxy.name] for proxy in own})
        elif not (sets_hook(bound) and bound.args[0].name in hooks):
            lines.append(bound)
    return trace.with_symbols(lines, "hooks on tensors")


def _with_hooks(builder: Builder, bound: BoundSymbol, hooks: dict[str, list[BoundSymbol]]) -> Iterator[BoundSymbol]:
    """A line some of whose results have hooks, and a line for each of these."""
    before: dict[str, Any] = {}

    def value(leaf: Any) -> Any:
        if getattr(leaf, "name", None) not in hooks:
            return leaf
        before[leaf.name] = (leaf, replace(leaf, name=builder.name(f"{leaf.name}_before_hooks")))
        return before[leaf.name][1]

    yield replace(bound, output=map_leaves(value, bound.output))
    for name, (after, plain) in before.items():
        arguments = (tuple(map(_hook, hooks[name])), (plain,))
        location = hooks[name][0].location
        yield BoundSymbol(HOOKED, arguments, {}, (after,), context=bound.context, location=location)


def without_hooks_on_inputs(trace: Trace) -> Trace:
    """The trace for another run with the same inputs, which got their hooks in the first."""
    inputs = {proxy.name for proxy in trace.inputs}
    lines = [bound for bound in trace.symbols if not (sets_hook(bound) and bound.args[0].name in inputs)]
    return trace if len(lines) == len(trace.symbols) else trace.with_symbols(lines, "without hooks on inputs")


def has_hooks_on_returned_views(trace: Trace) -> bool:
    """Whether gradients of results may reach a hooked value past the program, or go past the hook.

    Results that are views are made outside of the differentiated program: those of one memory as views of one another,
    and each with all views that lie between it and what it shows.
    """
    returned = Aliases.of(trace).escaping
    hooked = [bound.args[0] for bound in trace.symbols if sets_hook(bound)]
    producers = [(proxy, trace.producer(proxy.name)) for proxy in hooked if proxy.storage in returned]
    if any(line is not None and line.is_view() for _, line in producers):
        return True
    shared: Counter[Any] = Counter(proxy.storage for proxy in trace.output if isinstance(proxy, TensorProxy))
    shared.update({proxy.storage for proxy in trace.inputs if isinstance(proxy, TensorProxy)})
    inputs = {proxy.name for proxy in trace.inputs}
    return any(
        shared[proxy.storage] > 1 and proxy.name not in inputs
        for bound in trace.symbols
        if Tag.HOOK in bound.symbol.tags
        for proxy in (*tensor_inputs_of(bound), *bound.outputs())
        if isinstance(proxy, TensorProxy)
    )


def sets_hook(bound: BoundSymbol) -> bool:
    """Whether the line is ``tensor.register_hook(hook)``."""
    return Tag.HOOK in bound.symbol.tags and not bound.outputs()


def _hook(bound: BoundSymbol) -> Any:
    return bound.args[1] if len(bound.args) > 1 else bound.kwargs["hook"]
