"""The recorded lines so far, run for real: for programs whose Python depends on values of tensors.

The program's tensors stay as they are: lines run on stand-ins that share memory with them, or have copies where lines
write it. The generators of random numbers get their states back.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final

import torch

from thunder_core.acquire import subclasses
from thunder_core.guards.code_kinds import is_of_thunder
from thunder_core.ir.bound_symbol import BoundSymbol, tensors_written_by, written_storages
from thunder_core.ir.context import AUTOCAST_DEVICE_TYPES, Context
from thunder_core.ir.program import compile_trace
from thunder_core.ir.proxy import PROXY_TYPES, NumberProxy, Proxy, TensorProxy
from thunder_core.ir.size import hint_of, with_size
from thunder_core.ir.symbol import Symbol, Tag
from thunder_core.ir.trace import Stage, Trace, bodies_of
from thunder_core.ir.tree import map_leaves
from thunder_core.pytorch_internals import DisableTorchFunction, disable_current_modes
from thunder_core.symbols.autocast import CLEAR_CACHE
from thunder_core.symbols.checkpointing import CHECKPOINT_WITH_WRITES
from thunder_core.symbols.checks import CHECK_METADATA, CHECK_TRUE
from thunder_core.symbols.control_flow import COND
from thunder_core.symbols.generators import MANUAL_SEED, SET_RNG_STATE, generator_states, set_generator_states
from thunder_core.symbols.opaque import ASKS_AUTOGRAD, CHANGES_AUTOGRAD, READS_AUTOGRAD

if TYPE_CHECKING:
    from thunder_core.acquire.recorder import Recorder


_CONTEXT: Final = Context(grad_enabled=False, inference=False)
_NOT_RUN: Final = frozenset({CHECK_TRUE, CHECK_METADATA})
_TELLS: Final = frozenset({Tag.GUESS, Tag.REPORT})
_UNDONE: Final = frozenset({CLEAR_CACHE, MANUAL_SEED, SET_RNG_STATE})
"""Symbols with effects that nobody sees after `Prefix._beside_the_program`."""
_ON_STAND_INS: Final = (
    CHANGES_AUTOGRAD - {torch.Tensor.register_hook, torch.Tensor.register_post_accumulate_grad_hook}
) | {*ASKS_AUTOGRAD, *READS_AUTOGRAD}
"""Calls that read or change the autograd graph. They run on stand-ins, whose graph is not the program's."""


class NotEvaluated(Exception):
    """The lines cannot be run beside the program; the text says why."""


class _Again(Exception):
    """The lines have to be run from the first on, with copies of more memory or with an autograd graph."""


@dataclass
class _Run:
    """What the lines of one sequence gave so far: those of the program, or of a region and what comes before it.

    Attributes:
        done: how many of them have run.
        values: by name; those that no line can read any more are left out.
        stand_ins: of the inputs, with the tensors that they stand for.
        states: of the generators after the last line.
    """

    done: int = 0
    values: dict[str, Any] = field(default_factory=dict)
    stand_ins: list[tuple[torch.Tensor, torch.Tensor]] = field(default_factory=list)
    states: tuple[torch.Tensor, ...] | None = None


