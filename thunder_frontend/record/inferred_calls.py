"""The outcomes of inferred calls: equal calls are inferred once in a recording, most of them once in a process."""

from __future__ import annotations

from collections.abc import Hashable
from types import BuiltinFunctionType, MethodDescriptorType, WrapperDescriptorType
from typing import Any, Final

import torch

from thunder_core.ir.bounded_cache import BoundedCache
from thunder_core.ir.symbol import Symbol
from thunder_core.pytorch_internals import OpOverload
from thunder_core.tracing.outcome import Outcome
from thunder_frontend.record.arguments import CallArguments

_SHARED: Final[BoundedCache[Outcome]] = BoundedCache(8192)


class InferredCalls:
    """The outcomes of the calls of one recording, by key.

    Recordings share the outcomes of PyTorch's functions in C, which programs cannot change. So a program that is
    recorded again, after a guard failed or for another mode, and one with layers as those of another program, infer
    few calls.

    Args:
        state: PyTorch's state before the program, which decides outcomes besides the key of a call; None if the
            recording does not share outcomes.
    """

    def __init__(self, state: Hashable) -> None:
        self._state = state
        self._outcomes: dict[Hashable, Outcome] = {}

    def find(self, key: Hashable, symbol: Symbol, call: CallArguments, switches: list[Any]) -> Outcome | None:
        """The outcome of an equal call; None if there is none.

        Args:
            key: what decides the outcome in this recording.
            switches: PyTorch's switches, which may differ in other recordings.
        """
        outcome = self._outcomes.get(key)
        if outcome is None and self._is_shared(symbol, call):
            shared = self._shared_key(key, switches)
            outcome = _SHARED.lookup((shared,)).get(shared)
            if outcome is not None:
                self._outcomes[key] = outcome
        return outcome

    def add(self, key: Hashable, symbol: Symbol, call: CallArguments, switches: list[Any], outcome: Outcome) -> None:
        """Store the outcome of a call; see `find` for the arguments."""
        self._outcomes[key] = outcome
        if not outcome.channels and not _aliases(outcome) and self._is_shared(symbol, call):
            _SHARED.add(self._shared_key(key, switches), outcome)

    def _is_shared(self, symbol: Symbol, call: CallArguments) -> bool:
        """Whether the key of a call describes it in other recordings: its tensors are dense."""
        return (
            self._state is not None
            and not call.is_local
            and _is_in_c(symbol.target)
            and all(proxy.layout is torch.strided for proxy in call.proxies)
        )

    def _shared_key(self, key: Hashable, switches: list[Any]) -> Hashable:
        device = torch.cuda.current_device() if torch.cuda.is_initialized() else None  # that of `tensor.cuda()`
        return key, self._state, tuple(switches), device


def _is_in_c(function: Any) -> bool:
    """Whether a function of PyTorch is implemented in C; those in Python may call functions that a program replaced."""
    if isinstance(function, BuiltinFunctionType):
        return str(function.__module__).partition(".")[0] == "torch"
    if isinstance(function, MethodDescriptorType | WrapperDescriptorType):
        return issubclass(torch.Tensor, function.__objclass__)
    return isinstance(function, OpOverload) and function.namespace in ("aten", "prims")


def _aliases(outcome: Outcome) -> bool:
    """Whether a result shares storage: its fake, which the recording needs for writes, is that of the inferred call."""
    return any(result.same_as >= 0 or result.shares >= 0 or result.shares_result >= 0 for result in outcome.results)
