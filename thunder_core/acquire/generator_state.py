"""Reads and writes of the generators' states, recorded in their places among the random calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import torch

from thunder_core.acquire.recorder import Recorder
from thunder_core.acquire.user_frames import user_location
from thunder_core.acquire.variable import Variable
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.effects import Effects
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.symbol import Symbol, Tag
from thunder_core.pytorch_internals import DisableTorchFunction, disable_current_modes

# Symbols that draw no numbers themselves but move the state of the generators.
_STATEFUL: Final = frozenset({Tag.RANDOM})
MANUAL_SEED = Symbol("torch.manual_seed", torch.manual_seed, tags=_STATEFUL)
GET_RNG_STATE = Symbol("torch.get_rng_state", torch.get_rng_state, tags=_STATEFUL)
SET_RNG_STATE = Symbol("torch.set_rng_state", torch.set_rng_state, tags=_STATEFUL)


def manual_seed(recorder: Recorder, seed: int) -> None:
    """Record a seeding of PyTorch's generators, in its place among the random calls."""
    recorder.lines.append(
        BoundSymbol(MANUAL_SEED, (seed,), {}, None, Effects(random=True, external=True), None, user_location(3))
    )


def get_rng_state(recorder: Recorder, original: Callable[[], torch.Tensor]) -> torch.Tensor:
    """Record a read of the CPU generator's state, in its place among the random calls."""
    with DisableTorchFunction(), disable_current_modes():
        state = original()
    proxy = TensorProxy(
        recorder.names.intermediate(),
        tuple(state.shape),
        state.stride(),
        state.dtype,
        state.device,
        False,
        recorder.new_storage(None),
    )
    recorder.lines.append(
        BoundSymbol(GET_RNG_STATE, (), {}, proxy, Effects(random=True, external=True), None, user_location(3))
    )
    return recorder.traced(Variable(proxy, location=user_location(3)))


def set_rng_state(recorder: Recorder, original: Callable[..., None], state: torch.Tensor) -> None:
    """Record a restoration of the CPU generator's state."""
    proxy = recorder.variable(state).proxy
    recorder.lines.append(
        BoundSymbol(SET_RNG_STATE, (proxy,), {}, None, Effects(random=True, external=True), None, user_location(3))
    )
