"""Printed traces are Python modules that run."""

import dataclasses
import functools
import traceback

import pytest
import torch

from tests.calls import calls_of
from thunder_core.errors import TraceError
from thunder_core.ir.annotation import Annotator
from thunder_core.ir.context import Context, current_context, with_items
from thunder_core.ir.location import SourceLocation
from thunder_core.ir.printer import print_trace
from thunder_core.ir.proxy import NumberProxy, OpaqueProxy
from thunder_core.ir.symbol import Symbol
from thunder_core.tracing.sizes import Sizes
from thunder_testing import hand_built as build

EXPECTED = """\
# trace: computation
# stage: acquired
# provenance: a test
# context: grad=True inference=False autocast=none cache=True
import torch
from math import inf


def computation(
    x: "f32[2, 4]",
    weight: "f32[3, 4] grad",
):
    # {location}
    a = torch.nn.functional.linear(x, weight)  # f32[2, 3] grad
    with torch.no_grad():
        b = torch.relu(a)  # f32[2, 3]
        # no user line
        c = b.add_(1.5)  # f32[2, 3] shares b
        del b
    d = c.view(-1)  # f32[6] shares b
    del x
    e = d[None, 0::2]  # f32[1, 3] strides[6, 2] shares b
    values, indices = torch.max(c, dim=1)  # f32[2], i64[2]
    f = c.T  # f32[3, 2] strides[1, 3] shares b
    return (a, [e, values], {{'indices': indices, 'scale': -inf}}, f)
"""


def run(source, *inputs):
    namespace = {}
    exec(source, namespace)
    return namespace["computation"](*inputs)


def test_text():
    assert print_trace(build.sample()) == EXPECTED.format(location=build.HERE.describe())


def test_the_representation_is_one_line():
    assert repr(build.sample()) == "<Trace computation: acquired, 7 ops, from a test>"


@pytest.mark.parametrize("comments", [True, False])
def test_it_runs(comments):
    x, weight = torch.randn(2, 4), torch.randn(3, 4)
    _, (e, values), rest, f = run(print_trace(build.sample(), comments=comments), x, weight)
    c = torch.relu(torch.nn.functional.linear(x, weight)) + 1.5
    torch.testing.assert_close((e[0], values, f), (c.flatten()[::2], c.amax(1), c.T))
    assert rest["scale"] == float("-inf")


def test_without_comments_there_are_none():
    assert "#" not in print_trace(build.sample(), comments=False)


def test_annotations():
    annotate = Annotator().annotate
    assert annotate(build.tensor("x", (), 0, dtype=torch.bool)) == "bool[]"
    assert annotate(build.tensor("y", (2, 0, 3), 1, dtype=torch.bfloat16)) == "bf16[2, 0, 3]"
    assert annotate(build.tensor("z", (2,), 0, offset=3, stride=(4,))) == "f32[2] strides[4] offset 3 shares x"
    assert annotate(build.tensor("w", (2,), 7, device=torch.device("cuda:1"))) == "f32[2] cuda:1"
    assert annotate(build.tensor("v", (2,), 8)) == "f32[2]"
    assert annotate(NumberProxy("n", bool)) == "bool"
    assert annotate(OpaqueProxy("o", "torch.Generator")) == "object torch.Generator"


def test_symbolic_sizes_print_without_a_guard():
    sizes = Sizes()
    size = sizes.new(5, "x.shape[0]")
    proxy = build.tensor("x", (2, 3), 0)
    proxy = dataclasses.replace(proxy, shape=(size, 3, size * 4), stride=(3, 1, size - 1))
    text = Annotator().annotate(proxy)
    assert text == "f32[s0, 3, 4*s0] strides[3, 1, (-1) + s0]"
    assert sizes.fact_count == 0


def test_output_structures():
    x = build.tensor("x", (2,), 0)
    a, b = build.tensor("a", (2,), 1), build.tensor("b", (2,), 2)
    symbol = Symbol("tests.ir.test_printer.returns", returns)
    for output, value in [
        ((a,), lambda x: (x + 1,)),
        ([a, None], lambda x: [x + 1, None]),
        ((a, [None, (b,)]), lambda x: (x + 1, [None, (x + 2,)])),
        ({"one": a, "two": [b]}, lambda x: {"one": x + 1, "two": [x + 2]}),
        ((), lambda x: ()),
    ]:
        trace = build.trace((x,), [build.bound(symbol, (x, None), output)], output)
        RETURNED[:] = [value]
        result = run(print_trace(trace), torch.zeros(2))
        torch.testing.assert_close(result, value(torch.zeros(2)))


