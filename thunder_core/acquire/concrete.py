"""Compute, while a program is recorded, a value that depends on none of its inputs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch

from thunder_core.acquire.ranges import written_storages
from thunder_core.acquire.variable import Variable
from thunder_core.errors import DataDependentError
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.proxy import PROXY_TYPES, TensorProxy
from thunder_core.ir.symbol import Symbol
from thunder_core.ir.tree import iterate_leaves, map_leaves
from thunder_core.pytorch_internals import disable_current_modes

if TYPE_CHECKING:
    from thunder_core.acquire.recorder import Recorder


def evaluate(recorder: Recorder, symbol: Symbol, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run one call on real tensors, after the recorded lines that its arguments depend on.

    All tensor arguments must be constants. Raises `DataDependentError` on devices without data.
    """
    tensors = [leaf for leaf in iterate_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    wanted = [recorder.variable(tensor) for tensor in tensors]
    with disable_current_modes(), torch.inference_mode(False), torch.no_grad():
        values = _run_slice(recorder, {variable.proxy.storage for variable in wanted})

        def real(leaf: Any) -> Any:
            return values[recorder.variable(leaf).proxy.name] if isinstance(leaf, torch.Tensor) else leaf

        state = torch.random.get_rng_state()
        result = symbol.target(*map_leaves(real, args), **map_leaves(real, kwargs))
        if not torch.equal(state, torch.random.get_rng_state()):
            torch.random.set_rng_state(state)
            raise DataDependentError(
                f"the shape of the random result of {symbol.name} depends on a tensor's values",
                advice=("pass sizes as Python numbers",),
            )
        return result


def number(recorder: Recorder, tensor: torch.Tensor) -> Any:
    """The value of a constant tensor with one element as a Python number."""
    storage = recorder.variable(tensor).proxy.storage
    name = recorder.variable(tensor).proxy.name
    with disable_current_modes(), torch.inference_mode(False), torch.no_grad():
        return _run_slice(recorder, {storage})[name].item()


def is_drawn(recorder: Recorder, variables: Iterable[Variable]) -> bool:
    """Whether random draws of the program decide values, and none of its inputs does."""
    storages = {variable.proxy.storage for variable in variables}
    lines = _slice(recorder.lines, storages)
    inputs = {proxy.storage for proxy in recorder.inputs.proxies if isinstance(proxy, TensorProxy)}
    made = {proxy.storage for line in lines for proxy in line.outputs() if isinstance(proxy, TensorProxy)}
    return any(line.effects.random for line in lines) and storages <= made - inputs


def _run_slice(recorder: Recorder, storages: set[int]) -> dict[str, Any]:
    """Values by name of everything that decides the contents of ``storages``."""
    lines = _slice(recorder.lines, storages)
    values: dict[str, Any] = {}
    for proxy, tensor in zip(recorder.inputs.proxies, recorder.inputs.objects, strict=True):
        if isinstance(proxy, TensorProxy) and proxy.storage in storages:
            values[proxy.name] = tensor.detach().clone()
    for line in lines:
        _check_device(line)
        result = line.symbol.target(
            *map_leaves(lambda leaf: _lookup(leaf, values), line.args),
            **map_leaves(lambda leaf: _lookup(leaf, values), line.kwargs),
        )
        for proxy, value in zip(iterate_leaves(line.output), iterate_leaves(result), strict=True):
            if isinstance(proxy, PROXY_TYPES):
                values[proxy.name] = value
    return values


def _lookup(leaf: Any, values: dict[str, Any]) -> Any:
    return values[leaf.name] if isinstance(leaf, PROXY_TYPES) else leaf


def _slice(lines: list[BoundSymbol], storages: set[int]) -> list[BoundSymbol]:
    """The lines that define or write any of ``storages``, which grows by what those lines read."""
    kept: list[BoundSymbol] = []
    for line in reversed(lines):
        defined = {proxy.storage for proxy in line.outputs() if isinstance(proxy, TensorProxy)}
        if not storages.isdisjoint(written_storages(line) | defined):
            kept.append(line)
            storages.update(proxy.storage for proxy in line.inputs() if isinstance(proxy, TensorProxy))
    kept.reverse()
    return kept


def _check_device(line: BoundSymbol) -> None:
    for proxy in line.outputs():
        if isinstance(proxy, TensorProxy) and proxy.device.type == "meta":
            raise DataDependentError(
                f"the value of {proxy.name} is needed, but it lives on the meta device and has no data",
                location=line.location,
                advice=("create the model on a real device", "avoid reading values into Python"),
            )
