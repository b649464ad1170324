"""Claims: the rows of an executor's table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from thunder_core.executors.derivative_pair import DerivativePair
from thunder_core.ir.bound_symbol import BoundSymbol

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
