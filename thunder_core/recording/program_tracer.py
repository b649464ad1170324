"""The tracer of whole programs: calls are recorded as they are written, with their writes, modes and source lines."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from thunder_core.errors import UnsupportedError
from thunder_core.ir.bound_symbol import BoundSymbol, metadata_of
from thunder_core.ir.context import current_context
from thunder_core.ir.effects import Effects
from thunder_core.ir.location import SourceLocation
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.tree import iterate_leaves, map_leaves, tensors_in
from thunder_core.pytorch_internals import set_grad_enabled
from thunder_core.recording.autocast_regions import AutocastRegions
from thunder_core.symbols.functions import REBASED
from thunder_core.symbols.opaque import is_of_pytorch
from thunder_core.symbols.operators import neural_function, torch_call
from thunder_core.symbols.registry import registry
from thunder_core.tracing.fake_tensors import Observed, storage_address
from thunder_core.tracing.sizes import kernels_for_sizes
from thunder_core.tracing.tracer import Level, Tracer

_ADVICE = ("call it outside of the compiled program, and pass its result as an argument",)


class _Active(threading.local):
    tracer: ProgramTracer | None = None


_active = _Active()


class ProgramTracer(Tracer):
    """Records the calls of a program on fake tensors, at the level of torch functions.

    Unlike the trace of a rewrite, that of a program has each call: a write to a tensor gives it a new proxy, a detached
    tensor is another value, an op under other modes than those of the call has these as its context, and proxies
    require grad as PyTorch reports it at this point of the program.

    Args:
        location: returns the line of the user's program that makes the current call; None if it is unknown.

    Attributes:
        context: the modes of the call that is recorded.
        autocast_regions: the regions of autocast that the program has left.
    """

    def __init__(self, location: Callable[[], SourceLocation | None]) -> None:
        super().__init__(Level.TORCH, merge=False)
        self.context = current_context()
        self._location = location
        self.autocast_regions = AutocastRegions()
        self._input_ids: set[int] = set()

    def input(self, fake: torch.Tensor, proxy: TensorProxy) -> TensorProxy:
        """Add an input, with the name and the storage of ``proxy``."""
        self.inputs.append(proxy)
        self._input_ids.add(id(fake))
        self._storages[storage_address(fake)] = proxy.storage
        self._define(fake, proxy)
        return proxy

    @contextmanager
    def running(self) -> Iterator[None]:
        """Record the calls in the block under the current modes. The states of random generators do not change."""
        outer, _active.tracer = _active.tracer, self
        try:
            with torch.random.fork_rng(devices=[]), self.recording(self.context):
                torch.set_autocast_cache_enabled(self.context.autocast_cache)  # contexts of ops include it
                yield
        finally:
            if self.context.autocast:
                torch.clear_autocast_cache()  # casts of fake tensors
            _active.tracer = outer

    def call_function(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a call, and record it unless it has no effect and returns no new tensor."""
        if func is set_grad_enabled or registry.is_metadata(func):
            return func(*args, **kwargs)
        with self.mode.observing() as observed, kernels_for_sizes(func, args, kwargs):
            result = func(*args, **kwargs)
        self._check_arguments(func, tensors_in((args, kwargs)))
        arguments = {id(leaf) for leaf in tensors_in((args, kwargs))}
        computes = any(id(leaf) not in arguments for leaf in tensors_in(result))
        observed.external |= result is None and not observed.written  # a check of values, say
        if computes or observed.written or observed.random or observed.external or observed.channels:
            self.record(func, args, kwargs, result, observed)
        return result

    def record(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, observed: Observed) -> None:
        """Append the op of a call.

        Raises:
            UnsupportedError: the call communicates with other processes, or returns a number that only a run has.
        """
        location = self._location()
        if observed.channels:
            raise UnsupportedError(f"{func} communicates with other processes", location=location, advice=_ADVICE)
        numbers = [leaf for leaf in iterate_leaves(result) if leaf is not None and not isinstance(leaf, torch.Tensor)]
        recorded: Any = map_leaves(self._argument, (args, kwargs))
        target, *recorded = torch_call(func, *recorded)
        symbol, recorded_args, recorded_kwargs = registry.resolve(neural_function(target) or target, *recorded)
        if numbers and not is_of_pytorch(symbol):  # numbers among the results of PyTorch's follow from the metadata
            what = f"{func} returns a Python {type(numbers[0]).__name__}, whose value only a run of the program has"
            raise UnsupportedError(what, location=location, advice=_ADVICE)
        written = [leaf for leaf in tensors_in((args, kwargs)) if storage_address(leaf) in observed.written]
        mutates = tuple(dict.fromkeys(self.proxy(leaf).name for leaf in written))
        context = current_context()
        if context.autocast:
            self.ops += self.autocast_regions.before_op(location)
        effects = Effects(mutates, observed.random, observed.external)
        output = map_leaves(self._result, result)
        own = None if context == self.context else context
        self.ops.append(BoundSymbol(symbol, recorded_args, recorded_kwargs, output, effects, own, location))
        if written:
            self._follow_history(location)

    def _check_arguments(self, func: Any, arguments: list[torch.Tensor]) -> None:
        """Refuse a call that gave an argument another storage, or an input another shape or other strides."""
        for tensor in arguments:
            known = self._proxies.get(id(tensor))
            if known is None:
                continue
            what = ""
            if self._storages.get(storage_address(tensor)) != known.storage:
                what = " another storage"
            elif id(tensor) in self._input_ids and metadata_of(tensor) != metadata_of(known):
                what = ", which is an input, another shape or other strides"
            if what:
                problem = f"{func} gives {known.name}{what}"
                raise UnsupportedError(problem, location=self._location(), advice=_ADVICE)

    def _follow_history(self, location: SourceLocation | None) -> None:
        """Rename tensors that require grad since a write to another tensor on their storage."""
        for tensor in dict.fromkeys(self._alive):
            old = self._proxies[id(tensor)]
            if tensor.requires_grad != old.requires_grad:
                new = self._named(tensor, old.storage)
                self.ops.append(BoundSymbol(REBASED, (old,), {}, new, Effects(), None, location))
                self._proxies[id(tensor)] = new

    def _constant(self, tensor: torch.Tensor) -> TensorProxy:
        """Refuse a tensor from outside: another call may find other values in it."""
        raise UnsupportedError(
            f"the program uses a tensor of the shape {tuple(tensor.shape)} that is no input and that no recorded call "
            "computed",
            location=self._location(),
            advice=("the front end has to add an input for each tensor that the program does not compute",),
        )

    def _named(self, tensor: torch.Tensor, storage: int) -> TensorProxy:
        return replace(self._new(tensor), storage=storage)

    def _new(self, tensor: torch.Tensor) -> TensorProxy:
        # storages count up from those of the inputs; `Tracer` counts down, for traces that are inlined
        self._storages.setdefault(storage_address(tensor), len(self._storages))
        new = super()._new(tensor)
        return replace(new, name=f"t{new.name.removeprefix('v')}", requires_grad=tensor.requires_grad)


@contextmanager
def autocast_region(
    device_type: str, dtype: torch.dtype | None = None, enabled: bool = True, cache_enabled: bool | None = None
) -> Iterator[None]:
    """``torch.autocast`` for a program that `ProgramTracer` records: it notes where the region ends, too.

    PyTorch forgets the casts of parameters at the end of the outermost region, and so does the compiled program.
    """
    with torch.autocast(device_type, dtype=dtype, enabled=enabled, cache_enabled=cache_enabled):
        yield
    tracer = _active.tracer
    if tracer is not None and not current_context().autocast:
        tracer.autocast_regions.leave()
