"""What the logs of calls on fake tensors have in common: their lines, and which tensor is which value."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import torch

from thunder_core.acquire.fake import AcquisitionFakeMode, Observed, storage_address
from thunder_core.errors import LoweringError
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.effects import PURE, Effects
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.tree import iterate_leaves, map_leaves
from thunder_core.pytorch_internals import FakeTensor, disable_current_modes
from thunder_core.symbols.operators import torch_call
from thunder_core.symbols.registry import registry

_LARGEST_CONSTANT: Final = 64


class LineLog:
    """Calls on known fake tensors as bound symbols.

    Values that it names are called ``v0, v1, ...``, their storages count down from -1; both are meant to be renamed.
    Calls that write memory are logged with that effect: a log is a trace of stage ACQUIRED.

    Attributes:
        lines: the calls so far.
    """

    def __init__(self, mode: AcquisitionFakeMode) -> None:
        self.mode = mode
        self.lines: list[BoundSymbol] = []
        self._proxies: dict[int, TensorProxy] = {}
        self._alive: list[torch.Tensor] = []  # identities are those of living objects
        self._storages: dict[int, int] = {}
        self._made = 0

    def define(self, fake: torch.Tensor, proxy: TensorProxy) -> None:
        """Know ``fake`` as ``proxy``."""
        self._proxies[id(fake)] = proxy
        self._alive.append(fake)
        self._storages.setdefault(storage_address(fake), proxy.storage)

    def proxy(self, tensor: torch.Tensor) -> TensorProxy:
        """The value that a tensor is now. Raises LoweringError for a tensor that no call made."""
        known = self._proxies.get(id(tensor))
        return self._constant(tensor) if known is None else known

    def requiring_grad(self) -> frozenset[str]:
        """Names of the values whose fake tensors require grad. Proxies in the lines never say so."""
        return frozenset([self._proxies[id(tensor)].name for tensor in self._alive if tensor.requires_grad])

    def record(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, observed: Observed) -> None:
        """Add the line of a call that was made."""
        written = [
            leaf
            for leaf in iterate_leaves((args, kwargs))
            if isinstance(leaf, torch.Tensor) and storage_address(leaf) in observed.written
        ]
        mutates = tuple(dict.fromkeys(self.proxy(leaf).name for leaf in written))
        recorded: tuple[Any, Any] = map_leaves(self._argument, (args, kwargs))
        target, recorded_args, recorded_kwargs = torch_call(func, *recorded)
        symbol, recorded_args, recorded_kwargs = registry.resolve(target, recorded_args, recorded_kwargs)
        output = map_leaves(self._result, result)
        if observed.external:
            raise LoweringError(f"{func} acts outside of its tensors")
        effects = Effects(mutates, observed.random) if mutates or observed.random else PURE
        self.lines.append(BoundSymbol(symbol, recorded_args, recorded_kwargs, output, effects))

    def _argument(self, leaf: Any) -> Any:
        if isinstance(leaf, torch.UntypedStorage):
            raise LoweringError("it works on memory itself")
        return self.proxy(leaf) if isinstance(leaf, torch.Tensor) else leaf

    def _result(self, leaf: Any) -> Any:
        """A new name for a result, also for one that is a written argument itself."""
        if not isinstance(leaf, torch.Tensor):
            return leaf
        before = self._proxies.get(id(leaf))
        made = self._new(leaf)
        if before is not None:
            made = replace(made, storage=before.storage)
        self._proxies[id(leaf)] = made
        return made

    def _new(self, tensor: torch.Tensor) -> TensorProxy:
        address = storage_address(tensor)
        storage = self._storages.setdefault(address, -1 - len(self._storages))
        self._made += 1
        self._alive.append(tensor)
        strided = tensor.layout is torch.strided
        return TensorProxy(
            f"v{self._made}",
            tuple(tensor.shape),
            tensor.stride() if strided else (),
            tensor.dtype,
            tensor.device,
            False,
            storage,
            tensor.storage_offset() if strided else 0,
            tensor.layout,
        )

    def _constant(self, tensor: torch.Tensor) -> TensorProxy:
        """A real tensor that a formula made from Python numbers."""
        fake = isinstance(tensor, FakeTensor)
        if fake or tensor.numel() > _LARGEST_CONSTANT or tensor.layout is not torch.strided:
            raise LoweringError("it uses a tensor that no operation of it made")
        proxy = self._new(tensor)
        self._proxies[id(tensor)] = proxy
        with disable_current_modes():
            values = tensor.tolist()
        kwargs = {"dtype": tensor.dtype, "device": tensor.device}
        self.lines.append(BoundSymbol(registry.symbol_named("torch.tensor"), (values,), kwargs, proxy))
        return proxy
