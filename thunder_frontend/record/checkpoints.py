"""`torch.utils.checkpoint`: each call is recorded as one op, whose argument is the trace of the function.

After functionalization, the arguments of a checkpoint region are copies of the tensors that it writes, and in backward
they are other tensors than in forward. Copies of a buffer and of a view of it do not share storage, and autograd does
not record that one result of a region is a view of another. Therefore the region receives one tensor and creates the
views of it inside (`_make_views_inside`), and views among its results are created after it (`_RegionResults`).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

import torch
import torch.utils.checkpoint as torch_checkpoint
from torch.autograd.graph import saved_tensors_hooks

from thunder_core.errors import UnsupportedError
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.import_paths import module_of
from thunder_core.ir.proxy import Proxy, TensorProxy
from thunder_core.ir.tree import map_leaves, tensors_in
from thunder_core.private_names import is_missing
from thunder_core.pytorch_internals import (
    NAMES,
    checkpoint_without_reentrant_generator,
    checkpoint_without_reentrant_generator_impl,
    enable_checkpoint_early_stop,
)
from thunder_core.symbols.checkpointing import CHECKPOINT, CHECKPOINT_WITH_WRITES
from thunder_core.tracing.frames import user_location
from thunder_frontend.record.arguments import CallArguments
from thunder_frontend.record.open_trace import Region
from thunder_frontend.record.recorder import Recorder
from thunder_frontend.record.traced_tensor import Variable


class _ViewHistory:
    """The views that the ops up to the end of a region created, and the tensors of which they are views.

    A tensor object is identified by its first name, as each write gives it a new one.

    Args:
        region: a finished region whose tensors still have the names that writes in it assigned.
    """

    def __init__(self, region: Region) -> None:
        self._ops = {proxy.name: op for op in (*region.trace.all_ops(), *region.ops) for proxy in op.outputs()}
        self._first: dict[str, str] = {}
        self._variables: dict[str, Variable] = {}
        origins: dict[Variable, str] = {}
        for variable, old in region.tensors.renamed:
            first = origins.setdefault(variable, old.name)
            self._first[variable.proxy.name] = self._first[old.name] = first
            self._variables[first] = variable

    def first(self, proxy: TensorProxy) -> str:
        """The first name of the tensor object with this proxy."""
        return self._first.get(proxy.name, proxy.name)

    def variable(self, name: str) -> Variable | None:
        """The tensor object with this first name; None if it was never written."""
        return self._variables.get(name)

    def proxy(self, name: str) -> TensorProxy:
        """The proxy with this name, a result of an op."""
        return next(p for p in self._ops[name].outputs() if isinstance(p, TensorProxy) and p.name == name)

    def path(self, name: str, within: Container[str] | None = None) -> tuple[str, list[BoundSymbol]]:
        """The first name of a tensor's base, and the view ops that create the tensor from the base, in order.

        Args:
            name: the first name of the tensor.
            within: the path starts after the last result that is not among these names; None for no limit.
        """
        path: list[BoundSymbol] = []
        while (within is None or name in within) and (base := self._base(name)) is not None:
            path.append(self._ops[name])
            name = self.first(base)
        return name, path[::-1]

    def repeated(self, ops: Iterable[BoundSymbol], named: dict[str, TensorProxy]) -> list[BoundSymbol]:
        """Copies of these ops, each once, with tensors replaced by the proxies that ``named`` has for first names."""

        def value(leaf: Any) -> Any:
            return named.get(self.first(leaf), leaf) if isinstance(leaf, TensorProxy) else leaf

        distinct = {id(op): op for op in ops}.values()
        return [replace(op.map_arguments(value), output=map_leaves(value, op.output)) for op in distinct]

    def _base(self, name: str) -> TensorProxy | None:
        """The only argument of the op that returns ``name``, if the op only creates views of it; else None."""
        op = self._ops.get(name)
        if op is None or not op.is_view() or len(op.inputs()) != 1:
            return None
        (base,) = op.inputs()
        return base if isinstance(base, TensorProxy) else None


def _make_views_inside(history: _ViewHistory, region: Region) -> None:
    """Prepend to a finished region the ops that create the written views of each storage from one base.

    Tensors without a common base (inputs that share storage, for example) remain arguments of the region.
    """
    before: list[BoundSymbol] = []
    for group in _by_storage(_written(region), lambda proxy: proxy):
        paths = [history.path(history.first(proxy)) for proxy in group]
        roots = {root for root, _ in paths}
        if len(group) > 1 and len(roots) == 1:
            named = _current(history, roots)
            named.update((history.first(proxy), proxy) for proxy in group)
            before += history.repeated([op for _, path in paths for op in path], named)
    region.ops[:0] = before


class _RegionResults:
    """The tensors of a region that are used after it.

    If several of them share storage, or the region writes their storage, the region does not return those that are
    views of another tensor: `ops` creates these after it. A reentrant region returns all of them, as autograd regards
    each result of its function as a new tensor.

    Args:
        history: the views at the end of the region.
        region: the region, after `Region.restore_names`.
        live: the tensors of the region that are used after it.
        reentrant: whether the checkpoint is reentrant.

    Attributes:
        returned: the tensors that the region returns.
        views: the views that are created after the region.
    """

    def __init__(self, history: _ViewHistory, region: Region, live: list[Variable], reentrant: bool) -> None:
        self.returned: list[Variable] = []
        self.views: list[Variable] = []
        self._history = history
        self._defined = region.defined()
        self._steps: list[BoundSymbol] = []
        self._objects: dict[str, Variable] = {history.first(variable.proxy): variable for variable in live}
        written = {proxy.storage for proxy in _written(region)}
        for group in _by_storage(live, lambda variable: variable.proxy):
            if not reentrant and (len(group) > 1 or group[0].proxy.storage in written):
                self._split(group)
            else:
                self.returned += group

    def ops(self) -> list[BoundSymbol]:
        """The ops that create the views. Requires that all tensors have their names outside of the region."""
        return self._history.repeated(self._steps, {name: variable.proxy for name, variable in self._objects.items()})

    def _split(self, group: list[Variable]) -> None:
        """Return the bases of a group that shares storage, and create its views after the region."""
        history = self._history
        for variable in group:
            root, path = history.path(history.first(variable.proxy), self._defined)
            if not path:
                self._return(variable)
                continue
            self.views.append(variable)
            self._steps += path
            base = self._objects.get(root) or history.variable(root)
            if root in self._defined:
                base = base or Variable(history.proxy(root))
                self._return(base)
            if base is not None:
                self._objects[root] = base

    def _return(self, variable: Variable) -> None:
        if variable not in self.returned:
            self.returned.append(variable)


def _current(history: _ViewHistory, names: Iterable[str]) -> dict[str, TensorProxy]:
    """The current proxies of the tensor objects with these first names that were ever written."""
    variables = [(name, history.variable(name)) for name in names]
    return {name: variable.proxy for name, variable in variables if variable is not None}


def _written(region: Region) -> list[TensorProxy]:
    """The tensors from outside that a region writes."""
    mutates = region.effects().mutates
    return [proxy for proxy in region.free() if isinstance(proxy, TensorProxy) and proxy.name in mutates]


def _by_storage(items: Iterable[Any], proxy: Callable[[Any], TensorProxy]) -> list[list[Any]]:
    """The items in groups with equal storage, where ``proxy(item)`` is the proxy of an item."""
    groups: dict[int, list[Any]] = {}
    for item in items:
        groups.setdefault(proxy(item).storage, []).append(item)
    return list(groups.values())


def _rename_outside(recorder: Recorder, variable: Variable) -> TensorProxy:
    """Assign a new name to a tensor, by which ops after the region refer to it, and return its proxy."""
    variable.proxy = replace(variable.proxy, name=recorder.trace.names.intermediate())
    return variable.proxy


@contextmanager
def _checkpoint_region(recorder: Recorder, function_args: Any, options: dict[str, Any]) -> Iterator[None]:
    """Record the calls inside the context as the body of one checkpoint op.

    Its results are the tensors of the region that are alive at the end.

    Args:
        function_args: the arguments of the function. Other tensors that it uses are captured.
        options: the options of the checkpoint.
    """
    region = Region(recorder.trace, recorder.tensors)
    with region.recording(), recorder.wrapper_calls.in_checkpoint(region):
        yield
    live = [recorder.tensors.variable(tensor) for tensor in region.live_tensors()]
    _write_checkpoint(recorder, region, live, function_args, options)


def checkpoint(
    recorder: Recorder, function: Callable[..., Any], operands: tuple[Any, ...], options: dict[str, Any]
) -> Any:
    """Run ``function`` as a reentrant checkpoint region and return its result.

    If no tensor of ``operands`` requires grad, no gradient flows through such a region, and PyTorch warns.
    """
    torch_checkpoint.check_backward_validity(operands)
    if not any(isinstance(operand, torch.Tensor) and operand.requires_grad for operand in operands):
        with torch.no_grad():
            return function(*operands)
    with _checkpoint_region(recorder, operands, options):
        return function(*operands)


def _write_checkpoint(
    recorder: Recorder, region: Region, live: list[Variable], function_args: Any, options: dict[str, Any]
) -> None:
    """Append the checkpoint op for a finished region.

    In backward, PyTorch raises an error if an argument of a checkpoint was written after forward. Captured tensors may
    be written, for example by an optimizer. Therefore they are not arguments of the checkpoint if ops run as they were
    recorded (`CHECKPOINT_WITH_WRITES`).

    Args:
        live: the tensors that are alive at the end of the region.
        function_args: the arguments of the function.
        options: the options of the checkpoint.
    """
    history = _ViewHistory(region)
    region.restore_names()
    defined = region.defined()
    live = [variable for variable in dict.fromkeys(live) if variable.proxy.name in defined]
    results = _RegionResults(history, region, live, options["use_reentrant"])
    _make_views_inside(history, region)
    free, effects, written = region.free(), region.effects(), _written(region)
    body = region.body("checkpoint_body", free, tuple(variable.proxy for variable in results.returned))
    output = tuple(_rename_outside(recorder, variable) for variable in results.returned)
    option_literals = CallArguments(recorder.inputs, (), options).kwargs  # a ``context_fn`` may have no literal
    symbol = CHECKPOINT
    arguments: tuple[Any, ...] = (body, *free)
    captured = _captured(recorder, free, function_args) if recorder.attempt.graph else []
    positions = {proxy.name: position for position, proxy in enumerate(free)}
    if not_passed := dict.fromkeys((*effects.mutates, *captured)):
        symbol, arguments = CHECKPOINT_WITH_WRITES, (body, tuple([positions[name] for name in not_passed]), *free)
    recorder.trace.write(symbol, arguments, option_literals, output, effects)
    recorder.writer.follow_history({proxy.storage for proxy in written})
    for variable in results.views:
        _rename_outside(recorder, variable)
    recorder.trace.ops += results.ops()


def _captured(recorder: Recorder, free: Iterable[Proxy], function_args: Any) -> list[str]:
    """Names of the values from outside that a region uses and that are not arguments of its function."""
    variables = map(recorder.tensors.find, tensors_in(function_args))
    names = {variable.proxy.name for variable in variables if variable is not None}
    return [proxy.name for proxy in free if proxy.name not in names]


def _checkpoint_without_reentrant(
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
    """The interception of ``checkpoint(use_reentrant=False)``, whose generator yields once to run the function."""
    options = (preserve_rng_state, context_fn, determinism_check, debug, early_stop)
    return _region_without_reentrant(recorder, *options, function_args=(args, kwargs))


def _checkpoint_of_tuple(
    recorder: Recorder,
    original: Callable[..., Any],
    function: Callable[..., Any],
    args: Any,
    kwargs: Any,
    **options: Any,
) -> Iterator[None]:
    """`_checkpoint_without_reentrant` for versions whose generator takes the arguments as a tuple and a dict."""
    return _region_without_reentrant(recorder, **options, function_args=(args, kwargs))


def _region_without_reentrant(
    recorder: Recorder,
    preserve_rng_state: bool = True,
    context_fn: Any = torch_checkpoint.noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    respect_saved_tensors_hooks: bool | None = None,
    *,
    function_args: Any,
) -> Iterator[None]:
    """The region of a checkpoint; only options that differ from PyTorch's defaults are recorded."""
    options: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": preserve_rng_state}
    if context_fn is not torch_checkpoint.noop_context_fn:
        options["context_fn"] = context_fn
    if determinism_check != "default":
        options["determinism_check"] = determinism_check
    global_early_stop = enable_checkpoint_early_stop.value  # by `set_checkpoint_early_stop`
    if not (early_stop if global_early_stop is None else global_early_stop):
        options["early_stop"] = False
    if respect_saved_tensors_hooks is not None:
        options["respect_saved_tensors_hooks"] = respect_saved_tensors_hooks
    with _checkpoint_region(recorder, function_args, options):
        yield


