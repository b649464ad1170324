"""The tracer: record calls on fake tensors as bound symbols."""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any, Final

import torch

from thunder_core.errors import LoweringError
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.context import Context, modes_for_fakes
from thunder_core.ir.effects import Effects
from thunder_core.ir.proxy import Proxy, TensorProxy
from thunder_core.ir.size import from_fake
from thunder_core.ir.trace import Stage, Trace, needed_ops
from thunder_core.ir.tree import iterate_leaves, list_proxies, map_leaves, tensors_in
from thunder_core.pytorch_errata import depends_on_grad_mode
from thunder_core.pytorch_internals import (
    DisableTorchFunction,
    EnableTorchFunction,
    FakeTensor,
    OpOverload,
    TorchDispatchMode,
    aten_to_copy,
    disable_current_modes,
    schema_of,
)
from thunder_core.symbols.operators import torch_call
from thunder_core.symbols.recording import RecordingMode
from thunder_core.symbols.registry import registry
from thunder_core.tracing.decompositions import decomposition_of
from thunder_core.tracing.fake_tensors import Observed, ObservingFakeMode, lazy_bits, storage_address
from thunder_core.tracing.native_attention import NATIVE_ATTENTION
from thunder_core.tracing.size_floats import with_tensors
from thunder_core.tracing.sizes import kernels_for_sizes

_LARGEST_CONSTANT: Final = 64

# Calls that return another object for the same tensor. They are not recorded: traces run without gradient recording.
_SAME_VALUE: Final = frozenset(
    {torch.ops.aten.detach.default, torch.ops.aten.alias.default, torch.ops.aten.lift_fresh.default}
)


class Level(enum.Enum):
    """The level of the calls that a tracer records."""

    TORCH = "torch functions, as they are called"
    ATEN = "ATen operators, forward and backward alike, by the names of the torch functions that call them"
    CORE_ATEN = "operators of core ATen, into which PyTorch's decompositions split other operators"


