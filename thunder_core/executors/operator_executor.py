"""Executors that run single operations: a name and a list of claims."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property, partial
from types import FunctionType
from typing import Any, Final

import torch

from thunder_core.errors import ExecutorError, SizeVariesError
from thunder_core.executors.decision import Claimed, Decision, Declined
from thunder_core.executors.executor import DerivativePair, Executor, declined_by_failing, executor_symbol
from thunder_core.executors.states import Stateful, with_state
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.symbol import CallStyle, Symbol, Tag
from thunder_core.pytorch_internals import CustomOpDef, OpOverloadPacket, overload_of
from thunder_core.symbols.recording import is_operation
from thunder_core.symbols.registry import registry

Check = Callable[..., "bool | str"]
_OF_PROXIES: Final = (
    "a check gets proxies, with shape, stride, ndim, numel, contiguous, dtype, device and requires_grad"
)


@dataclass(frozen=True, slots=True)
class Claim:
    """One operation that an executor runs.

    Every function here is called with the arguments of the operation, as `thunder.last_traces` prints them: positional
    if possible, without trailing defaults. Declare the parameters as the PyTorch function does.

    Attributes:
        symbol: the claimed operation: a torch function or method, an operator of ``torch.ops`` (a packet means all its
            overloads) or of ``torch.library.custom_op``, or the name that traces print, like
            ``"torch.nn.functional.gelu"``.
        run: the function that is called instead. It returns results like the operation's, with the same shapes,
            strides, dtypes and devices, in new storages, and writes to none of its arguments. Optional with
            ``derivative`` or ``rewrite``.
        check: called with proxies for tensors (``x.shape``, ``x.stride``, ``x.contiguous``, ``x.dtype``, ``x.device``,
            ``x.requires_grad``); returns True, or the reason why the call is declined. It must not compute on
            tensors. Without it every call is claimed.
        derivative: forward with residuals and backward, used where gradients are needed; or a function that chooses one
            by the arguments, and may return None. Without it the call is differentiated as any other.
        rewrite: instead of ``run``: the operation in other torch functions, which are recorded and offered to all
            executors, this one included.
        state: a factory, called with each claimed op, of an object that ``run`` and both functions of ``derivative``
            take as first argument. The object lives as long as the compiled program, and is the same for the same op in
            all its compilations. Such ops run once and in order. A method ``name(op)`` of the factory returns the name
            of the state, which should be the same in all processes. If the state has ``state_dict()`` and
            ``load_state_dict(entries)``, state dicts of compiled modules contain its entries as
            ``executor_states.<executor>.<name>.<entry>``. If it has ``joins(companions)``, that is called with the
            growing list of all states of the executor in the program. A program with such ops is captured as a CUDA
            graph only if the state is a `ReplayableState`.
        variant: the name of this implementation among the executor's, for reports; or a function that returns it.
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
    """The claims by symbol; claims of one symbol keep their order.

    Raises:
        ExecutorError: a claim names an operation that this version of PyTorch does not have.
    """
    by_symbol: dict[Symbol, tuple[Claim, ...]] = {}
    for claim in claims:
        for symbol in _symbols(executor, claim.symbol):
            by_symbol[symbol] = (*by_symbol.get(symbol, ()), claim)
    return by_symbol


def _symbols(executor: str, given: Callable[..., Any] | str) -> list[Symbol]:
    if isinstance(given, str):
        return [_named(executor, given)]
    if isinstance(given, OpOverloadPacket):
        overloads = [getattr(given, name) for name in given.overloads()]
        return [registry.symbol_of(function) for function in (given, *overloads)]
    if isinstance(given, CustomOpDef):
        return [registry.symbol_of(overload_of(given))]
    if not callable(given):
        raise ExecutorError(f"the executor {executor!r} claims {given!r}, which is neither a function nor a name")
    symbol = registry.symbol_of(given)
    if isinstance(given, FunctionType) and Tag.OPAQUE in symbol.tags and not is_operation(given):
        raise ExecutorError(
            f"the executor {executor!r} claims {given.__qualname__}, a Python function and no operation: what it calls "
            "is recorded",
            advice=(
                "decorate it with thunder_core.symbols.recorded, then its calls are operations",
                "or claim the function of PyTorch that it calls",
            ),
        )
    return [symbol]


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
        claims: the claimed operations. Of several claims for one operation, the first whose check returns True is used.
        varying_sizes: whether checks accept varying sizes. A check that needs the value of such a size declines.
    """

    name: str
    claims: tuple[Claim, ...]
    varying_sizes: bool = False
    _nothing: Declined = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if isinstance(self.claims, Claim):
            raise TypeError(f"the claims of {self.name!r} must be a tuple, not one Claim; write (Claim(...),)")
        object.__setattr__(self, "claims", tuple(self.claims))
        object.__setattr__(self, "_nothing", Declined(self.name, "it does not claim this operation", implements=False))

    @cached_property
    def _index(self) -> dict[Symbol, tuple[Claim, ...]]:
        return index_claims(self.name, self.claims)

    @cached_property
    def takes_parts(self) -> bool:  # type: ignore[override]
        """Whether a claim is for an operator of ``torch.ops.aten``."""
        return any(symbol.name.startswith("torch.ops.aten.") for symbol in self._index)

    @property
    def rewrites(self) -> bool:  # type: ignore[override]
        """Whether one of the claims is a rewrite."""
        return any(claim.rewrite is not None for claim in self.claims)

    @cached_property
    def composites(self) -> frozenset[Symbol]:  # type: ignore[override]
        """The composites among the claimed symbols."""
        return frozenset([symbol for symbol in self._index if Tag.COMPOSITE in symbol.tags])

    @cached_property
    def claimed_symbols(self) -> frozenset[Symbol]:  # type: ignore[override]
        """The symbols of the claims."""
        return frozenset(self._index)

    def claim(self, bound: BoundSymbol) -> Decision:
        """The first claim of the op's symbol whose check passes; else a decline with the reasons of all checks."""
        claims = self._index.get(bound.symbol)
        if claims is None:
            return self._nothing
        reasons = []
        for claim in claims:
            outcome = self._run_check(claim, bound)
            if outcome is True:
                return self._claimed(claim, bound)
            reasons.append(outcome or "its check returned False")
        return Declined(self.name, "; ".join(dict.fromkeys(map(str, reasons))))

    def derivative(self, bound: BoundSymbol) -> DerivativePair | None:
        """The derivative pair of the first claim whose check passes."""
        for claim in self._index.get(bound.symbol, ()):
            if self._run_check(claim, bound) is True:
                pair = _pair(claim, bound)
                return with_state(pair, claim.state, bound) if pair is not None and claim.state is not None else pair
        return None

    def _run_check(self, claim: Claim, bound: BoundSymbol) -> bool | str:
        if claim.check is None:
            return True
        try:
            outcome = claim.check(*bound.args, **bound.kwargs)
        except SizeVariesError as error:
            return str(error)
        except Exception as error:  # noqa: BLE001 - becomes the reason
            return declined_by_failing(self.name, bound.symbol.name, "check", bound.location, error, _OF_PROXIES)
        if outcome is None:
            cure = "return True to claim the op, or the reason for which it is declined"
            return declined_by_failing(self.name, bound.symbol.name, "check", bound.location, "returned None", cure)
        return outcome

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
    """The outputs of a pair's forward, without the residuals."""
    return forward(*args, **kwargs)[0]
