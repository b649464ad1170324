"""The operations that an executor claims, and small programs, as subjects of tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from thunder_core.executors import Claim, OperatorExecutor
from thunder_core.executors.operator_executor import index_claims
from thunder_core.ir.symbol import CallStyle, Symbol, Tag
from thunder_core.pytorch_internals import OpOverload, OpOverloadPacket
from thunder_core.symbols.naming import function_printed_as
from thunder_core.symbols.registry import registry
from thunder_testing.conformance.call import Call, recorded_whole
from thunder_testing.conformance.failure import ConformanceError

Samples = Callable[[str, torch.dtype], Iterable[tuple[tuple[Any, ...], Mapping[str, Any]]]]
"""``samples(device, dtype)`` yields ``(args, kwargs)``, and nothing for an unsupported dtype."""

_UNINITIALISED = frozenset({"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"})


@dataclass(frozen=True, eq=False)
class Subject:
    """An operation or a program.

    Attributes:
        name: its name in test ids and messages.
        function: the function to call with samples that do not specify one; None for a program.
        symbols: the symbols of claimed operations. Empty for a program: all of its operations.
        claims: the rows of the executor's table for these symbols, in order; empty for other executors.
        samples: the author's samples.
        calls: for a program, its calls for a device and a dtype.
    """

    name: str
    function: Callable[..., Any] | None = None
    symbols: frozenset[Symbol] = frozenset()
    claims: tuple[Claim, ...] = ()
    samples: Samples | None = None
    calls: Callable[[str, torch.dtype], list[Call]] | None = None

    @property
    def has_state(self) -> bool:
        """Whether a claim has a state, so that results may differ between calls."""
        return any(claim.state is not None for claim in self.claims)

    @property
    def is_uninitialised(self) -> bool:
        """Whether results contain uninitialized memory."""
        return any(symbol.name.rpartition(".")[2] in _UNINITIALISED for symbol in self.symbols)

    @property
    def checks_shapes(self) -> bool:
        """Whether eager PyTorch raises for arguments with invalid shapes, so that arbitrary shapes can be tried.

        Its public functions do. Internal operators such as ``native_batch_norm`` read and write out of bounds instead.
        """
        return all(_checks_shapes(symbol) for symbol in self.symbols)


def _checks_shapes(symbol: Symbol) -> bool:
    if isinstance(symbol.target, OpOverloadPacket):
        overloads = [getattr(symbol.target, name) for name in symbol.target.overloads()]
        return any(torch.Tag.pointwise in overload.tags for overload in overloads)
    if isinstance(symbol.target, OpOverload):
        return torch.Tag.pointwise in symbol.target.tags
    plain = symbol.name.rpartition(".")[2]
    public = symbol.style is not CallStyle.FUNCTION or symbol.name.startswith("torch.")
    return public and not plain.startswith(("_", "native_", "cudnn_", "miopen_"))


def subjects_of(executor: OperatorExecutor, samples: Mapping[Any, Samples]) -> list[Subject]:
    """The operations in the executor's table of claims.

    Raises:
        ExecutorError: a claim names an operation that does not exist.
        ConformanceError: samples are given for an operation that the executor does not claim.
    """
    given = {symbol_of(key): value for key, value in samples.items()}
    rows: dict[frozenset[Symbol], list[Claim]] = {}
    for claim in executor.claims:
        rows.setdefault(frozenset(index_claims(executor.name, (claim,))), []).append(claim)
    subjects = [_subject(symbols, claims, given) for symbols, claims in rows.items()]
    known = frozenset(symbol for symbols in rows for symbol in symbols)
    refuse_unknown(executor.name, [symbol for symbol in given if symbol not in known], known)
    return subjects


def operation(symbol: Symbol, samples: Mapping[Symbol, Samples]) -> Subject:
    """An operation as a subject, independent of an executor."""
    return _subject(frozenset({symbol}), (), samples)


def symbol_of(given: Callable[..., Any] | str) -> Symbol:
    """The symbol of a torch function, or of its name in traces; methods as ``"torch.Tensor.view"``.

    Raises:
        ConformanceError: there is no such operation.
    """
    if not isinstance(given, str):
        return registry.symbol_of(given)
    method = given.removeprefix("torch.Tensor.")
    try:
        return registry.symbol_named(method, CallStyle.FUNCTION if method == given else CallStyle.METHOD)
    except LookupError as error:
        raise ConformanceError(
            f"there is no operation {given!r} with PyTorch {torch.__version__}",
            advice=("use the name that thunder.last_traces(...)[0] prints, or the function itself",),
        ) from error


def refuse_unknown(executor: str, unknown: Sequence[Symbol], known: Iterable[Symbol]) -> None:
    """Raise `ConformanceError` if samples are given for operations that are not tested."""
    if unknown:
        names = ", ".join(sorted(map(printed, unknown)))
        claimed = ", ".join(sorted(map(printed, known)))
        raise ConformanceError(f"samples are given for {names}, but {executor} is tested with {claimed}")


def printed(symbol: Symbol) -> str:
    """The name of a symbol; with the class for methods and attributes."""
    plain = symbol.style in (CallStyle.FUNCTION, CallStyle.GETITEM)
    return symbol.name if plain else f"torch.Tensor.{symbol.name}"


def _subject(symbols: frozenset[Symbol], claims: Sequence[Claim], samples: Mapping[Symbol, Samples]) -> Subject:
    ordered = sorted(symbols, key=lambda symbol: (len(symbol.name), symbol.name))
    first = ordered[0]  # of an operator of torch.ops: the packet
    given_samples = [samples[symbol] for symbol in ordered if symbol in samples]
    return Subject(
        printed(first), _function(first), symbols, tuple(claims), given_samples[0] if given_samples else None
    )


def _function(symbol: Symbol) -> Callable[..., Any]:
    """The function that users call: of a composite the composite, else it may differ from the target
    (``torch.dropout``).
    """
    if Tag.COMPOSITE in symbol.tags:
        return recorded_whole(symbol.target)
    try:
        return function_printed_as(symbol.name, symbol.style)
    except LookupError:  # a function without an importable name
        return symbol.target
