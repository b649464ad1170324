"""Lowering to core ATen."""

import dataclasses

import pytest
import torch

from thunder_core.errors import LoweringError
from thunder_core.ir.builder import Builder
from thunder_core.ir.context import Context
from thunder_core.ir.printer import print_trace
from thunder_core.ir.program import compile_trace
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.symbol import Symbol
from thunder_core.ir.verifier import verify
from thunder_core.tracing import lowering
from thunder_core.tracing.lowering import lower, lower_trace
from thunder_frontend.record.front_end import front_end
from thunder_testing import hand_built as build


def names(parts):
    return [part.symbol.name.removeprefix("torch.ops.aten.") for part in parts]


def run_both(function, *args):
    """Results of a function's trace as it is and lowered, with the lowered trace."""
    trace = front_end.record(function, args, {}).trace
    lowered = lower_trace(trace)
    replaced = build.substitute_parts(lowered)
    verify(replaced)
    results = []
    for candidate in (trace, replaced):
        torch.manual_seed(0)
        results.append(compile_trace(candidate)(*[value.clone() for value in args]))
    torch.testing.assert_close(*results, rtol=1e-5, atol=1e-5)
    return lowered


def test_linear():
    x, weight, y = build.tensor("x", (2, 4), 0), build.tensor("w", (3, 4), 1), build.tensor("y", (2, 3), 2)
    parts = lower(build.bound(build.LINEAR, (x, weight), y, location=build.HERE), build.GRAD)
    assert names(parts) == ["permute.default", "mm.default"]
    assert [part.output.name for part in parts] == ["y_1", "y"]
    assert parts[0].output.storage == weight.storage
    assert parts[1].output == y
    assert all(part.location == build.HERE for part in parts)


def test_equal_ops_are_lowered_once(monkeypatch):
    calls = []
    original = lowering.trace_call
    monkeypatch.setattr(lowering, "trace_call", lambda *args, **kwargs: calls.append(args) or original(*args, **kwargs))
    weights = [torch.randn(7, 7) for _ in range(4)]

    def program(x):
        for weight in weights:
            x = torch.nn.functional.gelu(torch.nn.functional.linear(x, weight))
        return x

    trace = front_end.record(program, (torch.randn(3, 7),), {}).trace
    lowered = lower_trace(trace)
    assert len(calls) == 2
    made = [proxy.name for bound in lowered.symbols for part in bound.parts for proxy in part.outputs()]
    assert len(made) == len(set(made))
    verify(build.substitute_parts(lowered))


def test_printed_as_comments():
    x, weight, y = build.tensor("x", (2, 4), 0), build.tensor("w", (3, 4), 1), build.tensor("y", (2, 3), 2)
    trace = lower_trace(build.trace((x, weight), [build.bound(build.LINEAR, (x, weight), y)], y))
    text = print_trace(trace, lowered=True)
    assert (
        "    #   y_1 = torch.ops.aten.permute.default(w, [1, 0])\n    #   y = torch.ops.aten.mm.default(x, y_1)" in text
    )
    assert "permute" not in print_trace(trace)
    assert trace == dataclasses.replace(trace, symbols=tuple(dataclasses.replace(b, parts=()) for b in trace.symbols))


def test_own_decomposition_first():
    x, y = build.tensor("x", (2,), 0), build.tensor("y", (2,), 1)
    symbol = Symbol("torch.exp", torch.exp, decomposition=lambda x: torch.pow(2.718281828, x))
    assert names(lower(build.bound(symbol, (x,), y), build.GRAD)) == ["pow.Scalar"]
    declines = Symbol("torch.exp", torch.exp, decomposition=lambda x: NotImplemented)
    assert names(lower(build.bound(declines, (x,), y), build.GRAD)) == ["exp.default"]


def test_autocast_is_part_of_the_lowered_form():
    lowered = run_both(autocast_matmul, torch.randn(3, 3))
    assert names(lowered.symbols[0].parts) == ["_to_copy.default", "_to_copy.default", "mm.default"]
    assert all(part.context == lowered.symbols[0].context for part in lowered.symbols[0].parts)
    context = Context(True, False, (("cpu", torch.bfloat16),))
    x, y = build.tensor("x", (3, 3), 0), build.tensor("y", (3, 3), 1, dtype=torch.bfloat16)
    line = build.bound(build.registry.symbol_named("torch.matmul"), (x, x), y)
    assert names(lower(line, context)) == ["_to_copy.default", "_to_copy.default", "mm.default"]
    assert names(lower(line, build.GRAD)) == ["mm.default"]