RETURNED = []


def returns(x, _):
    """The text of the test."""
    return RETURNED[0](x)


def apply(function, x):
    """A higher-order function."""
    return function(x)


def test_bodies_of_higher_order_symbols():
    x, y, z = build.tensor("x", (2,), 0), build.tensor("y", (2,), 1), build.tensor("z", (2,), 2)
    symbol = Symbol("tests.ir.test_printer.apply", apply)
    bodies = [
        dataclasses.replace(build.trace((x,), [build.bound(item, (x,), y)], y), name="body")
        for item in (Symbol("torch.neg", torch.neg), Symbol("torch.exp", torch.exp))
    ]
    lines = [build.bound(symbol, (bodies[0], x), y), build.bound(symbol, (bodies[1], y), z)]
    source = print_trace(build.trace((x,), lines, z))
    assert source.count("def body(") == source.count("def body_1(") == 1
    torch.testing.assert_close(run(source, torch.ones(2)), (-torch.ones(2)).exp())


def test_keyword_that_python_reserves():
    x, y = build.tensor("x", (2,), 0), build.tensor("y", (2,), 0)
    symbol = build.Symbol("random_", torch.Tensor.random_, build.CallStyle.METHOD)
    line = build.bound(symbol, (x,), y, kwargs={"from": 3, "to": 4})
    assert run(print_trace(build.trace((x,), [line], y)), torch.zeros(2)).tolist() == [3, 3]


def test_not_a_literal():
    x, y = build.tensor("x", (2,), 0), build.tensor("y", (2,), 1)
    with pytest.raises(TraceError, match="cannot be written in a trace"):
        print_trace(build.trace((x,), [build.bound(build.RELU, (object(),), y)], y))


CONTEXTS = [
    Context(grad, inference, autocast, cache)
    for grad in (True, False)
    for inference in (True, False)
    for autocast in ((), (("cpu", torch.bfloat16),), (("cpu", torch.float16),))
    for cache in (True, False)
]


def test_with_items_lead_from_any_context_to_any_other():
    for ambient in CONTEXTS:
        for context in CONTEXTS:
            lines = [f"with {', '.join(with_items(ambient, current_context()))}:"]
            lines.append(f"    with {', '.join(with_items(context, ambient))}:")
            lines.append("        seen = current_context()")
            namespace = {"torch": torch, "current_context": current_context}
            exec("\n".join(lines), namespace)
            assert namespace["seen"] == context, (ambient, context, lines)


def test_printing_costs_the_same_for_each_line():
    def trace_of(count):
        x, weight = build.tensor("x", (2, 4), 0), build.tensor("weight", (4, 4), 1)
        locations = [SourceLocation(__file__, 1 + index % 20, "forward") for index in range(count)]
        results = [build.tensor(f"t{index}", (2, 4), index + 2) for index in range(count)]
        lines = [
            build.bound(build.LINEAR, (x, weight, None), result, location=location)
            for result, location in zip(results, locations, strict=True)
        ]
        return build.trace((x, weight), lines, x, deletions={index: (f"t{index}",) for index in range(count)})

    few, many = (calls_of(functools.partial(print_trace, trace_of(count), comments=False)) for count in (230, 2300))
    assert many <= 10 * few
    assert many <= 40 * 2300


def test_tracebacks_show_generated_ops():
    from thunder_core.ir.program import annotate_exception, compile_trace

    function = compile_trace(build.sample())
    with pytest.raises(RuntimeError, match="cannot be multiplied") as caught:
        function(torch.randn(2, 4), torch.randn(3, 5))
    annotate_exception(caught.value)
    annotate_exception(caught.value)
    text = "".join(traceback.format_exception(caught.value))
    assert "    a = torch.nn.functional.linear(x, weight)" in text
    assert text.count(f"Called at {build.HERE.describe()}") == 1
