"""Executors that run single operations: a name and a list of claims."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

from thunder_core.errors import SizeVariesError
from thunder_core.executors.claim import Claim
from thunder_core.executors.claim_index import index_claims
from thunder_core.executors.decision import Claimed, Decision, Declined
from thunder_core.executors.defects import declined_by_failing
from thunder_core.executors.derivative_pair import DerivativePair
from thunder_core.executors.executor import Executor
from thunder_core.executors.executor_symbol import executor_symbol
from thunder_core.executors.states import Stateful, with_state
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.symbol import Symbol, Tag


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
