"""`torch.utils.checkpoint`: a call is recorded as one symbol with the function as its body, never flattened.

What a region writes it is given as copies where the program is made functional, and backward gives it other tensors
than forward does. Copies of a buffer and of a view of it would no longer be one memory. Nor would autograd know that
one result of a region is a view of another.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

import torch
import torch.utils.checkpoint as torch_checkpoint
from torch.autograd.graph import saved_tensors_hooks

from thunder_core.acquire.arguments import Call
from thunder_core.acquire.recorder import Recorder
from thunder_core.acquire.region import Region
from thunder_core.acquire.variable import Variable
from thunder_core.errors import UnsupportedError
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.proxy import Proxy, TensorProxy
from thunder_core.ir.symbol import Symbol, Tag
from thunder_core.ir.tree import iterate_leaves, map_leaves
from thunder_core.private_names import is_missing
from thunder_core.pytorch_internals import (
    NAMES,
    checkpoint_without_reentrant_generator,
    checkpoint_without_reentrant_generator_impl,
    enable_checkpoint_early_stop,
)
from thunder_core.symbols.checkpointing import CHECKPOINT_WITH_WRITES
from thunder_core.tracing.user_frames import user_location


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


CHECKPOINT = Symbol(
    "torch.utils.checkpoint.checkpoint", torch_checkpoint.checkpoint, tags=frozenset({Tag.HIGHER_ORDER})
)


def _fresh(recorder: Recorder, variable: Variable) -> TensorProxy:
    """A name for the value of ``variable`` outside of the region that computed it."""
    variable.proxy = replace(variable.proxy, name=recorder.trace.names.intermediate())
    return variable.proxy


@contextmanager
def checkpoint_region(recorder: Recorder, given: Any, options: dict[str, Any]) -> Iterator[None]:
    """Record what runs inside as the body of one checkpoint symbol; what stays alive is its output.

    Args:
        given: what the function is called with. Other tensors that it uses it captures.
    """
    region = Region(recorder.trace, recorder.tensors)
    first = len(recorder.differentiable_calls)
    recorder.checkpoints += 1
    try:
        with region.recording():
            yield
            recorder.mode.end_region(region, first)
    finally:
        recorder.checkpoints -= 1
    live = [recorder.tensors.variable(tensor) for tensor in region.live_tensors()]
    emit_checkpoint(recorder, region, live, given, options)


def checkpoint(
    recorder: Recorder, function: Callable[..., Any], operands: tuple[Any, ...], options: dict[str, Any]
) -> Any:
    """Run ``function`` as a reentrant checkpoint region and return its result.

    Without gradients for ``operands`` such a region has none at all, and PyTorch warns.
    """
    torch_checkpoint.check_backward_validity(operands)
    if not any(isinstance(operand, torch.Tensor) and operand.requires_grad for operand in operands):
        with torch.no_grad():
            return function(*operands)
    with checkpoint_region(recorder, operands, options):
        return function(*operands)


def emit_checkpoint(
    recorder: Recorder, region: Region, live: list[Variable], given: Any, options: dict[str, Any]
) -> None:
    """Append the checkpoint symbol for a finished region.

    PyTorch refuses to find changed in backward what its checkpoint was given. What the function captures may change:
    where lines run as they were recorded, an optimizer's update among them, that is not given to it.

    Args:
        given: what the function was called with.
    """
    history = ViewHistory(region)
    region.restore_names()
    defined = region.defined()
    live = [variable for variable in dict.fromkeys(live) if variable.proxy.name in defined]
    results = Results(history, region, live, options["use_reentrant"])
    make_views_inside(history, region)
    free, effects = region.free(), region.effects()
    body = region.body("checkpoint_body", free, tuple(variable.proxy for variable in results.returned))
    output = tuple(_fresh(recorder, variable) for variable in results.returned)
    recorded = Call(recorder.inputs, (), options).kwargs  # a ``context_fn`` may be an object without a literal
    symbol = CHECKPOINT
    arguments: tuple[Any, ...] = (body, *free)
    captured = _captured(recorder, free, given) if recorder.attempt.graph else []
    places = {proxy.name: place for place, proxy in enumerate(free)}
    if kept := dict.fromkeys((*effects.mutates, *captured)):
        symbol, arguments = CHECKPOINT_WITH_WRITES, (body, tuple([places[name] for name in kept]), *free)
    recorder.trace.write(symbol, arguments, recorded, output, effects)
    written = [proxy for proxy in free if isinstance(proxy, TensorProxy) and proxy.name in effects.mutates]
    recorder.writer.follow_history({proxy.storage for proxy in written})
    for variable in results.views:
        _fresh(recorder, variable)
    recorder.trace.lines += results.lines()


def _captured(recorder: Recorder, free: Iterable[Proxy], given: Any) -> list[str]:
    """Names of what a region uses and its function was not called with."""
    tensors = [leaf for leaf in iterate_leaves(given) if isinstance(leaf, torch.Tensor)]
    names = {variable.proxy.name for tensor in tensors if (variable := recorder.tensors.find(tensor)) is not None}
    return [proxy.name for proxy in free if proxy.name not in names]


def checkpoint_without_reentrant(
    recorder: Recorder,
    original: Callable[..., Any],
    function: Callable[..., Any],
    preserve_rng_state: bool = True,
    context_fn: Any = torch_checkpoint.noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    /,
    *args: Any,
    **kwargs: Any,
) -> Iterator[None]:
    """``checkpoint(use_reentrant=False)``, which runs its function while a generator waits at its one `yield`."""
    given = (args, kwargs)
    return _region(recorder, preserve_rng_state, context_fn, determinism_check, debug, early_stop, given=given)


def checkpoint_of_tuple(
    recorder: Recorder,
    original: Callable[..., Any],
    function: Callable[..., Any],
    args: Any,
    kwargs: Any,
    **options: Any,
) -> Iterator[None]:
    """The same of newer versions, where the generator takes the arguments as a tuple and a dict."""
    return _region(recorder, **options, given=(args, kwargs))


def _region(
    recorder: Recorder,
    preserve_rng_state: bool = True,
    context_fn: Any = torch_checkpoint.noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    respect_saved_tensors_hooks: bool | None = None,
    *,
    given: Any,
) -> Iterator[None]:
    """The region of a checkpoint, with those of its options that are not PyTorch's defaults."""
    options: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": preserve_rng_state}
    if context_fn is not torch_checkpoint.noop_context_fn:
        options["context_fn"] = context_fn
    if determinism_check != "default":
        options["determinism_check"] = determinism_check
    chosen = enable_checkpoint_early_stop.value  # by `set_checkpoint_early_stop`
    if not (early_stop if chosen is None else chosen):
        options["early_stop"] = False
    if respect_saved_tensors_hooks is not None:
        options["respect_saved_tensors_hooks"] = respect_saved_tensors_hooks
    with checkpoint_region(recorder, given, options):
        yield