class Prefix:
    """Runs the lines of a program while it is recorded, when the program reads a value; each line once, as a rule.

    Attributes:
        guesses: how many checks of values were recorded.
        shared: storages that the program shows to NumPy, each with the number of lines before.
    """

    def __init__(self) -> None:
        self.guesses = 0
        self.shared: dict[int, int] = {}
        self._runs: dict[tuple[int, ...], _Run] = {}
        self._copied: dict[int, torch.UntypedStorage | None] = {}
        self._has_graph = False

    def close(self) -> None:
        """Let go of all values."""
        self._runs.clear()
        self._copied.clear()

    def call(self, recorder: Recorder, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """What a function gives for the values that its arguments have in this call.

        Args:
            args, kwargs: with proxies in the place of tensors and numbers of the program.

        Raises:
            NotEvaluated: a line so far has effects beyond tensors.
            Exception: what the function raises.
        """
        with self._beside_the_program():
            run = self._advanced(recorder)
            if run.states is not None:
                set_generator_states(run.states)

            def real(leaf: Any) -> Any:
                if not isinstance(leaf, PROXY_TYPES):
                    return with_size(leaf, hint_of)
                if leaf.name not in run.values:
                    raise NotEvaluated(f"the value of {leaf.name} is no longer known")
                value = run.values[leaf.name]
                return value.detach() if isinstance(value, torch.Tensor) else value

            return function(*map_leaves(real, args), **map_leaves(real, kwargs))

    def _advanced(self, recorder: Recorder) -> _Run:
        """The values after all lines so far."""
        sequences = [*recorder.trace.outer_lines, recorder.trace.lines]
        key = tuple(map(id, sequences))
        self._runs = {other: run for other, run in self._runs.items() if other == key[: len(other)]}
        lines = [line for sequence in sequences for line in sequence]
        while True:
            run = self._runs.setdefault(key, _Run())
            try:
                self._advance(recorder, run, lines)
            except _Again:
                self._runs.clear()
                self._copied = dict.fromkeys(self._copied)
                continue
            return run

    def _advance(self, recorder: Recorder, run: _Run, lines: list[BoundSymbol]) -> None:
        new = [line for line in lines[run.done :] if line.symbol not in _NOT_RUN]
        for line in new:
            _check(line, inside=bool(recorder.trace.outer_lines))
        new = [line for line in new if not line.symbol.tags & _TELLS]
        if not self._has_graph and any(line.symbol.target in _ON_STAND_INS for line in new):
            self._has_graph = True
            raise _Again
        self._copy_written(recorder, new)
        self._add_inputs(recorder, run)
        self._run(recorder, run, new)
        run.done = len(lines)

    def _copy_written(self, recorder: Recorder, lines: list[BoundSymbol]) -> None:
        """Give the stand-ins of inputs copies of the memory that these lines write."""
        written = {proxy.storage for line in lines for proxy in tensors_written_by(line)}
        inputs = {proxy.storage for proxy in recorder.inputs.proxies if isinstance(proxy, TensorProxy)}
        missing = (written & inputs) - self._copied.keys()
        if missing:
            self._copied.update(dict.fromkeys(missing))
            raise _Again

    def _add_inputs(self, recorder: Recorder, run: _Run) -> None:
        for proxy, value in zip(recorder.inputs.proxies, recorder.inputs.objects, strict=True):
            if proxy.name in run.values:
                continue
            if isinstance(value, torch.Generator):
                raise NotEvaluated("random numbers are drawn from a generator of the program's")
            if not isinstance(value, torch.Tensor):
                run.values[proxy.name] = value
                continue
            assert isinstance(proxy, TensorProxy)
            if run.done and proxy.storage in self._copied:  # what it showed before the first line is gone
                raise _Again
            run.values[proxy.name] = self._stand_in(value, proxy, run)

    def _stand_in(self, tensor: torch.Tensor, proxy: TensorProxy, run: _Run) -> torch.Tensor:
        for known, stand_in in run.stand_ins:
            if known is tensor:
                return stand_in
        _check_kind(tensor, proxy)
        made = tensor.detach()
        if proxy.storage in self._copied:
            storage = self._copied[proxy.storage]
            if storage is None:
                storage = self._copied[proxy.storage] = tensor.untyped_storage().clone()
            made = tensor.new_empty(0).set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())
        if self._has_graph and tensor.requires_grad:
            made.requires_grad_()
            if not tensor.is_leaf:
                with torch.enable_grad():
                    made = made.view_as(made)
        run.stand_ins.append((tensor, made))
        if self._has_graph and tensor.is_leaf and tensor.grad is not None:
            made.grad = tensor.grad.detach().clone()
        return made

    def _run(self, recorder: Recorder, run: _Run, lines: list[BoundSymbol]) -> None:
        if not lines:
            return
        defined = {proxy.name: proxy for line in lines for proxy in line.outputs()}
        free = {proxy.name: proxy for line in lines for proxy in line.inputs() if proxy.name not in defined}
        missing = free.keys() - run.values.keys()
        if missing:
            raise NotEvaluated(f"the value of {min(missing)} is no longer known")
        ambient = recorder.trace.ambient
        lines = [self._line(line, ambient) for line in lines]
        outputs = tuple(defined.values())
        trace = Trace("prefix", tuple(free.values()), tuple(lines), outputs, Stage.ACQUIRED, "acquisition", _CONTEXT)
        if recorder.inputs.input_sizes is not None:
            trace = trace.with_constant_sizes()
        if run.states is not None:
            set_generator_states(run.states)
        results = compile_trace(trace)(*[run.values[name] for name in free])
        run.states = generator_states()
        run.values.update(zip(defined, results, strict=True))
        _forget(recorder, run)

    def _line(self, line: BoundSymbol, ambient: Context) -> BoundSymbol:
        """A line as it is run here: a checkpoint region as its body."""
        context = replace(line.context or ambient, inference=False)
        if not self._has_graph:
            context = replace(context, grad_enabled=False)
        if Tag.HIGHER_ORDER in line.symbol.tags and line.symbol is not COND:
            operands = line.args[2:] if line.symbol is CHECKPOINT_WITH_WRITES else line.args[1:]
            line = replace(line, symbol=_BODY, args=(line.args[0], *operands), kwargs={})
        return replace(line, context=None if context == _CONTEXT else context)

    @contextmanager
    def _beside_the_program(self) -> Iterator[None]:
        """Without the modes of the recording; generators have their states back afterwards."""
        with ExitStack() as stack:
            stack.enter_context(disable_current_modes())
            stack.enter_context(DisableTorchFunction())
            stack.enter_context(torch.inference_mode(False))
            stack.enter_context(torch.no_grad())
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")  # the compiled program tells them
            for kind in AUTOCAST_DEVICE_TYPES:
                if torch.is_autocast_enabled(kind):
                    stack.enter_context(torch.autocast(kind, enabled=False))
            states = generator_states()
            try:
                yield
            finally:
                set_generator_states(states)