class Tracer:
    """Records calls on known fake tensors.

    Inputs are called ``:0, :1, ...``, other values ``v1, v2, ...``, and storages count down from -1; a trace is
    meant to be inlined into another (`thunder_core.ir.builder`). Calls that write storages are recorded with that
    effect: the trace is of stage ACQUIRED.

    Args:
        level: what is recorded.
        merge: TORCH only: a call is not recorded if each result equals an earlier value in storage, dtype and geometry
            (a reshape to the same shape, a transpose of a transpose); a write to an argument raises LoweringError.
        watch: ATEN only: called with each operator, its arguments and its result.

    Attributes:
        mode: the mode of the fake tensors.
        inputs: proxies of the inputs, in order.
        ops: the recorded calls, in order.
    """

    def __init__(self, level: Level, *, merge: bool = True, watch: Callable[..., None] | None = None) -> None:
        self.level = level
        self.mode = ObservingFakeMode()
        self.inputs: list[Proxy] = []
        self.ops: list[BoundSymbol] = []
        self._merge = merge
        self._watch = watch
        self._proxies: dict[int, TensorProxy] = {}
        self._alive: list[torch.Tensor] = []  # values are looked up by ``id``, which is valid while the object is alive
        self._storages: dict[int, int] = {}
        self._elements: dict[Any, TensorProxy] = {}
        self._computed = 0

    def input(self, fake: torch.Tensor, proxy: TensorProxy) -> TensorProxy:
        """Add an input ``fake`` with the metadata of ``proxy``; return its proxy in the trace.

        For a fake tensor that is added several times, the first input is used by ops.
        """
        storage = self._storages.setdefault(storage_address(fake), -1 - len(self._storages))
        own = replace(proxy, name=f":{len(self.inputs)}", storage=storage)
        self.inputs.append(own)
        if id(fake) not in self._proxies:
            self._define(fake, own)
        return own

    def other_input(self, proxy: Proxy) -> Proxy:
        """Add an input that is not a tensor; return its proxy in the trace, which calls take as argument."""
        own = replace(proxy, name=f":{len(self.inputs)}")
        self.inputs.append(own)
        return own

    @contextmanager
    def recording(self, context: Context, *, grad: bool = True, fake: bool = True) -> Iterator[None]:
        """Record the calls within the block, under the modes of ``context``.

        Torch-function modes are enabled for it even if disabled outside: `thunder.grad` differentiates while a call is
        recorded.

        Args:
            grad: False disables gradient recording, regardless of ``context``.
            fake: False if the inputs are real tensors, which is faster if they are small.
        """
        functions = self.level is Level.TORCH
        recorder = _Functions(self) if functions else _Operators(self)
        seen = EnableTorchFunction() if functions else nullcontext()
        with self.mode if fake else nullcontext(), modes_for_fakes(context, grad=grad), seen:
            torch.set_autocast_cache_enabled(False)  # modes_for_fakes restores it
            with recorder:
                yield

    def proxy(self, tensor: torch.Tensor) -> TensorProxy:
        """The current value of a tensor. Raises LoweringError for a tensor that no recorded call computed."""
        known = self._proxies.get(id(tensor))
        return self._constant(tensor) if known is None else known

    def requiring_grad(self) -> frozenset[str]:
        """Names of the values whose fake tensors require grad; ``requires_grad`` of proxies in `ops` is not set."""
        return frozenset([self._proxies[id(tensor)].name for tensor in self._alive if tensor.requires_grad])

    def computed(self) -> frozenset[str]:
        """Names of the current values of all tensors, after the last write to each."""
        return frozenset([self._proxies[id(tensor)].name for tensor in self._alive])

    def trace(self, output: Any, context: Context) -> Trace:
        """The calls that the tensors in ``output`` depend on, and those with effects, as a trace."""
        result = map_leaves(
            lambda leaf: self.proxy(leaf) if isinstance(leaf, torch.Tensor) else from_fake(leaf), output
        )
        ops = needed_ops(self.ops, {proxy.name for proxy in list_proxies((result,))})
        trace = Trace("call", tuple(self.inputs), tuple(ops), result, Stage.ACQUIRED, "tracer", context)
        return trace.with_gradients(self.requiring_grad())

    def record(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, observed: Observed) -> None:
        """Record a call after it ran. Raises LoweringError for a call with effects outside of tensors."""
        if observed.external:
            raise LoweringError(f"{func} acts outside of its tensors")
        arguments = tensors_in((args, kwargs))
        written = [leaf for leaf in arguments if storage_address(leaf) in observed.written]
        mutates = tuple(dict.fromkeys(self.proxy(leaf).name for leaf in written))
        recorded: tuple[Any, Any] = map_leaves(self._argument, (args, kwargs))
        target, recorded_args, recorded_kwargs = (
            (func, *recorded) if self.level is Level.CORE_ATEN else torch_call(func, *recorded)
        )
        symbol, recorded_args, recorded_kwargs = registry.resolve(target, recorded_args, recorded_kwargs)
        effects = Effects(mutates, observed.random, channels=tuple(observed.channels))
        output = map_leaves(self._result, result)
        self.ops.append(BoundSymbol(symbol, recorded_args, recorded_kwargs, output, effects))

    def call_function(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run and record a call of a torch function. Metadata queries run but are not recorded."""
        if registry.is_metadata(func):
            return func(*args, **kwargs)
        with self.mode.observing() as observed, kernels_for_sizes(func, args, kwargs):
            result = func(*args, **kwargs)
        arguments, results = tensors_in((args, kwargs)), tensors_in(result)
        if not self._merge:
            if not {id(leaf) for leaf in iterate_leaves(result)} <= {id(leaf) for leaf in arguments}:
                self.record(func, args, kwargs, result, observed)
            return result
        if any(storage_address(leaf) in observed.written for leaf in arguments):
            raise LoweringError(f"it writes to its arguments, with {func}")
        if any(_shown_elements(tensor) not in self._elements for tensor in results):
            self.record(func, args, kwargs, result, observed)
        for tensor in results:
            self._define(tensor, self._elements.get(_shown_elements(tensor)) or self.proxy(tensor))
        return result

    def call_operator(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run and record a call of an ATen operator."""
        if depends_on_grad_mode(func):
            raise LoweringError(f"{func} behaves differently without gradients")
        if func in NATIVE_ATTENTION:
            raise LoweringError(f"{func} calls operators that are not dispatched")
        args = with_tensors(func, args, self._recorded)
        with self.mode.observing() as observed:
            result = func(*args, **kwargs)
        if func in _SAME_VALUE and isinstance(args[0], torch.Tensor) and isinstance(result, torch.Tensor):
            self._define(result, self.proxy(args[0]))
        elif func is torch.ops.aten.bernoulli_.float and self._draw_mask(*args):
            pass
        elif (view := _view_of(func)) is not None:
            self.record(view, args, kwargs, result, Observed())
        elif observed.external or observed.channels or observed.written or tensors_in(result):
            self.record(func, args, kwargs, result, observed)
        if self._watch is not None:
            self._watch(func, args, kwargs, result)
        return result

    def _define(self, fake: torch.Tensor, proxy: TensorProxy) -> None:
        self._proxies[id(fake)] = proxy
        self._alive.append(fake)
        self._storages.setdefault(storage_address(fake), proxy.storage)
        if self.level is Level.TORCH and self._merge:
            self._elements.setdefault(_shown_elements(fake), proxy)

    def _draw_mask(self, tensor: torch.Tensor, p: float = 0.5, generator: Any = None) -> bool:
        """Record a random fill of a new tensor as a fill of a bool tensor and a cast, so that dropout saves bools.

        PyTorch draws the same numbers for each dtype, in memory order. Returns False if the call has another form.
        """
        fresh = bool(self.ops) and self.ops[-1].output == self.proxy(tensor)
        if not fresh or generator is not None or tensor.device.type != "cpu" or not tensor.is_contiguous():
            return False
        self.ops.pop()
        aten = torch.ops.aten
        shape = list(tensor.shape)
        empty = self._recorded(aten.empty.memory_format, shape, dtype=torch.bool, device=tensor.device)
        value = self._recorded(aten_to_copy, self._recorded(aten.bernoulli.p, empty, p), dtype=tensor.dtype)
        self._define(tensor, self.proxy(value))
        self._storages[storage_address(tensor)] = self.proxy(value).storage
        return True

    def _recorded(self, func: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        with self.mode.observing() as observed:
            result: torch.Tensor = func(*args, **kwargs)
        self.record(func, args, kwargs, result, observed)
        return result

    def _argument(self, leaf: Any) -> Any:
        if isinstance(leaf, torch.UntypedStorage):
            raise LoweringError("it accesses memory directly")
        return self.proxy(leaf) if isinstance(leaf, torch.Tensor) else from_fake(leaf)

    def _result(self, leaf: Any) -> Any:
        """A new proxy for a result, even if it is a written argument itself."""
        if not isinstance(leaf, torch.Tensor):
            return from_fake(leaf)
        before = self._proxies.get(id(leaf))
        new = self._new(leaf)
        if before is not None:
            new = replace(new, storage=before.storage)
        self._proxies[id(leaf)] = new
        return new

    def _new(self, tensor: torch.Tensor) -> TensorProxy:
        address = storage_address(tensor)
        storage = self._storages.setdefault(address, -1 - len(self._storages))
        self._computed += 1
        self._alive.append(tensor)
        strided = tensor.layout is torch.strided
        return TensorProxy(
            f"v{self._computed}",
            from_fake(tuple(tensor.shape)),
            from_fake(tensor.stride()) if strided else (),
            tensor.dtype,
            tensor.device,
            False,
            storage,
            from_fake(tensor.storage_offset()) if strided else 0,
            tensor.layout,
        )

    def _constant(self, tensor: torch.Tensor) -> TensorProxy:
        """A real tensor that a formula created from Python numbers."""
        fake = isinstance(tensor, FakeTensor)
        if fake or tensor.numel() > _LARGEST_CONSTANT or tensor.layout is not torch.strided:
            raise LoweringError("it uses a tensor that none of its operations computed")
        proxy = self._new(tensor)
        self._proxies[id(tensor)] = proxy
        with disable_current_modes():
            values = tensor.tolist()
        kwargs = {"dtype": tensor.dtype, "device": tensor.device}
        self.ops.append(BoundSymbol(registry.symbol_named("torch.tensor"), (values,), kwargs, proxy))
        return proxy


class _Functions(RecordingMode):
    """Passes the called torch functions to a tracer."""

    def __init__(self, tracer: Tracer) -> None:
        super().__init__()
        self.tracer = tracer

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        with DisableTorchFunction():  # modes below, such as that of a program that is being acquired
            return self.tracer.call_function(func, args, kwargs or {})


class _Operators(TorchDispatchMode):
    """Passes the dispatched ATen operators to a tracer; at CORE_ATEN, those of their decompositions."""

    def __init__(self, tracer: Tracer) -> None:
        super().__init__()
        self.tracer = tracer

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if self.tracer.level is Level.CORE_ATEN:
            with self:
                result = decomposition_of(func)(*args, **kwargs)
            if result is not NotImplemented:
                return result
        return self.tracer.call_operator(func, args, kwargs)


@functools.cache
def _view_of(operator: Any) -> Any:
    """For an operator that makes another view of its argument, such as ``as_strided_``, the one that returns the view.

    None for others. PyTorch's composite functions call some on new tensors, such as ``adaptive_avg_pool2d``.
    """
    if not isinstance(operator, OpOverload) or torch.Tag.inplace_view not in operator.tags:
        return None
    schema = schema_of(operator)
    arguments = [(argument.name, str(argument.type)) for argument in schema.arguments]
    packet = getattr(torch.ops.aten, schema.name.removeprefix("aten::").removesuffix("_"), None)
    for name in () if packet is None else packet.overloads():
        view = getattr(packet, name)
        returned = schema_of(view).returns[0].alias_info
        alike = [(argument.name, str(argument.type)) for argument in schema_of(view).arguments] == arguments
        if alike and returned is not None and not returned.is_write:
            return view
    return None


def _shown_elements(tensor: torch.Tensor) -> Any:
    """The storage, dtype and geometry of a tensor: tensors with equal ones have equal values if none is written."""
    place = from_fake((*tensor.shape, *tensor.stride(), tensor.storage_offset()))
    return storage_address(tensor), tensor.dtype, tensor.ndim, place, lazy_bits(tensor)
