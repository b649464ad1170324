"""Each rule of the partition, on joint traces built by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.autodiff.joint_builder import JointBuilder, function, method, operator
from thunder_core.autodiff.joint import Joint, Partitioned
from thunder_core.autodiff.partitioning.partition import Partition
from thunder_core.errors import OptionError
from thunder_core.ir.effects import Effects
from thunder_core.ir.program import compile_trace
from thunder_core.ir.proxy import NumberProxy, OpaqueProxy, TensorProxy
from thunder_core.ir.storage_sizes import extent_bytes
from thunder_core.ir.symbol import Symbol, Tag
from thunder_core.ir.trace import Trace
from thunder_core.passes.base import PassContext
from thunder_core.passes.pass_manager import PassManager
from thunder_testing.pointwise import Pointwise

SIN, MUL, ADD, RELU = (function(f"torch.{name}") for name in ("sin", "mul", "add", "relu"))
MATMUL, SUM, EXP = function("torch.matmul"), function("torch.sum"), function("torch.exp")
VIEW, TO = method("view"), method("to")
BIG = 1 << 24  # elements: large enough that a launch does not matter


def split(joint: Joint, recompute: Any = "cheap", *, fused: bool = False) -> Partitioned:
    context = PassContext(executors=(Pointwise(),) if fused else ())
    result = PassManager(verify=True).run(Partition(joint, recompute), joint.trace, context)
    assert result.backward.inputs == (*result.saved, *joint.cotangents)
    assert result.forward.inputs == joint.primals
    assert result.forward.output == (*joint.outputs, *result.saved)
    assert result.outputs == len(joint.outputs)
    return result


def run(joint: Joint, result: Partitioned, *values: Any, between: Any = None) -> tuple[Any, Any]:
    """Run both programs; ``between`` happens to the inputs before backward."""
    primals, cotangents = values[: len(joint.primals)], values[len(joint.primals) :]
    computed = compile_trace(result.forward)(*primals)
    if between is not None:
        between(*primals)
    gradients = compile_trace(result.backward)(*computed[result.outputs :], *cotangents)
    return computed[: result.outputs], gradients


def random_like(proxy: Any) -> torch.Tensor:
    memory = torch.randn(extent_bytes(proxy) // proxy.dtype.itemsize, dtype=proxy.dtype)
    return memory.as_strided(proxy.shape, proxy.stride, proxy.offset)


def check(joint: Joint, result: Partitioned, between: Any = None) -> None:
    """Both programs together compute what the joint trace computes."""
    values = [random_like(proxy) for proxy in joint.trace.inputs]
    torch.manual_seed(0)
    expected = compile_trace(joint.trace)(*[value.clone() for value in values])
    torch.manual_seed(0)
    actual = run(joint, result, *values, between=between)
    for one, other in zip((*expected[0], *expected[1]), (*actual[0], *actual[1]), strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(other, one)


def names(values: Any) -> list[str]:
    return [value.name for value in values]


def computed(trace: Trace) -> list[str]:
    return [proxy.name for line in trace.symbols for proxy in line.outputs()]


def chain(*, recomputed: Any = ()) -> Joint:
    """``y = sin(exp(x @ w))``; backward reads all three results."""
    b = JointBuilder()
    x, w, g = b.primal("x", 4, 4), b.primal("w", 4, 4), b.cotangent("g", 4, 4)
    a = b.call("a", MATMUL, x, w)
    e = b.call("e", EXP, a)
    y = b.call("y", SIN, e)
    b.start_backward()
    d = b.call("d", MUL, g, y)
    d = b.call("d1", MUL, d, e)
    d = b.call("d2", MUL, d, a)
    return b.joint([y], [d, None, g, x], recomputed=recomputed)


def test_nothing_is_computed_again_by_none():
    result = split(chain(), "none")
    assert names(result.saved) == ["x", "a", "e", "y"]
    assert result.bytes_saved == 3 * 64
    assert result.recomputed == ()
    assert computed(result.backward) == ["d", "d1", "d2"]
    check(chain(), result)


def test_aggressive_saves_the_contraction_only():
    result = split(chain(), "aggressive")
    assert names(result.saved) == ["x", "a"]
    assert result.bytes_saved == 64
    assert result.recomputed == ("e", "y")
    check(chain(), result)


def test_what_fuses_is_no_call_of_its_own():
    """However small the values are: what runs again joins the region of its readers."""
    assert names(split(chain()).saved) == ["x", "a", "e", "y"]
    result = split(chain(), fused=True)
    assert names(result.saved) == ["x", "a"]
    check(chain(), result)


@pytest.mark.parametrize(("reader", "saved"), [(MUL, ["a"]), (MATMUL, ["one", "two"])])
def test_what_a_region_computes_again_costs_by_its_elements_unless_a_contraction_reads_it(
    reader: Symbol, saved: list[str]
) -> None:
    """Then it is written to memory, and read again, as if there were no region."""
    b = JointBuilder()
    x, w, g = b.primal("x", 4, 4), b.primal("w", 4, 4), b.cotangent("g", 4, 4)
    a = b.call("a", MATMUL, x, w)
    one, two = b.call("one", SIN, a), b.call("two", EXP, a)
    y = b.call("y", MATMUL, one, two)
    b.start_backward()
    joint = b.joint([y], [b.call("d1", reader, g, one), b.call("d2", reader, g, two)])
    result = split(joint, fused=True)
    assert names(result.saved) == saved
    check(joint, result)


@pytest.mark.parametrize("after", [False, True], ids=["norms of branches", "norms of the stream"])
def test_a_residual_stream_is_not_computed_again(after: bool) -> None:
    """Although all parts that it is the sum of are saved: backward would need its end, and so all of it, first."""
    b = JointBuilder()
    x, w, g = b.primal("x", 4, 4), b.primal("w", 4, 4), b.cotangent("g", 4, 4)
    stream, parts = [x], []
    for number in range(4):
        normalized = stream[-1] if after else b.call(f"n{number}", SIN, stream[-1])
        parts.append(b.call(f"p{number}", MATMUL, normalized, w))
        total = b.call(f"s{number}", ADD, stream[-1], parts[-1])
        stream.append(b.call(f"n{number}", SIN, total) if after else total)
    b.start_backward()
    for number, value in enumerate([*stream[1:-1], *parts]):
        g = b.call(f"g{number}", MUL, g, value)
    joint = b.joint([stream[-1]], [g])
    result = split(joint, fused=True)
    assert ({"n1", "n2"} if after else {"s1", "s2"}) <= {*names(result.saved)}
    check(joint, result)


def test_what_is_read_again_but_is_no_stream_is_computed_again() -> None:
    """A gate (squeeze and excitation): from a saved tensor, the activation that is gated is one op away."""
    b = JointBuilder()
    x, w, g = b.primal("x", 4, 4), b.primal("w", 4, 4), b.cotangent("g", 4, 4)
    h = x
    made = []
    for number in range(2):
        h = b.call(f"h{number}", MATMUL, h, w)
        activation = b.call(f"a{number}", SIN, h)
        gate = b.call(f"gate{number}", MATMUL, activation, w)
        made += [h, activation, gate]
        h = b.call(f"gated{number}", MUL, activation, gate)
    b.start_backward()
    for number, value in enumerate(reversed(made)):
        g = b.call(f"g{number}", MUL, g, value)
    joint = b.joint([h], [g])
    result = split(joint, fused=True)
    assert {*names(result.saved)} == {"h0", "gate0", "h1", "gate1"}
    check(joint, result)


@pytest.mark.parametrize(
    ("fused", "dtype", "saved"),
    [
        (False, torch.float32, {"p", "y0", "y1"}),
        (True, torch.float32, {"x", "y1"}),
        (True, torch.bfloat16, {"x", "y0", "y1"}),  # kernels for a CPU round the scale, so that the formula differs
    ],
)
def test_a_tensor_after_dropout_follows_from_the_mask(fused: bool, dtype: torch.dtype, saved: set[str]) -> None:
    b = JointBuilder()
    x, w, g = b.primal("x", 4, 4, dtype=dtype), b.primal("w", 4, 4, dtype=dtype), b.cotangent("g", 4, 4, dtype=dtype)
    drop, scale = operator(torch.ops.aten.native_dropout.default), torch.ops.aten.native_dropout_backward.default
    p = b.call("p", EXP, x)
    y, mask = b.call("y", drop, p, 0.25, True, effects=Effects(random=True))
    z = b.call("z", MATMUL, y, w)
    b.start_backward()
    dw = b.call("dw", MATMUL, g, y)
    dp = b.call("dp", operator(scale), g, mask, 4 / 3)
    joint = b.joint([z, y], [b.call("dx", MUL, dp, p), dw], returned=[0])
    result = split(joint, fused=fused)
    assert computed(result.forward) == computed(joint.trace)[:4]
    assert {*names(result.saved)} == saved
    check(joint, result)


def test_ops_are_computed_again_right_before_their_use():
    result = split(chain(), "aggressive")
    assert computed(result.backward) == ["e", "y", "d", "d1", "d2"]
    assert [line.location for line in result.backward.symbols[:2]] == [
        line.location for line in chain().trace.symbols[1:3]
    ]


def test_ops_that_are_used_later_are_computed_later():
    b = JointBuilder()
    x, g = b.primal("x", 4), b.cotangent("g", 4)
    one, two = b.call("one", SIN, x), b.call("two", EXP, x)
    y = b.call("y", ADD, one, two)
    b.start_backward()
    d = b.call("d", MUL, g, one)
    d = b.call("d1", MUL, d, two)
    assert computed(split(b.joint([y], [d]), "aggressive").backward) == ["one", "d", "two", "d1"]


def test_gradients_may_be_missing_a_cotangent_or_a_value_of_forward():
    result = split(chain())
    assert result.backward.output[1] is None
    assert names([result.backward.output[2], result.backward.output[3]]) == ["g", "x"]


def test_what_no_gradient_needs_is_left_out():
    b = JointBuilder()
    x, g = b.primal("x", 4), b.cotangent("g", 4)
    y = b.call("y", SIN, x)
    unused = b.call("unused", EXP, y)
    b.start_backward()
    b.call("dead", MUL, g, unused)
    result = split(b.joint([y], [g]))
    assert computed(result.forward) == ["y"]
    assert computed(result.backward) == []
    assert result.saved == ()


def test_view_is_made_again_and_its_memory_counts_once_and_whole():
    b = JointBuilder()
    x, w, g = b.primal("x", 4, 4), b.primal("w", 4, 4), b.cotangent("g", 16)
    a = b.call("a", MATMUL, x, w)
    v = b.call("v", VIEW, a, 16)
    row = b.call("row", function("torch.narrow"), v, 0, 4, 8)
    y = b.call("y", EXP, row)
    b.start_backward()
    part = b.call("part", function("torch.narrow"), g, 0, 4, 8)
    d = b.call("d", MUL, part, row)
    joint = b.joint([y], [d])
    result = split(joint, "none")
    assert names(result.saved) == ["a"]
    assert result.bytes_saved == 64
    assert computed(result.backward) == ["part", "v", "row", "d"]
    check(joint, result)


def test_view_of_an_input_costs_nothing():
    b = JointBuilder()
    x, g = b.primal("x", 4, 4), b.cotangent("g", 16)
    v = b.call("v", VIEW, x, 16)
    y = b.call("y", SIN, v)
    b.start_backward()
    d = b.call("d", MUL, g, b.call("c", function("torch.cos"), v))
    joint = b.joint([y], [d])
    result = split(joint, "none")
    assert names(result.saved) == ["x"]
    assert result.bytes_saved == 0
    assert computed(result.backward) == ["v", "c", "d"]
    check(joint, result)


def test_views_of_one_fresh_memory_count_once():
    b = JointBuilder()
    x, g = b.primal("x", 4, 4), b.cotangent("g", 2, 4)
    pair = Symbol("pair", lambda t: t.exp().split(2), tags=frozenset({Tag.OPAQUE, Tag.LOCAL}))
    one, two = b.call("part", pair, x)
    y = b.call("y", ADD, one, two)
    b.start_backward()
    d = b.call("d1", MUL, b.call("d", MUL, g, one), two)
    joint = b.joint([y], [d])
    result = split(joint, "aggressive")
    assert names(result.saved) == ["part0", "part1"]
    assert result.bytes_saved == 64
    check(joint, result)


def residual(reduced: bool) -> Joint:
    """A line that only backward needs: of a large result it makes a small one, or the other way round."""
    b = JointBuilder()
    x, w, g = b.primal("x", 4, 4), b.primal("w", 4, 4), b.cotangent("g", 4, 4)
    a = b.call("a", MATMUL, x, w)
    small = b.call("small", MATMUL, b.call("row", function("torch.sum"), a, 0), w)
    b.start_backward()
    if reduced:
        extra = b.call("extra", SUM, a, 0)
    else:
        extra = b.call("extra", MATMUL, b.call("column", VIEW, small, 4, 1), b.call("flat", VIEW, small, 1, 4))
    d = b.call("d", MUL, g, extra)
    return b.joint([a, small], [d])


@pytest.mark.parametrize("policy", ["none", "cheap", "aggressive"])
def test_line_that_only_backward_needs_runs_where_less_is_saved(policy):
    reduced = split(residual(True), policy)
    assert names(reduced.saved) == ["extra"]
    assert "extra" in computed(reduced.forward)
    expanded = split(residual(False), policy)
    assert names(expanded.saved) == ["small"]
    assert "extra" not in computed(expanded.forward)
    assert expanded.recomputed == ()
    for joint, result in ((residual(True), reduced), (residual(False), expanded)):
        check(joint, result)


def test_line_that_only_backward_needs_does_not_run_twice_for_nothing():
    b = JointBuilder()
    x, w, g = b.primal("x", 4, 4), b.primal("w", 4, 4), b.cotangent("g", 4, 4)
    h = b.call("h", MATMUL, x, w)
    b.start_backward()
    large = b.call("large", MATMUL, w, x)
    small = b.call("small", SUM, b.call("product", MUL, large, h))
    d = b.call("d1", MUL, b.call("d", MUL, g, large), small)
    joint = b.joint([h], [d])
    for policy in ("none", "aggressive"):
        result = split(joint, policy)
        assert result.recomputed == ()
        assert result.bytes_saved == 64
        check(joint, result)
    least = split(joint, {"budget": 0.1})
    assert "large" in least.recomputed or names(least.saved) == ["x", "w"]
    check(joint, least)


def overwritten_input(like: torch.Tensor) -> Joint:
    b = JointBuilder()
    x, g = b.primal("x", like=like), b.cotangent("g", *like.shape)
    t = b.call("t", function("torch.transpose"), x, 0, 1)
    y = b.call("y", MUL, x, 2.0)
    b.start_backward()
    d = b.call("d", MUL, g, x)
    d = b.call("d1", MATMUL, d, t)
    return b.joint([y], [d], overwritten=["x"])


@pytest.mark.parametrize(
    "like",
    [
        torch.empty(3, 4, device="meta"),
        torch.empty(3, 8, device="meta")[:, ::2],
        torch.empty(4, 3, device="meta").t(),
        torch.empty(1, 4, device="meta").expand(3, 4),
    ],
)
def test_copy_of_an_overwritten_input(like):
    joint = overwritten_input(like)
    result = split(joint)
    assert names(result.saved) == ["x_copy", "t_copy"]
    span = 1 + sum((size - 1) * step for size, step in zip(like.shape, like.stride(), strict=True))
    assert result.bytes_saved == 2 * 4 * span
    assert [proxy.stride for proxy in result.saved] == [like.stride(), like.t().stride()]
    assert len({proxy.storage for proxy in (*joint.trace.inputs, *result.saved)}) == 4
    saved = compile_trace(result.forward)(random_like(joint.primals[0]))[1:]
    assert [value.stride() for value in saved] == [proxy.stride for proxy in result.saved]
    check(joint, result, between=None if 0 in like.stride() else lambda x: x.zero_())


def test_name_of_a_copy_that_is_taken():
    b = JointBuilder()
    x, other, g = b.primal("x", 4), b.primal("x_copy", 4), b.cotangent("g", 4)
    y = b.call("y", ADD, x, other)
    d = b.call("d", MUL, g, x)
    assert names(split(b.joint([y], [d], overwritten=["x"])).saved) == ["x_copy_1"]


def test_recomputed_values_are_never_saved():
    joint = chain(recomputed=["a", "e"])
    result = split(joint, "none")
    assert names(result.saved) == ["x", "w", "y"]
    assert result.recomputed == ("a", "e")
    check(joint, result)


def test_recomputed_values_need_what_can_be_saved():
    b = JointBuilder()
    x, g = b.primal("x", 4), b.cotangent("g", 4)
    outside = b.call("outside", SIN, x)
    drawn = b.call("drawn", function("torch.rand_like"), outside, effects=Effects(random=True))
    inside = b.call("inside", MUL, outside, drawn)
    y = b.call("y", EXP, inside)
    b.start_backward()
    d = b.call("d", MUL, g, inside)
    joint = b.joint([y], [d], recomputed=["drawn", "inside"])
    result = split(joint, "none")
    assert names(result.saved) == ["outside", "drawn"]
    assert names(split(joint, "aggressive").saved) == ["x", "drawn"]
    assert computed(result.backward) == ["inside", "d"]


def test_result_of_a_checkpoint_region_that_is_a_view():
    b = JointBuilder()
    x, w, g = b.primal("x", 4, 4), b.primal("w", 4, 4), b.cotangent("g", 16)
    inside = b.call("inside", MATMUL, x, w)
    result_of_region = b.call("v", VIEW, inside, 16)
    y = b.call("y", SIN, result_of_region)
    b.start_backward()
    d = b.call("d", MUL, g, result_of_region)
    e = b.call("e", MUL, b.call("d_view", VIEW, d, 4, 4), inside)
    back = b.call("back", VIEW, inside, 2, 8)
    f = b.call("f", MUL, b.call("e_view", VIEW, e, 2, 8), back)
    joint = b.joint([y], [f, b.call("v2", VIEW, result_of_region, 2, 8)], recomputed=["inside"])
    result = split(joint, "none")
    assert "inside" in result.recomputed
    check(joint, result)
    again = next(p for line in result.backward.symbols for p in line.outputs() if p.name == "inside")
    given = [proxy.storage for proxy in result.saved]
    assert again.storage not in given


def test_random_and_effectful_ops_run_once_and_in_order():
    b = JointBuilder()
    x, g = b.primal("x", 4), b.cotangent("g", 4)
    draw, outside = Effects(random=True), Effects(external=True)
    first = b.call("first", function("torch.rand_like"), x, effects=draw)
    b.call("noted", SIN, x, effects=outside)
    y = b.call("y", MUL, x, first)
    b.start_backward()
    second = b.call("second", function("torch.rand_like"), x, effects=draw)
    b.call("seen", SIN, first, effects=outside)
    d = b.call("d", MUL, b.call("d0", MUL, g, second), first)
    joint = b.joint([y], [d])
    for policy in ("none", "aggressive", {"budget": 0}):
        result = split(joint, policy)
        assert computed(result.forward) == ["first", "noted", "y"]
        assert computed(result.backward) == ["second", "seen", "d0", "d"]
        assert names(result.saved) == ["x", "first"]
        check(joint, result)


def test_numbers_and_objects_are_saved():
    b = JointBuilder()
    key, x, g = b.opaque("key"), b.primal("x", 4), b.cotangent("g", 4)
    use = Symbol("use", lambda t, thing: t * thing, tags=frozenset({Tag.ELEMENTWISE, Tag.LOCAL}))
    same = b.call("same", function("torch.equal"), x, x, output=NumberProxy("same", bool))
    made = b.call("made", Symbol("make", lambda: 3.0, tags=frozenset({Tag.LOCAL})), output=OpaqueProxy("made", "float"))
    y = b.call("y", SIN, x)
    scaled = b.call("scaled", MUL, x, same, output=replace(y, name="scaled", storage=50))
    b.start_backward()
    d = b.call("d", use, g, key, output=replace(y, name="d", storage=51))
    d = b.call("d1", use, d, made, output=replace(y, name="d1", storage=52))
    d = b.call("d2", MUL, d, scaled, output=replace(y, name="d2", storage=53))
    joint = b.joint([y], [d])
    result = split(joint, "aggressive")
    assert names(result.saved) == ["key", "x", "same", "made"]
    assert result.bytes_saved == 0
    x, g = torch.randn(4), torch.randn(4)
    _, (gradient,) = run(joint, result, 2.0, x, g)
    torch.testing.assert_close(gradient, g * 2.0 * 3.0 * x)


def test_memory_of_an_output_counts():
    b = JointBuilder()
    x, w, g = b.primal("x", 4, 4), b.primal("w", 4, 4), b.cotangent("g", 4, 4)
    y = b.call("y", MATMUL, x, w)
    d = b.call("d", MUL, g, y)
    assert split(b.joint([y], [d])).bytes_saved == 64


def test_what_the_caller_gets_is_saved_instead_of_computed_again():
    """Both terms of a sum are inputs; but the sum is there, too, and backward reads it once."""
    b = JointBuilder()
    x, r, g = b.primal("x", 4, 4), b.primal("r", 4, 4), b.cotangent("g", 4, 4)
    total = b.call("total", function("torch.add"), x, r)
    y = b.call("y", SIN, total)
    b.start_backward()
    d = b.call("d", MUL, g, b.call("d0", function("torch.cos"), total))
    for policy in ("none", "cheap", "aggressive"):
        result = split(b.joint([total, y], [d, d], returned=[0, 1]), policy)
        assert names(result.saved) == ["total"]
        assert result.bytes_saved == 0
    alone = split(b.joint([total, y], [d, d], returned=[1]), "aggressive")
    assert names(alone.saved) == ["x", "r"]


def test_conversion_to_a_wider_type_is_cheap():
    b = JointBuilder()
    w = b.primal("w", BIG, dtype=torch.bfloat16)
    x, g = b.call("x", operator(torch.ops.aten.cumsum.default), w, 0), b.cotangent("g", BIG)
    wide = b.call("wide", TO, x, torch.float32)
    y = b.call("y", MUL, x, b.call("s", SIN, wide))
    b.start_backward()
    d = b.call("d", MUL, b.call("d0", MUL, g, wide), x)
    joint = b.joint([y], [d])
    assert names(split(joint, "none").saved) == ["x", "wide"]
    assert names(split(joint, "cheap").saved) == ["x"]


def test_what_reads_as_much_as_it_writes_is_not_cheap():
    b = JointBuilder()
    w = b.primal("w", 4096, 4096)
    x, g = b.call("x", MATMUL, w, w), b.cotangent("g", 4096, 4096)
    s = b.call("s", SIN, x)
    y = b.call("y", EXP, s)
    b.start_backward()
    d = b.call("d", MUL, b.call("d0", MUL, g, s), x)
    joint = b.joint([y], [d])
    assert names(split(joint, "cheap").saved) == ["x", "s"]
    assert names(split(joint, "aggressive").saved) == ["x"]


def deep(length: int, every: int) -> Joint:
    b = JointBuilder()
    value, w, g = b.primal("x", 8, 8), b.primal("w", 8, 8), b.cotangent("g", 8, 8)
    values = []
    for place in range(length):
        value = b.call(f"a{place}", *((MATMUL, value, w) if place % every == 0 else (SIN, value)))
        values.append(value)
    b.start_backward()
    d = g
    for place, value in enumerate(reversed(values)):
        d = b.call(f"d{place}", MUL, d, value)
    return b.joint([values[-1]], [d])


@pytest.mark.parametrize("fraction", [0.0, 0.25, 0.5, 1.0, 2.0])
def test_budget(fraction):
    joint = deep(20, 4)
    usual = split(joint).bytes_saved
    result = split(joint, {"budget": fraction})
    assert usual * min(fraction, 1.0) * 0.3 <= result.bytes_saved <= fraction * usual
    check(joint, result)


def test_policies_save_less_and_less():
    joint = deep(20, 4)
    saved = [split(joint, policy).bytes_saved for policy in ("none", "cheap", "aggressive", {"budget": 0.0})]
    assert saved == sorted(saved, reverse=True)
    assert saved[-1] == 0


@pytest.mark.parametrize("value", ["most", {"budget": -1}, {"budget": "0.5"}, {}, 0.5, None])
def test_unknown_policy(value):
    with pytest.raises(OptionError, match="is not a recompute policy"):
        Partition(chain(), value).run(chain().trace, PassContext())


@pytest.mark.parametrize("every", [3, 10_001])
@pytest.mark.slow
def test_four_thousand_ops(every):
    """More than Python lets functions call each other."""
    joint = deep(2_000, every)
    result = Partition(joint, "aggressive").run(joint.trace, PassContext())
    assert len(result.backward.symbols) >= 2_000
    assert all(isinstance(proxy, TensorProxy) for proxy in result.saved)
