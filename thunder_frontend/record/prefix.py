"""Runs the recorded ops so far on real tensors: for programs whose Python depends on values of tensors.

The program's tensors are not changed: ops run on stand-ins that share storage with them, or that are copies where
ops write the storage. The states of the random generators are restored.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

import torch

from thunder_core.errors import RunEagerly
from thunder_core.ir.bound_symbol import BoundSymbol, free_values, tensors_of, written_storages
from thunder_core.ir.context import AUTOCAST_DEVICE_TYPES, Context
from thunder_core.ir.location import at
from thunder_core.ir.program import compile_trace
from thunder_core.ir.proxy import PROXY_TYPES, NumberProxy, TensorProxy, storages_of
from thunder_core.ir.size import hint_of, with_size
from thunder_core.ir.switches import read_between_ops, set_between_ops
from thunder_core.ir.symbol import Symbol, Tag
from thunder_core.ir.trace import Stage, Trace, bodies_of
from thunder_core.ir.tree import map_leaves
from thunder_core.pytorch_internals import DisableTorchFunction, disable_current_modes
from thunder_core.symbols.captured import CAPTURE
from thunder_core.symbols.checkpointing import CHECKPOINT_WITH_WRITES
from thunder_core.symbols.control_flow import COND
from thunder_core.symbols.functions import CLEAR_CACHE
from thunder_core.symbols.generators import RESTORED, generator_states, set_generator_states
from thunder_core.tracing.frames import call_for_program
from thunder_frontend.observe.writes import Write, same_writes
from thunder_frontend.record import subclasses
from thunder_frontend.record.inputs import Inputs
from thunder_frontend.record.open_trace import OpenTrace
from thunder_frontend.record.switch_changes import SET_SWITCH, SwitchChanges
from thunder_frontend.record.tensors import Tensors

_CONTEXT: Final = Context(grad_enabled=False, inference=False)
_CHECKS_AND_REPORTS: Final = frozenset({Tag.ASSERTION, Tag.GUESS, Tag.REPORT})
"""Tags of ops that are left out: they compute nothing."""
_UNDONE: Final = frozenset({CAPTURE, CLEAR_CACHE, *RESTORED, SET_SWITCH})
"""Symbols whose effects `beside_the_program` undoes, or that only create an object for later ops or complete one."""
_USES_GRAPH: Final = frozenset({Tag.CHANGES_AUTOGRAD, Tag.RUNS_AUTOGRAD, Tag.READS_AUTOGRAD})


class NotEvaluated(Exception):
    """The ops cannot be run while the program is recorded; the message has the reason."""


class _Again(Exception):
    """The ops have to be run again from the first, with copies of more storages or with an autograd graph."""


@dataclass
class _Run:
    """The state of running one sequence of ops: those of the program, or of a region and the ops before it.

    Attributes:
        done: the number of ops that have run.
        values: the values by name, without those that no later op can read.
        stand_ins: the stand-ins of the inputs, with the tensors that they replace.
        states: the states of the generators after the last op.
        switches: the values of PyTorch's switches between ops, after the last op.
    """

    done: int = 0
    values: dict[str, Any] = field(default_factory=dict)
    stand_ins: list[tuple[torch.Tensor, torch.Tensor]] = field(default_factory=list)
    states: tuple[torch.Tensor, ...] | None = None
    switches: list[Any] | None = None


class Prefix:
    """Runs the recorded ops when the program reads a value. An op runs once, unless its inputs have to be copied later.

    Args:
        changes: returns the program's changes of Python objects so far.

    Attributes:
        guesses: how many checks of values were recorded.
        shared: storages that NumPy arrays of the program share, each with the number of ops before.
    """

    def __init__(
        self,
        trace: OpenTrace,
        inputs: Inputs,
        tensors: Tensors,
        switches: SwitchChanges,
        changes: Callable[[], tuple[Write, ...]],
    ) -> None:
        self._trace = trace
        self._inputs = inputs
        self._tensors = tensors
        self._switches = switches
        self._changes = changes
        self.guesses = 0
        self.shared: dict[int, int] = {}
        self._runs: dict[tuple[int, ...], _Run] = {}
        self._copied: dict[int, torch.UntypedStorage | None] = {}
        self._has_graph = False

    def close(self) -> None:
        """Release all values."""
        self._runs.clear()
        self._copied.clear()

    def call(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """The result of a function for the values of its arguments in this call.

        Args:
            args, kwargs: with proxies in place of tensors and numbers of the program.

        Raises:
            NotEvaluated: an op so far has effects beyond tensors.
            RunEagerly: an autograd.Function changes Python objects when it runs on real tensors.
            Exception: any exception of the function.
        """
        with beside_the_program():
            run = self._advanced()
            if run.states is not None:
                set_generator_states(run.states)

            def real(leaf: Any) -> Any:
                if not isinstance(leaf, PROXY_TYPES):
                    return with_size(leaf, hint_of)
                if leaf.name not in run.values:
                    raise NotEvaluated(f"the value of {leaf.name} is no longer known")
                value = run.values[leaf.name]
                if isinstance(value, torch.Generator):
                    return value.clone_state()  # the call may draw from it, and so does the op that records the call
                return value.detach() if isinstance(value, torch.Tensor) else value

            return call_for_program(function, map_leaves(real, args), map_leaves(real, kwargs))

    def _advanced(self) -> _Run:
        """Run all ops so far that have not run yet, and return the state after them."""
        sequences = [*self._trace.outer_ops, self._trace.ops]
        key = tuple(map(id, sequences))
        self._runs = {other: run for other, run in self._runs.items() if other == key[: len(other)]}
        ops = self._trace.all_ops()
        while True:
            run = self._runs.setdefault(key, _Run())
            try:
                self._advance(run, ops)
            except _Again:
                self._runs.clear()
                self._copied = dict.fromkeys(self._copied)
                continue
            return run

    def _advance(self, run: _Run, ops: list[BoundSymbol]) -> None:
        new = ops[run.done :]
        for op in new:
            _check(op, inside=bool(self._trace.outer_ops))
        new = [op for op in new if not op.symbol.tags & _CHECKS_AND_REPORTS]
        if not self._has_graph and any(map(_needs_graph, new)):
            self._has_graph = True
            raise _Again
        self._copy_written(new)
        self._add_inputs(run)
        self._run(run, new)
        run.done = len(ops)

    def _copy_written(self, ops: list[BoundSymbol]) -> None:
        """Copy the storages that these ops write, for the stand-ins of inputs."""
        written = written_storages(ops)
        missing = (written & storages_of(self._inputs.proxies)) - self._copied.keys()
        if missing:
            self._copied.update(dict.fromkeys(missing))
            raise _Again

    def _add_inputs(self, run: _Run) -> None:
        for item in self._inputs:
            proxy, value = item.proxy, item.value
            if proxy.name in run.values:
                continue
            if isinstance(value, torch.Generator):
                run.values[proxy.name] = self._inputs.generator_before(value)
                continue
            if not isinstance(value, torch.Tensor):
                run.values[proxy.name] = value
                continue
            assert isinstance(proxy, TensorProxy)
            if run.done and proxy.storage in self._copied:
                raise _Again  # ops have already written to the storage: its initial values are lost
            run.values[proxy.name] = self._stand_in(value, proxy, run)

    def _stand_in(self, tensor: torch.Tensor, proxy: TensorProxy, run: _Run) -> torch.Tensor:
        for original, existing in run.stand_ins:
            if original is tensor:
                return existing
        _check_kind(tensor, proxy)
        stand_in = tensor.detach()
        if proxy.storage in self._copied:
            storage = self._copied[proxy.storage]
            if storage is None:
                storage = self._copied[proxy.storage] = tensor.untyped_storage().clone()
            stand_in = tensor.new_empty(0).set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())
        if self._has_graph and tensor.requires_grad:
            stand_in.requires_grad_()
            if not tensor.is_leaf:
                with torch.enable_grad():
                    stand_in = stand_in.view_as(stand_in)
        run.stand_ins.append((tensor, stand_in))
        if self._has_graph and tensor.is_leaf and tensor.grad is not None:
            stand_in.grad = tensor.grad.detach().clone()
        return stand_in

    def _run(self, run: _Run, ops: list[BoundSymbol]) -> None:
        if not ops:
            return
        functions = any(map(_is_autograd_function, ops))
        before = self._changes() if functions else ()
        if run.states is not None:
            set_generator_states(run.states)
        set_between_ops(run.switches or self._switches.before)
        try:
            run.values.update(execute(ops, run.values, self._trace.ambient, graph=self._has_graph))
        except NotEvaluated as error:
            if run.done:
                # `_forget` released a value without a tensor object, such as the gradient carrier of a wrapper
                raise _Again from error
            raise
        run.states, run.switches = generator_states(), read_between_ops()
        if functions and not same_writes(self._changes(), before):
            raise RunEagerly("an autograd.Function changes Python objects, and a value is read after it")
        self._forget(run)

    def _forget(self, run: _Run) -> None:
        """Release the tensors that the program can no longer reach. Inputs, numbers and other objects remain."""
        reachable = {variable.proxy.name for variable in self._tensors.all_variables()}
        reachable.update(proxy.name for proxy in self._inputs.proxies)
        for name in [name for name, value in run.values.items() if isinstance(value, torch.Tensor)]:
            if name not in reachable:
                del run.values[name]


def _run_body(body: Callable[..., Any], *operands: Any) -> Any:
    return body(*operands)


_BODY: Final = Symbol("thunder_frontend.record.prefix._run_body", _run_body, tags=frozenset({Tag.HIGHER_ORDER}))


def execute(
    ops: Sequence[BoundSymbol], values: Mapping[str, Any], ambient: Context, *, graph: bool = False
) -> dict[str, Any]:
    """Run recorded ops on real tensors while the program is recorded; returns the values that they define, by name.

    Args:
        values: the values that the ops may use, by name. Ops may write to tensors among them.
        ambient: the modes that the program runs under.
        graph: whether to build an autograd graph.

    Raises:
        NotEvaluated: a value that an op uses is not among ``values``.
    """
    defined = {proxy.name: proxy for op in ops for proxy in op.outputs()}
    free = free_values(ops)
    missing = free.keys() - values.keys()
    if missing:
        raise NotEvaluated(f"the value of {min(missing)} is no longer known")
    runnable = tuple([_runnable(op, ambient, graph) for op in ops])
    outputs = tuple(defined.values())
    trace = Trace("prefix", tuple(free.values()), runnable, outputs, Stage.ACQUIRED, "acquisition", _CONTEXT)
    results = compile_trace(trace.with_constant_sizes())(*[values[name] for name in free])
    return dict(zip(defined, results, strict=True))


def _runnable(op: BoundSymbol, ambient: Context, graph: bool) -> BoundSymbol:
    """The op to run in place of ``op``: for a checkpoint region, its body."""
    context = replace(op.context or ambient, inference=False)
    if not graph:
        context = replace(context, grad_enabled=False)
    if Tag.HIGHER_ORDER in op.symbol.tags and op.symbol is not COND:
        operands = op.args[2:] if op.symbol is CHECKPOINT_WITH_WRITES else op.args[1:]
        op = replace(op, symbol=_BODY, args=(op.args[0], *operands), kwargs={})
    return replace(op, context=None if context == _CONTEXT else context)


@contextmanager
def real_calls() -> Iterator[tuple[torch.Tensor, ...]]:
    """A context for calls on real tensors, which are not recorded. Yields the generators' states, and restores them."""
    with disable_current_modes(), DisableTorchFunction():
        states = generator_states()
        try:
            yield states
        finally:
            set_generator_states(states)