def autocast_matmul(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return x @ x


def test_mutation_views_and_random_numbers():
    def program(x):
        y = x.clone()
        y[0] = 2
        y[:, 1].mul_(3)
        view = y.t()
        y.add_(1)
        y = torch.nn.functional.dropout(y, 0.5)
        return view, y, torch.rand_like(x), torch.nn.functional.pad(x, (1, 2), mode="circular")

    lowered = run_both(program, torch.randn(3, 3))
    effects = [part.effects for bound in lowered.symbols for part in bound.parts]
    assert any(effect.mutates for effect in effects)
    assert any(effect.random for effect in effects)


def test_composite_functions():
    def program(x, weight):
        a = torch.nn.functional.layer_norm(x, (8,), weight)
        b = torch.nn.functional.scaled_dot_product_attention(a, a, a, is_causal=True)
        c = torch.nn.functional.cross_entropy(b.flatten(0, 1), torch.zeros(8, dtype=torch.int64))
        d = torch.einsum("bij,bkj->bik", a, b).softmax(-1)
        return torch.nn.functional.conv1d(d, weight[None, :4, None].expand(3, 4, 1)), torch.var_mean(b, 1), c

    run_both(program, torch.randn(2, 4, 8), torch.randn(8))


def test_a_returned_argument_gets_its_own_name():
    x, y = build.tensor("x", (2,), 0), build.tensor("y", (2,), 0)
    line = build.bound(build.registry.symbol_named("torch.positive"), (x,), y)
    (part,) = lower(line, build.GRAD)
    assert (part.symbol.name, part.args, part.output) == ("torch.ops.aten.alias.default", (x,), y)


def test_new_values_avoid_names_and_memories_in_use():
    x, weight, y = build.tensor("x", (2, 4), 0), build.tensor("w", (3, 4), 1), build.tensor("y", (2, 3), 2)
    line = build.bound(build.LINEAR, (x, weight), y)
    parts = lower(line, build.GRAD, Builder({"y_1", "y_2"}, 50))
    assert parts[0].output.name == "y_3"
    made = [proxy for part in parts for proxy in part.outputs() if isinstance(proxy, TensorProxy)]
    assert all(proxy.storage in {0, 1, 2} or proxy.storage >= 50 for proxy in made)


def test_programs_are_not_lowered():
    x, y = build.tensor("x", (2,), 0), build.tensor("y", (2,), 1)
    body = dataclasses.replace(build.trace((x,), [], x), name="body")
    with pytest.raises(LoweringError, match="takes a program"):
        lower(build.bound(Symbol("torch.utils.checkpoint.checkpoint", None), (body, x), y), build.GRAD)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (torch.nn.functional.binary_cross_entropy, ["binary_cross_entropy.default"]),
        (torch.nn.functional.multilabel_margin_loss, None),
        (lambda x, y: torch.index_add(x, 0, y[0].long(), y), None),
        (lambda x, y: torch.index_copy(x, 0, y[0].long(), y), None),
    ],
    ids=["binary_cross_entropy", "multilabel_margin_loss", "index_add", "index_copy"],
)
def test_what_decompositions_lose_is_kept(call, expected):
    whole = {"index_add.default", "index_copy.default", "multilabel_margin_loss_forward.default"}
    x, y = torch.rand(2, 2), torch.zeros(2, 2)
    if call is torch.nn.functional.multilabel_margin_loss:
        y = y.long()
    lowered = lower_trace(front_end.record(call, (x, y), {}).trace)
    found = names(lowered.symbols[-1].parts or lowered.symbols[-1:])
    assert found == expected if expected else whole & set(found)


def test_classes_out_of_range_are_errors_in_parts():
    at = torch.tensor([[0, 3], [2, 1]])
    lowered = run_both(lambda at: torch.nn.functional.one_hot(at, 4), at)
    program = compile_trace(build.substitute_parts(lowered))
    for wrong in (-1, 4):
        with pytest.raises((IndexError, RuntimeError)):
            program(torch.full((2, 2), wrong))
