"""Composites that were found: who gets them, what becomes of them, and what is left alone."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from pattern_programs import B, K, T, check, executor, normal, rms_norm, swiglu
from torch.utils.checkpoint import checkpoint

import thunder
import thunder_plugin_composites as composites
from thunder.report.decisions import decision_table
from thunder_core.executors import Claim, OperatorExecutor
from thunder_core.executors.configured import ConfiguredExecutor
from thunder_core.tracing.lowering import lower_trace
from thunder_saving.reader import read_trace
from thunder_testing.by_definition import run_by
from thunder_testing.pointwise import Pointwise


def test_a_value_that_others_read_keeps_its_ops() -> None:
    def program(x: torch.Tensor, weight: torch.Tensor) -> Any:
        logits = F.linear(x, weight)
        return F.cross_entropy(logits.view(-1, 7), torch.arange(T) % 7), logits

    x, weight = normal(T, K), normal(7, K)
    compiled = thunder.jit(program, executors=[executor()])
    torch.testing.assert_close(compiled(x, weight), program(x, weight))
    assert run_by(compiled) == {}
    (line,) = [one for one in thunder.explain(compiled).decisions if one.phase == "pattern"]
    assert line.declined == (("whole", "t0, an intermediate value, has other users"),)
    assert line.executor == "its parts"
    assert line.location is not None
    assert "test_offers.py" in line.location


def test_modes_must_be_the_same() -> None:
    def program(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            active = F.silu(gate)
        return active * up

    compiled = thunder.jit(program, executors=[executor()])
    gate, up = normal(B, K), normal(B, K)
    torch.testing.assert_close(compiled(gate, up), program(gate, up))
    (line,) = [one for one in thunder.explain(compiled).decisions if one.phase == "pattern"]
    assert line.declined == (("whole", "its operations run in different contexts (grad mode, autocast)"),)


def test_without_a_claim_nothing_changes() -> None:
    x, weight = normal(B, K), normal(K)
    plain = thunder.jit(rms_norm)
    plain(x, weight)
    reluctant = thunder.jit(rms_norm, executors=[executor(check=lambda *args, **kwargs: "it is too small")])
    assert torch.equal(reluctant(x, weight), rms_norm(x, weight))
    assert str(thunder.last_traces(reluctant)[-1]) == str(thunder.last_traces(plain)[-1])
    assert str(thunder.last_backward_traces(reluctant)[-1]) == str(thunder.last_backward_traces(plain)[-1])
    (line,) = [one for one in thunder.explain(reluctant).decisions if one.phase == "pattern"]
    assert line.symbol == "thunder_plugin_composites.rms_norm"
    table = decision_table([line])
    assert "pattern" in table[0]
    assert "its parts" in table[0]
    assert table[1].strip() == "not whole: it is too small"
    stages = [stage.name for stage in thunder.explain(plain).entries[0].stages]
    assert "recognize_composites" not in stages


def test_the_order_of_executors() -> None:
    x, y = normal(B, K), normal(B, K)
    silu = OperatorExecutor("silu", (Claim(F.silu, run=F.silu),))
    program = thunder.jit(swiglu, executors=[silu, executor(name="first"), executor(name="second")])
    torch.testing.assert_close(program(x, y), swiglu(x, y))
    assert run_by(program, "first") == {"swiglu": 1}
    excluded = ConfiguredExecutor(executor(), exclude=("*swiglu",))
    program = thunder.jit(swiglu, executors=[excluded])
    program(x, y)
    assert run_by(program) == {}
    (line,) = [line for line in thunder.explain(program).decisions if line.phase == "pattern"]
    assert line.declined == (("whole", "the configuration excludes '*swiglu'"),)
    assert thunder.explain(program).entries[0].notes == ()


def test_a_fusion_executor_that_takes_all_ops_comes_first() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.softmax(swiglu(x, y) * 0.5, -1)

    x, y = torch.randn(B, K), torch.randn(B, K)
    compiled = thunder.jit(program, executors=[Pointwise(), executor()])
    torch.testing.assert_close(compiled(x, y), program(x, y))
    assert run_by(compiled) == {"scaled_softmax": 1}
    (line,) = [one for one in thunder.explain(compiled).decisions if one.phase == "pattern"]
    assert (line.symbol.rpartition(".")[2], line.executor) == ("swiglu", "pointwise")
    other = thunder.jit(program, executors=[executor(), Pointwise()])
    torch.testing.assert_close(other(x, y), program(x, y))
    assert run_by(other) == {"swiglu": 1, "scaled_softmax": 1}


def test_calls_of_composites_are_found_again() -> None:
    x, weight = normal(B, K, dtype=torch.bfloat16), normal(K, dtype=torch.bfloat16)

    def program(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        n = composites.rms_norm(x, weight, 1e-6, rounded=True)
        n = composites.rms_norm(n, weight, 1e-6, unit_offset=True)
        n = composites.rotary_embedding(n, n[0], n[1])
        n = composites.geglu(n, composites.swiglu(n, x), "tanh")
        return composites.scaled_softmax(n, 0.5, n[0])

    expected = {"rms_norm": 2, "rotary_embedding": 1, "geglu": 1, "swiglu": 1, "scaled_softmax": 1}
    check(program, (x, weight), expected, rtol=2e-2, atol=2e-2)


def test_without_a_derivative_autograd_gives_it() -> None:
    x, y = normal(B, K), normal(B, K)
    compiled = thunder.jit(swiglu, executors=[OperatorExecutor("runs", (Claim(composites.swiglu, composites.swiglu),))])
    torch.autograd.grad(compiled(x, y).sum(), x)
    torch.testing.assert_close(
        torch.autograd.grad(compiled(x, y).sum(), (x, y)), torch.autograd.grad(swiglu(x, y).sum(), (x, y))
    )


def test_a_rewrite_of_a_composite() -> None:
    def gelu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        return gate * torch.sigmoid(gate) * up

    rewriting = OperatorExecutor("rewriting", (Claim(composites.swiglu, rewrite=gelu),))
    x, y = torch.randn(B, K), torch.randn(B, K)
    compiled = thunder.jit(swiglu, executors=[rewriting])
    torch.testing.assert_close(compiled(x, y), swiglu(x, y))
    assert "sigmoid" in [line.symbol.name.rpartition(".")[2] for line in thunder.last_traces(compiled)[-1].symbols]


def test_traces_with_composites_are_saved_and_lowered() -> None:
    x, weight = torch.randn(B, K), torch.randn(K)
    compiled = thunder.jit(rms_norm, executors=[executor()])
    compiled(x, weight)
    trace = next(one for one in thunder.last_traces(compiled) if one.provenance == "recognize_composites")
    assert [line.symbol.name for line in trace.symbols] == ["thunder_plugin_composites.rms_norm"]
    assert str(read_trace(str(trace))) == str(trace)
    parts = [part for line in lower_trace(trace).symbols for part in line.parts or (line,)]
    assert all(part.symbol.name.startswith("torch.") for part in parts)


def test_inside_of_a_checkpoint() -> None:
    x, y = normal(B, K), normal(B, K)

    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = checkpoint(swiglu, x, y, use_reentrant=False)
        return result.sin()

    check(program, (x, y), {"swiglu": 1})


def test_second_gradients() -> None:
    x, y = normal(B, K), normal(B, K)
    compiled = thunder.jit(swiglu, executors=[executor()])
    (first,) = torch.autograd.grad(compiled(x, y).sum(), x, create_graph=True)
    (eager,) = torch.autograd.grad(swiglu(x, y).sum(), x, create_graph=True)
    torch.testing.assert_close(torch.autograd.grad(first.sum(), x), torch.autograd.grad(eager.sum(), x))
