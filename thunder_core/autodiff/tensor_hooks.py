"""Hooks that a program registers on tensors it computes: each becomes an op right after the tensor is computed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from thunder_core.autodiff.derivatives.by_hook import INPUT_HOOK, gradient_metadata
from thunder_core.autodiff.derivatives.derivative import PLAIN, stand_in
from thunder_core.autodiff.joint_writer import JointEmitter
from thunder_core.errors import UnsupportedError
from thunder_core.ir.aliases import Aliases
from thunder_core.ir.bound_symbol import BoundSymbol, tensor_inputs_of
from thunder_core.ir.builder import Builder
from thunder_core.ir.effects import Effects
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Trace
from thunder_core.ir.tree import map_leaves
from thunder_core.symbols.gradient_hooks import HOOKED, INPUT_GRADIENTS


def place_tensor_hooks(trace: Trace) -> Trace:
    """The trace with an op ``(y,) = hooked(hooks, (y_before_hooks,))`` for each value with hooks.

    A hook gets the sum of the gradients of all uses of a value, including uses before ``register_hook``; so the op
    precedes all uses. Hooks on inputs of the program are unchanged: PyTorch's autograd calls them.
    """
    hooks: defaultdict[str, list[BoundSymbol]] = defaultdict(list)
    for bound in trace.symbols:
        if sets_hook(bound) and trace.producer(bound.args[0].name) is not None:
            hooks[bound.args[0].name].append(bound)
    if not hooks:
        return trace
    builder = Builder.of(trace, bodies=False)
    ops: list[BoundSymbol] = []
    for bound in trace.symbols:
        hooked = [proxy for proxy in bound.outputs() if proxy.name in hooks]
        if hooked:
            ops += _with_hooks(builder, bound, {proxy.name: hooks[proxy.name] for proxy in hooked})
        elif not (sets_hook(bound) and bound.args[0].name in hooks):
            ops.append(bound)
    return trace.with_symbols(ops, "hooks on tensors")


def _with_hooks(builder: Builder, bound: BoundSymbol, hooks: dict[str, list[BoundSymbol]]) -> Iterator[BoundSymbol]:
    """The op with renamed results, and a ``hooked`` op for each result that has hooks."""
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
    """The trace without hooks on inputs, for another run with the same inputs: the first run registered their hooks."""
    inputs = {proxy.name for proxy in trace.inputs}
    ops = [bound for bound in trace.symbols if not (sets_hook(bound) and bound.args[0].name in inputs)]
    return trace if len(ops) == len(trace.symbols) else trace.with_symbols(ops, "without hooks on inputs")


def has_hooks_on_returned_views(trace: Trace) -> bool:
    """Whether gradients of returned views may reach a hooked value outside the program, or bypass its hook.

    Returned views are created outside of the differentiated program: those of one storage as views of one another, each
    through all views between it and its base.
    """
    returned = Aliases.of(trace).escaping
    hooked = [bound.args[0] for bound in trace.symbols if sets_hook(bound)]
    producers = [(proxy, trace.producer(proxy.name)) for proxy in hooked if proxy.storage in returned]
    if any(op is not None and op.is_view() for _, op in producers):
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
    """Whether the op is ``tensor.register_hook(hook)``."""
    return Tag.HOOK in bound.symbol.tags and not bound.outputs()


def _hook(bound: BoundSymbol) -> Any:
    return bound.args[1] if len(bound.args) > 1 else bound.kwargs["hook"]


def split_requests(trace: Trace) -> tuple[Trace, tuple[BoundSymbol, ...]]:
    """The trace without its `on_input_gradients` ops, and these ops."""
    requests = tuple([bound for bound in trace.symbols if bound.symbol is INPUT_GRADIENTS])
    if not requests:
        return trace, ()
    ops = [bound for bound in trace.symbols if bound.symbol is not INPUT_GRADIENTS]
    return trace.with_symbols(ops, trace.provenance), requests


def with_input_hooks(
    emitter: JointEmitter,
    requests: Sequence[BoundSymbol],
    sources: Sequence[TensorProxy],
    gradients: Sequence[TensorProxy | None],
) -> tuple[TensorProxy | None, ...]:
    """The gradients of ``sources`` as replaced by the functions, whose calls are appended to the joint trace."""
    by_source = {source.name: gradient for source, gradient in zip(sources, gradients, strict=True)}
    for request in requests:
        hook, tensors, *options = request.args
        before = tuple([by_source.get(tensor.name) for tensor in tensors])
        if not any(before):
            continue
        reached = tuple([gradient is not None for gradient in before])
        results = tuple(
            [_gradient(emitter, tensor) if reach else None for tensor, reach in zip(tensors, reached, strict=True)]
        )
        arguments = (hook, before, tuple(map(gradient_metadata, tensors)), reached, *options)
        op = BoundSymbol(INPUT_HOOK, arguments, {}, results, Effects(external=True), PLAIN, request.location)
        emitter.add(emitter.without_grad(op))
        by_source.update({t.name: result for t, result in zip(tensors, results, strict=True) if result is not None})
    return tuple([by_source[source.name] for source in sources])


def check_no_requests(trace: Trace, reason: str) -> None:
    """Reject `on_input_gradients` ops in a program whose gradients PyTorch's autograd computes.

    Args:
        reason: why the program runs as recorded.

    Raises:
        UnsupportedError: the trace has such an op.
    """
    for program in trace.programs():
        _, requests = split_requests(program)
        for request in requests:
            raise UnsupportedError(
                f"{request.args[0].__name__} replaces gradients while backward runs, and this program leaves them to "
                f"PyTorch's autograd: {reason}",
                location=request.location,
                advice=("compile the module inside of the wrapper: DistributedDataParallel(thunder.jit(module))",),
            )


def _gradient(emitter: JointEmitter, value: TensorProxy) -> TensorProxy:
    return stand_in(value, emitter.builder.name(f"{value.name}_gradient"), emitter.builder.new_storage())
