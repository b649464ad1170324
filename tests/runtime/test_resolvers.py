"""Ways to know a value while a program is recorded."""

from __future__ import annotations

import pytest
import torch

import thunder
from thunder_core.errors import DataDependentError
from thunder_frontend.record import record_program
from thunder_frontend.record.data_dependence import Declined, Resolved, ValueRequest
from thunder_frontend.record.recorder import Recorder
from thunder_frontend.record.resolvers import RESOLVERS


class Two:
    """Resolves each number as 2, and records the calls."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def resolve(self, recorder: Recorder, request: ValueRequest) -> Resolved | Declined:
        self.names.append(request.symbol.name)
        return Resolved(2.0) if request.reads else Declined("it is about shapes")


def _scaled(x: torch.Tensor) -> torch.Tensor:
    return x * x.sum().item()


def test_a_resolver_gives_the_program_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    two = Two()
    monkeypatch.setattr(record_program, "RESOLVERS", (*RESOLVERS, two))
    function = thunder.jit(_scaled)
    torch.testing.assert_close(function(torch.ones(3)), torch.full((3,), 2.0))
    assert two.names == ["item"]
    assert "torch.mul(x, 2.0)" in str(thunder.last_traces(function)[0])


def test_resolvers_before_it_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    two = Two()
    monkeypatch.setattr(record_program, "RESOLVERS", (*RESOLVERS, two))
    function = thunder.jit(lambda x: x * torch.full((), 3.0).item())
    torch.testing.assert_close(function(torch.ones(3)), torch.full((3,), 3.0))
    assert two.names == []


def test_the_cause_of_the_error_has_the_reason_of_each() -> None:
    with pytest.raises(DataDependentError) as caught:
        thunder.jit(_scaled, sharp_edges="error")(torch.ones(3))
    assert caught.value.__cause__ is not None
    reasons = caught.value.__cause__.__notes__
    assert [reason.partition(":")[0] for reason in reasons] == [type(resolver).__name__ for resolver in RESOLVERS]
    assert {"Constant: t0 may differ in each run", "SizeOfTensor: no size varies"} <= set(reasons)
