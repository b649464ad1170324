"""Executors that run single operations: a name and a list of claims."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import torch

from thunder_core.errors import ExecutorError, SizeVariesError
from thunder_core.executors.decision import Claimed, Decision, Declined
from thunder_core.executors.executor import DerivativePair, Executor, declined_by_failing, executor_symbol
from thunder_core.executors.states import Stateful, with_state
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.symbol import CallStyle, Symbol, Tag
from thunder_core.pytorch_internals import OpOverloadPacket
from thunder_core.symbols.registry import registry

Check = Callable[..., "bool | str"]


@dataclass(frozen=True, slots=True)
class Claim:
    """One operation that an executor runs.

    Every function here is called with the arguments of the operation, as `thunder.last_traces` prints them: positional
    where they have a place, defaults at the end left out. Declare the parameters as the PyTorch function does.

    Attributes:
        symbol: what is claimed: a torch function or method, an operator of ``torch.ops`` (a packet stands for all its
            overloads), or the name that traces print, like ``"torch.nn.functional.gelu"``.
        run: what is called instead. It returns what the operation does: the same shapes, strides, dtypes and devices,
            in new memory, and writes to none of its arguments. Absent where ``derivative`` or ``rewrite`` say it all.
        check: called with proxies for tensors (``x.shape``, ``x.stride``, ``x.contiguous``, ``x.dtype``, ``x.device``,
            ``x.requires_grad``); returns True, or the reason for which this call is declined. It must not compute.
            Absent: every call is claimed.
        derivative: forward with residuals and backward, used where gradients are needed; or a function that chooses one
            by the arguments, and may return None. Without it the call is differentiated as any other.
        rewrite: instead of ``run``: the operation in other torch functions, which are recorded and offered to all
            executors, this one included.
        state: makes an object for each line that is claimed, which ``run`` and both functions of ``derivative`` are
            then given as their first argument. Called with the line. The object lives as long as the compiled program,
            and is the same for the same line in all its compilations. Such lines run once and in order. A factory with
            a method ``name(line)`` says what the state is called; it should be the same in all processes. If the state
            has ``state_dict()`` and ``load_state_dict(entries)``, its entries are in state dicts of compiled modules,
            as ``executor_states.<executor>.<name>.<entry>``. With ``joins(companions)`` it is given the list of all
            states of the executor in the program, which grows. A program with such lines is not captured as a CUDA
            graph, unless the state is a `ReplayableState`.
        variant: which of the executor's implementations this is, for reports; or a function that says it.
    """

    symbol: Callable[..., Any] | str
    run: Callable[..., Any] | None = None
    check: Check | None = None
    derivative: DerivativePair | Callable[..., DerivativePair | None] | None = None
    rewrite: Callable[..., Any] | None = None
    state: Callable[[BoundSymbol], Any] | None = None
    variant: str | Callable[..., str] = ""

    def __post_init__(self) -> None:
        if self.rewrite is not None and (self.run is not None or self.derivative is not None):
            raise ValueError(f"the claim of {self.symbol} has a rewrite, so run and derivative would never be used")
        if self.run is None and self.derivative is None and self.rewrite is None:
            raise ValueError(f"the claim of {self.symbol} needs one of run, derivative and rewrite")


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


@dataclass(frozen=True, eq=False)
class OperatorExecutor(Executor):
    """An executor as a table.

    Attributes:
        name: in configurations, decisions and reports.
        claims: what it runs. Of several for one operation, the first whose check says True is taken.
        varying_sizes: whether checks take sizes that vary as well. One that needs the value of such a size
            declines.
    """

    name: str
    claims: tuple[Claim, ...]
    varying_sizes: bool = False
    _nothing: Declined = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "claims", tuple(self.claims))
        object.__setattr__(self, "_nothing", Declined(self.name, "it has nothing for this operation", implements=False))

    @cached_property
    def _index(self) -> dict[Symbol, tuple[Claim, ...]]:
        return index_claims(self.name, self.claims)

    @cached_property
    def takes_parts(self) -> bool:  # type: ignore[override]
        """Whether a claim is for an operator of ``torch.ops.aten``."""
        return any(symbol.name.startswith("torch.ops.aten.") for symbol in self._index)

    @property
    def rewrites(self) -> bool:  # type: ignore[override]
        """Whether a claim is one."""
        return any(claim.rewrite is not None for claim in self.claims)

    @cached_property
    def composites(self) -> frozenset[Symbol]:  # type: ignore[override]
        """Those among the claims."""
        return frozenset([symbol for symbol in self._index if Tag.COMPOSITE in symbol.tags])

    @cached_property
    def claimed_symbols(self) -> frozenset[Symbol]:  # type: ignore[override]
        """Those of the claims."""
        return frozenset(self._index)

    def claim(self, bound: BoundSymbol) -> Decision:
        """The first claim of the line's symbol that fits; the reasons of all others if none does."""
        claims = self._index.get(bound.symbol)
        if claims is None:
            return self._nothing
        reasons = []
        for claim in claims:
            answer = self._ask(claim, bound)
            if answer is True:
                return self._claimed(claim, bound)
            reasons.append(answer or "its check says no")
        return Declined(self.name, "; ".join(dict.fromkeys(map(str, reasons))))

    def derivative(self, bound: BoundSymbol) -> DerivativePair | None:
        """The pair of the claim that fits."""
        for claim in self._index.get(bound.symbol, ()):
            if self._ask(claim, bound) is True:
                pair = _pair(claim, bound)
                return with_state(pair, claim.state, bound) if pair is not None and claim.state is not None else pair
        return None

    def _ask(self, claim: Claim, bound: BoundSymbol) -> bool | str:
        if claim.check is None:
            return True
        try:
            answer = claim.check(*bound.args, **bound.kwargs)
        except SizeVariesError as error:
            return str(error)
        except Exception as error:  # noqa: BLE001 - becomes the reason
            return declined_by_failing(self.name, bound.symbol.name, "check", bound.location, error)
        return answer

    def _claimed(self, claim: Claim, bound: BoundSymbol) -> Claimed:
        variant = claim.variant if isinstance(claim.variant, str) else claim.variant(*bound.args, **bound.kwargs)
        if claim.rewrite is not None:
            return Claimed(self.name, rewrite=claim.rewrite, variant=variant)
        function = claim.run
        if function is None:
            pair = _pair(claim, bound)
            function = bound.symbol.target if pair is None else partial(_outputs, pair.forward)
        if claim.state is not None:
            function = Stateful(function, claim.state)
        symbol = executor_symbol(function, self.name, bound.symbol.tags - {Tag.OPAQUE}, bound.symbol)
        return Claimed(self.name, symbol, variant=variant)


def _pair(claim: Claim, bound: BoundSymbol) -> DerivativePair | None:
    pair = claim.derivative
    return pair if pair is None or isinstance(pair, DerivativePair) else pair(*bound.args, **bound.kwargs)


def _outputs(forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What a pair's forward computes, without the residuals."""
    return forward(*args, **kwargs)[0]
