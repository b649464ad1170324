"""Each defect of an executor is found by the check that is meant for it, which names the rule; a right one passes."""

from __future__ import annotations

from typing import Any

import defective as d
import pytest
import torch
import torch.nn.functional as F
from messages import failures

from thunder_core.executors import Claim, Declined, DerivativePair, Executor, OperatorExecutor
from thunder_testing.conformance import suite
from thunder_testing.conformance.suite import executor_cases


def table(symbol: Any, run: Any = None, **options: Any) -> OperatorExecutor:
    return OperatorExecutor("kernels", (Claim(symbol, run, **options),))


PRODUCT = DerivativePair(d.product, d.unwanted_gradients, d.product_fake)

DEFECTS: dict[str, tuple[Any, str, str, str]] = {
    # name: executor, ids of the tests, rule, words
    "wrong value": (d.claims(run=d.wrong_value), "*-forward-*", "values", "eager PyTorch gives"),
    "wrong dtype": (d.claims(run=d.wrong_dtype), "*-forward-*", "dtype", "torch.float64"),
    "wrong strides": (d.claims(run=d.wrong_strides), "*-forward-*", "strides", "returned strides"),
    "several results": (
        d.claims(run=d.several_results),
        "*-forward-*",
        "structure",
        "returned tuple instead of a tensor",
    ),
    "result is the argument": (table(torch.clone, d.same_memory), "*-forward-*", "memory sharing", "tensor 0 among"),
    "fails on empty": (d.claims(run=d.fails_on_empty), "*-shapes-*", "runs", "0 blocks"),
    "ignores strides": (d.claims(run=d.ignores_strides), "*-layouts-*", "values", "sliced from"),
    "ignores the offset": (d.claims(run=d.ignores_offset), "*-layouts-*", "values", "offset 2"),
    "negative dimensions": (table(torch.sum, d.sum_without_negative_dimensions), "*-forward-*", "shape", "dim=-1"),
    "broadcasting": (table(torch.add, d.add_without_broadcasting), "*-shapes-*", "values", "broadcast from"),
    "writes its argument": (d.claims(run=d.writes_argument), "*-forward-*", "arguments unchanged", "tensor 0"),
    "writes it in memory": (d.claims(run=d.writes_argument), "*-memory-*", "arguments unchanged", "bytes of tensor 0"),
    "writes behind the result": (d.claims(run=d.writes_behind_result), "*-memory-*", "memory bounds", "0 bytes behind"),
    "writes before it": (d.claims(run=d.writes_before_argument), "*-memory-*", "memory bounds", "8 bytes before"),
    "reads behind it": (d.claims(run=d.reads_behind_argument), "*-memory-*", "memory reads", "belong to no argument"),
    "result not written": (d.claims(run=d.leaves_result_unwritten), "*-memory-*", "memory reads", "nobody wrote"),
    "not deterministic": (d.claims(run=d.CountsCalls()), "*-determinism-*", "determinism", "two equal calls"),
    "state": (d.claims(run=d.RemembersShapes()), "*-determinism-*", "no state between calls", "other arguments"),
    "reused result": (d.claims(run=d.ReusesResult()), "*-determinism-*", "results live on", "an earlier result"),
    "wrong gradient": (d.derivative(backward=d.wrong_gradient), "*-gradient-*", "values", "gradient of tensor 0"),
    "gradient of expanded": (d.derivative(backward=d.assumes_dense_cotangents), "*-pair-*", "values", "gradient of"),
    "gradient strides": (
        d.derivative(backward=d.gradient_of_other_strides, fake=d.fake_silu, forward=d.copies_residual),
        "*-pair-*",
        "gradient strides",
        "torch.empty_like of the argument",
    ),
    "writes a cotangent": (
        d.derivative(backward=d.writes_cotangent, fake=d.fake_silu, forward=d.copies_residual),
        "*-pair-*",
        "arguments unchanged",
        "to a cotangent",
    ),
    "fake of other residuals": (d.derivative(fake=d.fake_of_other_residuals), "*-pair-*", "fake", "residual 0"),
    "residual shares memory": (d.derivative(fake=d.fake_silu), "*-pair-*", "memory sharing", "residual 0"),
    "no fake": (d.derivative(forward=d.not_for_fakes), "*-gradient-*", "derivative pair", "it is not used"),
    "unwanted gradient": (table(torch.mul, derivative=PRODUCT), "*-pair-*", "derivative pair", "that is not wanted"),
    "impure check": (d.claims(check=d.AlternatesAnswers()), "*-claims", "pure queries", "another decision"),
    "computing check": (d.claims(check=d.computing_check), "*-claims", "pure queries", "aten.zeros"),
    "drawing check": (d.claims(check=d.drawing_check), "*-claims", "pure queries", "random numbers"),
    "raising check": (d.claims(check=d.raising_check), "*-claims", "decisions", "no_such_attribute"),
    "no reason": (d.claims(check=d.silent_check), "*-claims", "decline reasons", "is False"),
    "never claimed": (d.claims(check=d.never), "*-claims", "claimed", "because the moon is in the wrong phase"),
    "never recorded": (table("torch.nn.functional.celu", d.silu), "*-claims", "claimed", "recorded as torch.celu"),
    "in place": (table("torch.Tensor.add_", d.silu), "*-claims", "claimed", "only get functional programs"),
    "second claim": (
        OperatorExecutor("kernels", (Claim(F.silu, d.silu), Claim(F.silu, d.silu, check=d.always))),
        "*-claims",
        "claimed",
        "claim 2 of 2",
    ),
    "wrong rewrite": (
        table(F.silu, rewrite=d.rewritten_wrongly),
        "*-claims",
        "rewrite",
        "differ from those of the operation",
    ),
}


@pytest.mark.parametrize("defect", DEFECTS)
@pytest.mark.filterwarnings("ignore::thunder_core.errors.ExecutorWarning")
@pytest.mark.battery
def test_defect_is_found(defect: str) -> None:
    executor, pattern, rule, words = DEFECTS[defect]
    messages = list(failures(executor, pattern))
    assert messages
    named = [message for message in messages if f"the rule of {rule} is broken" in message and words in message]
    assert named, messages[0]
    with_call = [message for message in named if "\n  call: " in message]
    assert all("To see it again:\n    import" in message for message in with_call)
    assert with_call or rule == "claimed"


RIGHT = {"run": d.claims(), "pair": d.derivative(), "check": d.claims(check=d.always)}


@pytest.mark.parametrize("kind", RIGHT)
@pytest.mark.battery
def test_right_executor_passes(kind: str) -> None:
    executor = RIGHT[kind]
    assert list(failures(executor, "*", limit=3)) == []
    ids = [case.id for case in executor_cases(executor, dtypes=(torch.float32,), limit=3)]
    assert {name.split("-")[1] for name in ids} >= {
        "claims", "forward", "gradient", "layouts", "shapes", "memory", "determinism",
    }  # fmt: skip
    assert f"{d.SILU}-forward-float32-0" in ids


class WithoutReason(Executor):
    """No table, and no reasons."""

    name = "silent"

    def claim(self, bound: Any) -> Any:
        return Declined(self.name, " ")


@pytest.mark.slow
def test_executor_without_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "OPERATIONS", ("torch.exp", "torch.matmul"))
    found = list(failures(WithoutReason(), "*-claims", operations=[F.silu]))
    assert any("runs none of" in message for message in found)
