"""Reads and writes of the states of random generators, recorded in order among the random calls."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final

import torch

from thunder_core.errors import UnsupportedError
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.effects import Effects
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.symbol import Symbol
from thunder_core.ir.trace import with_bodies
from thunder_core.pytorch_internals import DisableTorchFunction, disable_current_modes
from thunder_core.symbols.generators import GET_RNG_STATE, MANUAL_SEED, STATEFUL
from thunder_core.tracing.frames import user_location
from thunder_frontend.record.recorder import Recorder
from thunder_frontend.record.traced_tensor import Variable

_EFFECTS: Final = Effects(random=True, external=True)


def write(symbol: Symbol, recorder: Recorder, original: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """The interception of a call, ``symbol``, that seeds generators of PyTorch, or sets their states."""
    args = inspect.signature(original).bind(*args, **kwargs).args
    if symbol is MANUAL_SEED:
        args = (int(args[0]),)
    arguments = recorder.tensors.proxies(args)
    recorder.trace.ops.append(BoundSymbol(symbol, arguments, {}, None, _EFFECTS, None, user_location()))
    return torch.default_generator if symbol is MANUAL_SEED else None


def read(
    symbol: Symbol, recorder: Recorder, original: Callable[..., torch.Tensor], /, *args: Any, **kwargs: Any
) -> Any:
    """The interception of a call, ``symbol``, that reads a generator's state."""
    args = inspect.signature(original).bind(*args, **kwargs).args
    with DisableTorchFunction(), disable_current_modes():
        state = original(*args)
    proxy = TensorProxy(
        recorder.trace.names.intermediate(),
        tuple(state.shape),
        state.stride(),
        state.dtype,
        state.device,
        False,
        recorder.trace.storages.new(),
    )
    recorder.trace.ops.append(BoundSymbol(symbol, args, {}, proxy, _EFFECTS, None, user_location()))
    return recorder.tensors.traced(Variable(proxy, location=user_location()))


def initial_seed(recorder: Recorder, original: Callable[[], int]) -> int:
    """The interception of `torch.initial_seed`: the last seed of the CPU generator, of the program or before it.

    Raises:
        UnsupportedError: the program sets a state that decides the seed.
    """
    for op in reversed(recorder.trace.all_ops()):
        if op.symbol is MANUAL_SEED:
            return torch.Generator().manual_seed(op.args[0]).initial_seed()
        if _sets_state(op):
            raise UnsupportedError(
                "torch.initial_seed after a state was set: the seed is part of the state, which is not known while "
                "the program is recorded",
                location=user_location(),
                advice=("call torch.initial_seed before", "call it outside of the compiled function"),
            )
    return original()


def _sets_state(op: BoundSymbol) -> bool:
    return any(item.symbol in STATEFUL and item.symbol is not GET_RNG_STATE for item in with_bodies([op]))
