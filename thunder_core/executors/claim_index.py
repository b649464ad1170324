"""Which symbols an executor's claims are for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from thunder_core.errors import ExecutorError
from thunder_core.executors.claim import Claim
from thunder_core.ir.symbol import CallStyle, Symbol
from thunder_core.pytorch_internals import OpOverloadPacket
from thunder_core.symbols.registry import registry


def index_claims(executor: str, claims: Iterable[Claim]) -> dict[Symbol, tuple[Claim, ...]]:
    """The claims by symbol; those of one symbol in their order.

    Raises:
        ExecutorError: a claim names an operation that there is none of, in this version of PyTorch.
    """
    found: dict[Symbol, tuple[Claim, ...]] = {}
    for claim in claims:
        for symbol in _symbols(executor, claim.symbol):
            found[symbol] = (*found.get(symbol, ()), claim)
    return found


def _symbols(executor: str, given: Callable[..., Any] | str) -> list[Symbol]:
    if isinstance(given, str):
        return [_named(executor, given)]
    if isinstance(given, OpOverloadPacket):
        overloads = [getattr(given, name) for name in given.overloads()]
        return [registry.symbol_of(function) for function in (given, *overloads)]
    if not callable(given):
        raise ExecutorError(f"the executor {executor!r} claims {given!r}, which is neither a function nor a name")
    return [registry.symbol_of(given)]


def _named(executor: str, name: str) -> Symbol:
    method = name.removeprefix("torch.Tensor.")
    style = CallStyle.FUNCTION if method == name else CallStyle.METHOD
    try:
        return registry.symbol_named(method, style)
    except LookupError as error:
        raise ExecutorError(
            f"the executor {executor!r} claims {name!r}, and there is no such operation (PyTorch {torch.__version__})",
            advice=(
                "use the name that thunder.last_traces(...)[0] prints, with its module: torch.nn.functional.gelu",
                "or claim the function itself, which fails where it is absent",
            ),
        ) from error
