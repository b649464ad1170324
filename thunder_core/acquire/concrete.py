"""Values that depend on none of the program's inputs: computed while it is recorded."""

from __future__ import annotations

from typing import Any

import torch

from thunder_core.acquire.prefix import slice_of
from thunder_core.acquire.recorder import Recorder
from thunder_core.acquire.value_request import Declined, Resolved, ValueRequest
from thunder_core.errors import DataDependentError
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.proxy import PROXY_TYPES, TensorProxy
from thunder_core.ir.symbol import Symbol
from thunder_core.ir.tree import iterate_leaves, map_leaves
from thunder_core.pytorch_internals import disable_current_modes


class Constant:
    """Computes a call whose arguments are constants; and gives functions the numbers that constant arguments are."""

    def resolve(self, recorder: Recorder, request: ValueRequest) -> Resolved | Declined:
        """As `thunder_core.acquire.recorder.Resolver`."""
        symbol, args, kwargs, call = request.symbol, request.args, request.kwargs, request.call
        if not request.reads:
            numbers = map_leaves(lambda leaf: _as_number(recorder, leaf), (args, kwargs))
            pairs = zip(iterate_leaves(numbers), iterate_leaves((args, kwargs)), strict=True)
            if any(new is not old for new, old in pairs):
                try:
                    return Resolved(recorder.call_symbol(symbol, *numbers))
                except TypeError:  # it takes a tensor there
                    request.cause.__traceback__ = None
        if not call.foldable:
            return Declined("it takes an object that has no literal")
        varying = [variable.proxy.name for variable in call.variables if not recorder.tensors.is_constant(variable)]
        if varying:
            return Declined(f"{', '.join(dict.fromkeys(varying))} may be another in each run")
        value = evaluate(recorder, symbol, args, kwargs)
        return Resolved(map_leaves(lambda leaf: _copied(recorder, leaf), value))


def evaluate(recorder: Recorder, symbol: Symbol, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run one call on real tensors, after the recorded lines that its arguments depend on.

    All tensor arguments must be constants. Raises `DataDependentError` on devices without data.
    """
    tensors = [leaf for leaf in iterate_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    wanted = [recorder.tensors.variable(tensor) for tensor in tensors]
    with disable_current_modes(), torch.inference_mode(False), torch.no_grad():
        values = _run_slice(recorder, {variable.proxy.storage for variable in wanted})

        def real(leaf: Any) -> Any:
            return values[recorder.tensors.proxy_of(leaf).name] if isinstance(leaf, torch.Tensor) else leaf

        state = torch.random.get_rng_state()
        result = symbol.target(*map_leaves(real, args), **map_leaves(real, kwargs))
        if not torch.equal(state, torch.random.get_rng_state()):
            torch.random.set_rng_state(state)
            raise DataDependentError(
                f"the shape of the random result of {symbol.name} depends on a tensor's values",
                advice=("pass sizes as Python numbers",),
            )
        return result


def _copied(recorder: Recorder, leaf: Any) -> Any:
    """What the program gets for a value: a tensor is a copy, made in each run."""
    if not isinstance(leaf, torch.Tensor):
        return leaf
    return recorder.call(torch.clone, (recorder.inputs.constant(leaf),), {})


def _as_number(recorder: Recorder, leaf: Any) -> Any:
    """A constant integer tensor, used as a size or an index, as the number that it is."""
    if isinstance(leaf, torch.Tensor):
        variable = recorder.tensors.variable(leaf)
        integer = not variable.proxy.shape and not variable.proxy.dtype.is_floating_point
        if integer and recorder.tensors.is_constant(variable):
            return _number(recorder, leaf)
    return leaf


def _number(recorder: Recorder, tensor: torch.Tensor) -> Any:
    proxy = recorder.tensors.proxy_of(tensor)
    with disable_current_modes(), torch.inference_mode(False), torch.no_grad():
        return _run_slice(recorder, {proxy.storage})[proxy.name].item()


def _run_slice(recorder: Recorder, storages: set[int]) -> dict[str, Any]:
    """Values by name of everything that decides the contents of ``storages``."""
    lines = slice_of(recorder.trace.lines, storages)
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


def _check_device(line: BoundSymbol) -> None:
    for proxy in line.outputs():
        if isinstance(proxy, TensorProxy) and proxy.device.type == "meta":
            raise DataDependentError(
                f"the value of {proxy.name} is needed, but it lives on the meta device and has no data",
                location=line.location,
                advice=("create the model on a real device", "avoid reading values into Python"),
            )