@contextmanager
def beside_the_program() -> Iterator[None]:
    """`real_calls` without the modes of the program: gradients, inference, autocast, and warnings.

    The switches that ops set are restored at the end.
    """
    with ExitStack() as stack:
        stack.callback(set_between_ops, read_between_ops())
        stack.enter_context(real_calls())
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.no_grad())
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")  # the compiled program issues them
        for kind in AUTOCAST_DEVICE_TYPES:
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        yield


def _uses_graph(op: BoundSymbol) -> bool:
    """Whether an op reads or changes an autograd graph. It may run: it affects only the graph of the stand-ins."""
    return bool(op.symbol.tags & _USES_GRAPH) and Tag.HOOK not in op.symbol.tags


def _needs_graph(op: BoundSymbol) -> bool:
    """Whether the results of an op depend on the autograd graph: forward may read ``ctx.needs_input_grad``."""
    return _uses_graph(op) or (_is_autograd_function(op) and any(proxy.requires_grad for proxy in tensors_of(op)))


def _check(op: BoundSymbol, *, inside: bool) -> None:
    """Refuse to run an op that does more than compute.

    Args:
        inside: whether the op is in a region. The whole region runs again, so its prints and logs would be repeated.
    """
    place = at(op.location, " at ")
    tags, name = op.symbol.tags, op.symbol.name
    if Tag.REPORT in tags and inside:
        raise NotEvaluated(f"{name} comes before it in a checkpoint region{place}")
    if tags & _CHECKS_AND_REPORTS or op.symbol in _UNDONE or _uses_graph(op):
        return
    if Tag.HIGHER_ORDER in tags:
        for other in (other for body in bodies_of(op) for other in body.symbols):
            _check(other, inside=True)
        return
    if Tag.LOCAL in tags and not _is_autograd_function(op):
        raise NotEvaluated(f"{name} comes before it{place}, a function of the program that would run a second time")
    if Tag.COLLECTIVE in tags:
        # Ranks that read different values run different programs, and some would communicate more often.
        raise NotEvaluated(f"{name} communicates before it{place}, and ranks may read different values")
    recorded = Tag.AS_RECORDED in tags and not _is_autograd_function(op)
    if recorded or tags & {Tag.AUTOGRAD, Tag.HOOK} or op.happens_once():
        raise NotEvaluated(f"{name} has an effect before it{place}, which cannot be undone")
    if any(not isinstance(proxy, TensorProxy | NumberProxy) for proxy in op.outputs()):
        raise NotEvaluated(f"{name} creates an object before it{place}")


def _is_autograd_function(op: BoundSymbol) -> bool:
    """Whether an op applies an autograd.Function, whose effects on tensors are those of the op."""
    cls = getattr(op.symbol.target, "__self__", None)
    return isinstance(cls, type) and issubclass(cls, torch.autograd.Function)


def _check_kind(tensor: torch.Tensor, proxy: TensorProxy) -> None:
    """Refuse tensors that do not share storage with the result of `torch.Tensor.detach`."""
    if subclasses.has_torch_function(type(tensor)) or tensor.layout is not torch.strided:
        raise NotEvaluated(f"{proxy.name} is a sparse tensor, or of a class that overrides calls")
    if tensor.is_conj() or tensor.is_neg():
        raise NotEvaluated(f"{proxy.name} is a lazy conjugate or negative")
    if tensor.device.type == "meta":
        raise NotEvaluated(f"{proxy.name} is on the meta device and has no data")
    try:
        tensor.untyped_storage().data_ptr()
    except RuntimeError:  # it represents the tensor of a later call
        raise NotEvaluated(f"{proxy.name} has no data yet") from None