def _run_body(body: Callable[..., Any], *operands: Any) -> Any:
    return body(*operands)


_BODY: Final = Symbol("thunder_core.acquire.prefix._run_body", _run_body, tags=frozenset({Tag.HIGHER_ORDER}))


def _forget(recorder: Recorder, run: _Run) -> None:
    """Keep what the program can still reach: its tensors, numbers, and the inputs."""
    kept = {variable.proxy.name for variable in recorder.tensors.all_variables()}
    kept.update(proxy.name for proxy in recorder.inputs.proxies)
    run.values = {
        name: value for name, value in run.values.items() if name in kept or not isinstance(value, torch.Tensor)
    }


def _check(line: BoundSymbol, *, inside: bool) -> None:
    """Refuse to run a line beside the program that does more than compute.

    Args:
        inside: it is in a region, which is to run anew as a whole, with what it tells the user.
    """
    place = f" at {line.location.describe()}" if line.location is not None else ""
    tags, name = line.symbol.tags, line.symbol.name
    if Tag.REPORT in tags and inside:
        raise NotEvaluated(f"{name} comes before it in a checkpoint region{place}")
    if tags & _TELLS or line.symbol in _UNDONE or line.symbol.target in _ON_STAND_INS:
        return
    if Tag.HIGHER_ORDER in tags:
        for other in (other for body in bodies_of(line) for other in body.symbols):
            if other.symbol not in _NOT_RUN:
                _check(other, inside=True)
        return
    if Tag.LOCAL in tags and not _is_own(line.symbol.target):
        raise NotEvaluated(f"{name} comes before it{place}, a function of the program's that would run once more")
    if Tag.COLLECTIVE in tags:
        # Where ranks read different values, those whose program is another would communicate once more than the others.
        raise NotEvaluated(f"{name} communicates before it{place}, and ranks may read different values")
    if tags & {Tag.AS_RECORDED, Tag.AUTOGRAD, Tag.HOOK} or line.happens_once():
        raise NotEvaluated(f"{name} has an effect before it{place}, which cannot be undone")
    if any(not isinstance(proxy, TensorProxy | NumberProxy) for proxy in line.outputs()):
        raise NotEvaluated(f"{name} makes an object before it{place}")


def _is_own(target: Any) -> bool:
    """Whether it applies an autograd.Function of Thunder's own, which does no more than the line's effects say."""
    forward = getattr(getattr(target, "__self__", None), "forward", None)
    return isinstance(forward, FunctionType) and is_of_thunder(forward.__code__)


def _check_kind(tensor: torch.Tensor, proxy: TensorProxy) -> None:
    """Refuse tensors that do not share memory with what `torch.Tensor.detach` gives of them."""
    if subclasses.has_torch_function(type(tensor)) or tensor.layout is not torch.strided:
        raise NotEvaluated(f"{proxy.name} is a sparse tensor, or of a class that acts on calls itself")
    if tensor.is_conj() or tensor.is_neg():
        raise NotEvaluated(f"{proxy.name} is a lazy conjugate or negative")
    if tensor.device.type == "meta":
        raise NotEvaluated(f"{proxy.name} is on the meta device and has no data")


def slice_of(lines: Sequence[BoundSymbol], storages: set[int]) -> list[BoundSymbol]:
    """The lines that define or write any of ``storages``, to which the storages that they read are added."""
    kept: list[BoundSymbol] = []
    for line in reversed(lines):
        defined = {proxy.storage for proxy in line.outputs() if isinstance(proxy, TensorProxy)}
        if not storages.isdisjoint(written_storages([line]) | defined):
            kept.append(line)
            storages.update(proxy.storage for proxy in line.inputs() if isinstance(proxy, TensorProxy))
    kept.reverse()
    return kept


def is_random(lines: Sequence[BoundSymbol], inputs: Iterable[Proxy], storages: Iterable[int]) -> bool:
    """Whether random numbers of the program decide what ``storages`` contain, and none of its inputs does."""
    wanted = set(storages)
    deciding = slice_of(lines, wanted)
    given = {proxy.storage for proxy in inputs if isinstance(proxy, TensorProxy)}
    made = {proxy.storage for line in deciding for proxy in line.outputs() if isinstance(proxy, TensorProxy)}
    return any(line.effects.random for line in deciding) and wanted <= made - given
