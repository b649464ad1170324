"""Create fake tensors with given metadata, storage and autograd history, and observe the effects of calls on them.

One `ObservingFakeMode` is active while calls are recorded. Inside of `ObservingFakeMode.observing` it behaves like
`FakeTensorMode` and records the effects of each ATen operator (written storages, random numbers). Outside of it, an
operator that reaches the mode bypassed the torch-function mode (functorch's batching rules call ATen directly, C++
extensions may) and is passed to the recorder of the program.
"""

from __future__ import annotations

import importlib
import logging
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final

import torch

from thunder_core.errors import InternalError
from thunder_core.ir.context import current_context
from thunder_core.ir.geometry import end
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.size import on_fakes
from thunder_core.ir.tree import iterate_leaves, map_leaves
from thunder_core.pytorch_errata import (
    gives_new_memory,
    has_wide_statistics,
    keep_device_guard,
    unannotated_writes,
    with_kernel_strides,
)
from thunder_core.pytorch_internals import (
    FakeTensor,
    FakeTensorMode,
    OpOverload,
    is_any_autocast_enabled,
    len_torch_dispatch_stack,
    no_dispatch,
    pop_torch_dispatch_stack,
    schema_of,
    storage_identity,
)
from thunder_core.symbols.channels import channels_of
from thunder_core.symbols.schema import (
    MutatedArgument,
    schema_effects,
    schema_is_external,
    schema_is_random,
    written_values,
)
from thunder_core.tracing.frames import user_location
from thunder_core.tracing.native_attention import NATIVE_ATTENTION
from thunder_core.tracing.sizes import active_environment, kernels_for_sizes

_NEW_STRIDED: Final = torch.ops.aten.new_empty_strided.default


class _Derived(torch.autograd.Function):
    """Makes a tensor that is not a leaf of the autograd graph."""

    @staticmethod
    def forward(ctx: Any, leaf: torch.Tensor) -> torch.Tensor:
        return leaf.detach()  # on the same memory, and no view to autograd

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0]


def computed(leaf: torch.Tensor) -> torch.Tensor:
    """A tensor on the storage of ``leaf``, which requires grad, with a ``grad_fn`` that leads to ``leaf``."""
    with torch.enable_grad():
        return _Derived.apply(leaf)  # type: ignore[no-any-return]