_EXPECTED: Final = (
    checkpoint_without_reentrant_generator_impl
    if NAMES.rows["checkpoint_without_reentrant_generator_impl"].expected
    else checkpoint_without_reentrant_generator
)
"""The generator function that this version of PyTorch is expected to have."""
WITHOUT_REENTRANT: Final[tuple[Any, Callable[..., Any]]] = (
    (checkpoint_without_reentrant_generator, _checkpoint_without_reentrant)
    if is_missing(checkpoint_without_reentrant_generator_impl)
    else (checkpoint_without_reentrant_generator_impl, _checkpoint_of_tuple)
)
"""The generator function to intercept, and its handler. If PyTorch has both, the one without ``impl`` calls the other.
"""


def enter_saved_tensors_hooks(recorder: Recorder, original: Callable[..., Any], hooks: saved_tensors_hooks) -> None:
    """The interception of ``with torch.autograd.graph.saved_tensors_hooks(...)``.

    Raises:
        UnsupportedError: gradients are enabled, so that the hooks would be called.
    """
    if not torch.is_grad_enabled():
        original(hooks)
        return
    if is_missing(_EXPECTED) and module_of(type(hooks)) == torch_checkpoint.__name__:
        _EXPECTED()  # raises the error that this name is missing
    raise UnsupportedError(
        f"{type(hooks).__name__} inside a compiled program would run once, while the program is recorded, and not for "
        "the tensors that are saved for backward",
        location=user_location(),
        advice=("put it around the call of the compiled function: it is called for the tensors that forward saves",),
    )
