"""The mode of fake tensors: the metadata engine of tracing.

One `ObservingFakeMode` is active while calls are recorded. Inside of `ObservingFakeMode.observing` it behaves like
`FakeTensorMode` and notes what each ATen operator does (which storages it writes, whether it draws random numbers).
Outside of it, an operator that reaches the mode escaped the torch-function mode (functorch's batching rules call ATen
directly, C++ extensions may) and is handed to the recorder of the program.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from thunder_core.ir.context import current_context
from thunder_core.ir.tree import iterate_leaves
from thunder_core.pytorch_errata import has_wide_statistics, unannotated_writes
from thunder_core.pytorch_internals import (
    FakeTensorMode,
    OpOverload,
    is_any_autocast_enabled,
    schema_of,
    storage_identity,
)
from thunder_core.symbols.communication import channels_of
from thunder_core.symbols.schema import schema_effects, schema_is_external, schema_is_random, written_values
from thunder_core.tracing.native_attention import NATIVE_ATTENTION
from thunder_core.tracing.sizes import active_environment, kernels_for_sizes


class _Observing(threading.local):
    depth = 0


_observing = _Observing()


def _unexpected_failure(record: logging.LogRecord) -> bool:
    """Failures of meta kernels reach the caller as exceptions; PyTorch also logs them with their whole traceback."""
    return not _observing.depth or not str(record.msg).startswith("failed while attempting to run meta")


logging.getLogger("torch._subclasses.fake_tensor").addFilter(_unexpected_failure)


@dataclass(slots=True)
class Observed:
    """What the operations of one call did. Storages are identified by their address (kept alive by the recorder).

    Attributes:
        written: storages that they wrote.
        random: they drew random numbers.
        external: they did something that is visible outside of tensors.
        channels: that they communicated in, in the order of their first use.
        autocast: what the call is made under, by device type; operators do not see it.
    """

    written: set[int] = field(default_factory=set)
    random: bool = False
    external: bool = False
    channels: dict[str, None] = field(default_factory=dict)
    autocast: tuple[tuple[str, torch.dtype], ...] = ()


def storage_address(tensor: torch.Tensor) -> int:
    """Identity of a tensor's memory while the tensor is alive; a sparse tensor is a memory of its own."""
    if tensor.layout is not torch.strided:
        return -id(tensor)
    address: int = storage_identity(tensor.untyped_storage())
    return address


class ObservingFakeMode(FakeTensorMode):
    """`FakeTensorMode` that observes effects, and hands escaped operations to ``on_escape``."""

    def __init__(self, on_escape: Callable[..., Any] | None = None) -> None:
        super().__init__(allow_non_fake_inputs=True, shape_env=active_environment(), static_shapes=True)
        if self.shape_env is not None:
            self.cache_enabled = (
                False  # to make entries of symbols costs more than they save: equal calls are made once
            )
        self.on_escape = on_escape
        self.observed: Observed | None = None

    def __torch_dispatch__(  # type: ignore[override]  # dispatch passes tuples and dictionaries
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        observed = self.observed
        if observed is None and self.on_escape is not None:
            return self.on_escape(func, types, args, kwargs)
        if observed is not None and isinstance(func, OpOverload):
            self._observe(observed, func, args, kwargs)
        if func in NATIVE_ATTENTION:
            return NATIVE_ATTENTION[func](observed.autocast if observed is not None else (), *args, **kwargs)
        if kwargs.get("generator") is not None:  # it draws nothing from fakes, and some meta kernels refuse it
            kwargs = {**kwargs, "generator": None}
        with kernels_for_sizes():
            result: Any = super().__torch_dispatch__(func, types, args, kwargs)
        if has_wide_statistics(func, args):
            return (result[0], *[statistic.float() for statistic in result[1:]])
        return result

    def _observe(self, observed: Observed, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        channels = channels_of(func, args, kwargs)
        if channels:
            observed.channels.update(dict.fromkeys(channels))
        else:
            observed.random |= bool(schema_is_random(func))
            observed.external |= schema_is_external(func)
        for value in written_values(schema_effects(func) or (), args, kwargs):
            _note_written(observed, value)
        for value in unannotated_writes(schema_of(func).name, args):
            _note_written(observed, value)

    @contextmanager
    def observing(self) -> Iterator[Observed]:
        """Run calls on fakes and collect what they do. Reentrant."""
        autocast = current_context().autocast if is_any_autocast_enabled() else ()
        outer, self.observed = self.observed, Observed(autocast=autocast)
        _observing.depth += 1
        try:
            yield self.observed
        finally:
            self.observed = outer
            _observing.depth -= 1


def _note_written(observed: Observed, value: Any) -> None:
    for leaf in iterate_leaves(value):
        if isinstance(leaf, torch.Tensor):
            observed.written.add(storage_address(leaf))