class _Results(torch.autograd.Function):
    """Gives fake tensors a ``grad_fn`` with edges to others; the gradients of these are like the tensors themselves."""

    @staticmethod
    def forward(
        ctx: Any, results: Sequence[torch.Tensor], requires_grad: Sequence[bool], *arguments: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        ctx.save_for_backward(*arguments)
        given = tuple([result.detach() for result in results])
        pairs = zip(given, requires_grad, strict=True)
        ctx.mark_non_differentiable(*[result for result, recorded in pairs if not recorded])
        return given

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return None, None, *map(torch.zeros_like, ctx.saved_tensors)


def computed_from(results: Any, requires_grad: Sequence[bool], arguments: Sequence[torch.Tensor]) -> Any:
    """Nested fake tensors with a ``grad_fn`` that leads to ``arguments``.

    Args:
        requires_grad: whether each result requires grad.
    """
    leaves = list(iterate_leaves(results))
    with torch.inference_mode(False), torch.enable_grad():
        given = iter(_Results.apply(leaves, tuple(requires_grad), *arguments))
    return map_leaves(lambda leaf: next(given), results)


def make_fake(mode: FakeTensorMode, proxy: TensorProxy, *, storage_size: int | None = None) -> FakeTensor:
    """A new fake tensor in a new storage with the metadata of ``proxy``.

    ``storage_size`` is the number of elements of the storage, if other tensors cover more of it than ``proxy``.
    """
    with no_dispatch(), torch.inference_mode(False), torch.no_grad():
        if storage_size is None and proxy.offset == 0:
            meta = torch.empty_strided(*on_fakes((proxy.shape, proxy.stride)), dtype=proxy.dtype, device="meta")
        else:
            size = storage_size if storage_size is not None else end(proxy)
            flat = torch.empty_strided((on_fakes(size),), (1,), dtype=proxy.dtype, device="meta")
            meta = flat.as_strided(*on_fakes(proxy.geometry))
        fake: FakeTensor = FakeTensor(mode, meta, proxy.device)
        if proxy.requires_grad:
            fake.requires_grad_()
    return fake


def make_alias(base: FakeTensor, proxy: TensorProxy, *, leaf: bool = False, derived: bool = False) -> FakeTensor:
    """A fake with the metadata of ``proxy`` that shares the storage of ``base``; a view of it by default.

    Args:
        leaf: a leaf of the autograd graph instead.
        derived: a computed tensor instead, as the result of an `autograd.Function` that returns a view of an argument
            is, if the argument does not require grad and the result does.
    """
    derived = derived or (proxy.requires_grad and not base.requires_grad and not leaf)
    apart = leaf or derived  # autograd treats writes to views specially
    # a view that does not require grad, though its base does, was created while gradients were disabled
    enabled = (proxy.requires_grad or not base.requires_grad) and not apart
    with torch.inference_mode(False), torch.set_grad_enabled(enabled):
        source = _with_dtype(base, proxy.dtype)
        fake: FakeTensor = source.as_strided(*on_fakes(proxy.geometry))  # type: ignore[assignment]
        if apart:
            fake = fake.detach()  # type: ignore[assignment]
            fake.requires_grad_(proxy.requires_grad)
        if not derived or not proxy.requires_grad:
            return fake
        return computed(fake)  # type: ignore[return-value]


def _with_dtype(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A view with a dtype; between real and complex ones as `torch.view_as_real` is, which keeps the history."""
    if tensor.dtype == dtype:
        return tensor
    if tensor.is_complex() and dtype == tensor.dtype.to_real():
        return torch.view_as_real(tensor.conj() if tensor.is_conj() else tensor)
    if dtype.is_complex and tensor.dtype == dtype.to_real() and tensor.dim() and tensor.shape[-1] == 2:
        return torch.view_as_complex(tensor)
    return tensor.view(dtype)


def make_derived(mode: FakeTensorMode, proxy: TensorProxy, *, storage_size: int | None = None) -> FakeTensor:
    """Like `make_fake`, but a proxy that requires grad becomes a tensor with a ``grad_fn`` instead of a leaf."""
    if not proxy.requires_grad:
        return make_fake(mode, proxy, storage_size=storage_size)
    with torch.inference_mode(False), torch.enable_grad():
        if storage_size is None and proxy.offset == 0:
            return computed(make_fake(mode, proxy))  # type: ignore[return-value]
        size = storage_size if storage_size is not None else end(proxy)
        whole = computed(make_fake(mode, replace(proxy, shape=(size,), stride=(1,), offset=0)))
        return whole.as_strided(*on_fakes(proxy.geometry))  # type: ignore[return-value]


def make_sharing_fakes(mode: FakeTensorMode, proxies: Iterable[TensorProxy]) -> dict[str, torch.Tensor]:
    """Fake tensors for the proxies, by name, that share storages like these and do not require grad."""
    groups: dict[int, list[TensorProxy]] = {}
    for proxy in proxies:
        groups.setdefault(proxy.storage, []).append(proxy)
    fakes: dict[str, torch.Tensor] = {}
    with mode, torch.inference_mode(False), torch.no_grad():
        for group in groups.values():
            if len(group) == 1:
                fakes[group[0].name] = make_fake(mode, replace(group[0], requires_grad=False))
            else:
                whole = _whole(group)
                for proxy in group:
                    elements = whole if whole.dtype == proxy.dtype else whole.view(proxy.dtype)
                    fakes[proxy.name] = elements.as_strided(*on_fakes(proxy.geometry))
    return fakes


def _whole(proxies: Sequence[TensorProxy]) -> torch.Tensor:
    """A tensor that covers the common storage of the proxies, with their dtype, or uint8 if they differ."""
    dtypes = {proxy.dtype for proxy in proxies}
    size: Any = 0
    for proxy in proxies:
        size = torch.sym_max(size, on_fakes(end(proxy)))
    if len(dtypes) == 1:
        return torch.empty(size, dtype=proxies[0].dtype, device=proxies[0].device)
    return torch.empty(size * 16, dtype=torch.uint8, device=proxies[0].device)  # a multiple of every element size


class _Observing(threading.local):
    depth = 0


_observing = _Observing()


def _unexpected_failure(record: logging.LogRecord) -> bool:
    """Filter for log records: drops PyTorch's logs of failed meta kernels, which the caller gets as exceptions."""
    return not _observing.depth or not str(record.msg).startswith("failed while attempting to run meta")


logging.getLogger("torch._subclasses.fake_tensor").addFilter(_unexpected_failure)


@dataclass(slots=True)
class Observed:
    """The effects of the operators of one call. Storages are identified by address (the recorder keeps them alive).

    Attributes:
        written: the written storages.
        random: whether random numbers were drawn.
        external: whether there was an effect visible outside of tensors.
        channels: the channels of communications, in the order of first use.
        autocast: the autocast modes of the call by device type; operators run below autocast.
    """

    written: set[int] = field(default_factory=set)
    random: bool = False
    external: bool = False
    channels: dict[str, None] = field(default_factory=dict)
    autocast: tuple[tuple[str, torch.dtype], ...] = ()


def storage_address(tensor: torch.Tensor) -> int:
    """Identity of a tensor's storage while the tensor is alive; a sparse tensor counts as a storage by itself."""
    if tensor.layout is not torch.strided:
        return -id(tensor)
    address: int = storage_identity(tensor.untyped_storage())
    return address


def _apart_from(arguments: Any, result: Any, infer: Callable[..., Any]) -> Any:
    """``result``, with those of its tensors that share memory with ``arguments`` in new memory."""
    given = {storage_address(leaf) for leaf in iterate_leaves(arguments) if isinstance(leaf, torch.Tensor)}

    def apart(leaf: Any) -> Any:
        shares = isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided and storage_address(leaf) in given
        return infer(_NEW_STRIDED, leaf, leaf.shape, leaf.stride()) if shares else leaf

    return map_leaves(apart, result)


def lazy_bits(tensor: torch.Tensor | None) -> tuple[bool, bool]:
    """Whether PyTorch will conjugate and negate the elements of a tensor when they are read; False for None.

    ``resolve_conj()`` returns a tensor without such a bit itself.
    """
    return (False, False) if tensor is None else (tensor.is_conj(), tensor.is_neg())


@cache
def _schema_effects(operator: OpOverload) -> tuple[bool, bool, tuple[MutatedArgument, ...], str]:
    """By the schema: whether a call is random, whether it is external, the written arguments; and the schema's name."""
    random, external = bool(schema_is_random(operator)), schema_is_external(operator)
    return random, external, schema_effects(operator) or (), schema_of(operator).name


def _import_in_thread(module: str) -> None:
    """Import a module of PyTorch, as the constructor of `FakeTensorMode` does.

    ``torch.fx.wrap``, called by some of its imports, keeps its frame, and so all of its callers with their variables:
    the arguments of the first call that is compiled. The callers in a thread have none.
    """
    if module not in sys.modules:
        thread = threading.Thread(target=importlib.import_module, args=(module,))
        thread.start()
        thread.join()


class ObservingFakeMode(FakeTensorMode):
    """`FakeTensorMode` that observes effects.

    It calls ``on_escape`` for operators outside of `observing`, and ``on_outside_write`` with a tensor that is not fake
    before an operator writes to it.
    """

    def __init__(
        self,
        on_escape: Callable[..., Any] | None = None,
        on_outside_write: Callable[[torch.Tensor], None] | None = None,
    ) -> None:
        _import_in_thread("torch._dynamo")
        keep_device_guard()
        super().__init__(allow_non_fake_inputs=True, shape_env=active_environment(), static_shapes=True)
        # Equal calls are inferred once, so most calls miss PyTorch's cache, and its entries take longer than the calls:
        # a first call in a process took 8 to 18 % longer with it.
        self.cache_enabled = False
        self.on_escape = on_escape
        self.on_outside_write = on_outside_write
        self.observed: Observed | None = None

    def __torch_dispatch__(  # type: ignore[override]  # dispatch passes tuples and dictionaries
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        modes = len_torch_dispatch_stack()
        try:
            return self._dispatch(func, types, args, kwargs or {})
        except BaseException:
            # If that of a signal handler was raised where a mode is entered or left, PyTorch, which sets this mode
            # again now, finds it set, and ends the process.
            while len_torch_dispatch_stack() > modes:
                pop_torch_dispatch_stack(None)
            raise

    def _dispatch(self, func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        observed = self.observed
        if observed is None and self.on_escape is not None:
            return self.on_escape(func, types, args, kwargs)
        if observed is not None and isinstance(func, OpOverload):
            try:
                self._observe(observed, func, args, kwargs)
            except Exception as error:
                raise InternalError(
                    f"the effects of {func} cannot be observed: {type(error).__name__}: {error}",
                    location=user_location(),
                ) from error
        if func in NATIVE_ATTENTION:
            return NATIVE_ATTENTION[func](observed.autocast if observed is not None else (), *args, **kwargs)
        if kwargs.get("generator") is not None:  # calls on fakes do not use it, and some meta kernels reject it
            kwargs = {**kwargs, "generator": None}

        def infer(operator: Any, *args: Any, **kwargs: Any) -> Any:
            return super(ObservingFakeMode, self).__torch_dispatch__(operator, (), args, kwargs)

        with kernels_for_sizes():
            result: Any = super().__torch_dispatch__(func, types, args, kwargs)
            result = with_kernel_strides(func, args, result, infer)
            if gives_new_memory(func):
                result = _apart_from((args, kwargs), result, infer)
        if has_wide_statistics(func, args):
            return (result[0], *[statistic.float() for statistic in result[1:]])
        return result

    def _observe(self, observed: Observed, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        channels = channels_of(func, args, kwargs)
        random, external, written, name = _schema_effects(func)
        if channels:
            observed.channels.update(dict.fromkeys(channels))
        else:
            observed.random |= random
            observed.external |= external
        for value in (*written_values(written, args, kwargs), *unannotated_writes(name, args)):
            for leaf in iterate_leaves(value):
                if isinstance(leaf, torch.Tensor):
                    observed.written.add(storage_address(leaf))
                    if self.on_outside_write is not None and not isinstance(leaf, FakeTensor):
                        self.on_outside_write(leaf)

    @contextmanager
    def observing(self) -> Iterator[Observed]:
        """Run calls on fakes and collect their effects. Reentrant."""
        autocast = current_context().autocast if is_any_autocast_enabled() else ()
        outer, self.observed = self.observed, Observed(autocast=autocast)
        _observing.depth += 1
        try:
            yield self.observed
        finally:
            self.observed = outer
            _observing.depth -= 1