_EXPECTED: Final = (
    checkpoint_without_reentrant_generator_impl
    if NAMES.rows["checkpoint_without_reentrant_generator_impl"].expected
    else checkpoint_without_reentrant_generator
)
"""What PyTorch of this version should have."""
WITHOUT_REENTRANT: Final[tuple[Any, Callable[..., Any]]] = (
    (checkpoint_without_reentrant_generator, checkpoint_without_reentrant)
    if is_missing(checkpoint_without_reentrant_generator_impl)
    else (checkpoint_without_reentrant_generator_impl, checkpoint_of_tuple)
)
"""What it has, and its handler. Where there are both generators, the one without ``impl`` calls the other."""


def enter_saved_tensors_hooks(recorder: Recorder, original: Callable[..., Any], hooks: saved_tensors_hooks) -> None:
    """The interception of ``with torch.autograd.graph.saved_tensors_hooks(...)``.

    Raises:
        UnsupportedError: autograd records, so that the hooks would be called.
    """
    if not torch.is_grad_enabled():
        original(hooks)
        return
    if is_missing(_EXPECTED) and type(hooks).__module__ == torch_checkpoint.__name__:
        _EXPECTED()  # raises
    raise UnsupportedError(
        f"{type(hooks).__name__} inside a compiled program would be given what is recorded, once, and not what is "
        "saved for backward",
        location=user_location(),
        advice=("put it around the call of the compiled function: it sees what forward saves",),
    )
