"""The conversions that are written into a program are those that autocast makes."""

from __future__ import annotations

import operator

import pytest
import torch
from torch.nn import functional
from torch.utils import checkpoint

import thunder
from tests.hardware import runs_lstm
from tests.passes.programs import Program, acquire_program, functionalize, run_functionalized
from thunder_core.ir.trace import Trace
from thunder_core.ir.tree import iterate_leaves
from thunder_core.passes.base import PassContext
from thunder_core.passes.dead_code import DeadCode
from thunder_core.passes.explicit_autocast import ExplicitAutocast, leaves_among
from thunder_core.passes.functionalize import Functionalized
from thunder_core.passes.pass_manager import PassManager
from thunder_core.runtime import run_function
from thunder_core.runtime.own_state import without_autocast

BFLOAT16 = torch.bfloat16
FLOAT16 = torch.float16


def under(program, dtype=BFLOAT16, **options):
    """The program with autocast around it, as part of it."""

    def wrapped(*args):
        with torch.autocast("cpu", dtype=dtype, **options):
            return program(*args)

    return wrapped


def explicit(program: Program) -> Functionalized:
    result = functionalize(program.trace)
    leaves = leaves_among(result.computation.inputs, program.inputs)
    manager = PassManager(verify=True)
    trace = manager.run(DeadCode(), manager.run(ExplicitAutocast(leaves), result.computation))
    return Functionalized(trace, result.epilogue, result.epilogue_arguments, result.results)


def lines_under_autocast(trace: Trace) -> list[str]:
    assert not trace.context.autocast
    lines = [str(bound.symbol) for bound in trace.symbols if bound.context is not None and bound.context.autocast]
    for bound in trace.symbols:
        for body in (leaf for leaf in bound.args if isinstance(leaf, Trace)):
            lines += lines_under_autocast(body)
    return lines


def conversions(trace: Trace, name: str) -> int:
    """How often a value is converted."""
    return sum(bound.symbol.name == "to" and bound.args[0].name == name for bound in trace.symbols)


def tensors(value) -> list[torch.Tensor]:
    return list(iterate_leaves(value if isinstance(value, tuple) else (value,)))


def check(function, *args, kept: int | None = 0, seed: int = 0, tolerance: float = 0.0) -> Trace:
    """Eager and the explicit program agree on values, dtypes and gradients; that many lines stay under autocast.

    ``kept`` None: any number.
    """
    torch.manual_seed(seed)
    expected = tensors(function(*args))
    program = acquire_program(function, *args)
    result = explicit(program)
    assert kept in (None, len(lines_under_autocast(result.computation))), str(result.computation)
    torch.manual_seed(seed)
    actual = run_functionalized(result, program.inputs)
    for one, other in zip(actual, expected, strict=True):
        assert one.dtype is other.dtype, str(result.computation)
        assert one.requires_grad == other.requires_grad
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance, equal_nan=True)
    for one, other in zip(_gradients(actual, args), _gradients(expected, args), strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance, equal_nan=True)
    return result.computation


def _gradients(results, args) -> list[torch.Tensor]:
    wanted = [leaf for leaf in args if isinstance(leaf, torch.Tensor) and leaf.requires_grad and leaf.is_leaf]
    losses = [result.float().sum() for result in results if result.requires_grad]
    if not (wanted and losses):
        return []
    found = torch.autograd.grad(sum(losses), wanted, allow_unused=True)
    return [gradient for gradient in found if gradient is not None]


def parameter(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    torch.manual_seed(sum(shape))
    return torch.randn(shape, dtype=dtype, requires_grad=True)


def values(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    torch.manual_seed(1 + sum(shape))
    return torch.randn(shape, dtype=dtype)


IN_PLACE = {
    "relu_": lambda y: y.relu_(),
    "add_": lambda y: y.add_(y.detach() * 2),
    "mul_ by another dtype": lambda y: y.mul_(torch.ones(4, 4, dtype=torch.float64)),
    "exp_": lambda y: y.exp_(),
    "clamp_": lambda y: y.clamp_(-1, 1),
    "addmm_": lambda y: y.addmm_(values(4, 4).to(y.dtype), values(4, 4).to(y.dtype)),
    "leaky_relu_": lambda y: functional.leaky_relu_(y, 0.1),
    "celu_": lambda y: torch.celu_(y, 0.5),
    "masked_fill_": lambda y: y.masked_fill_(y.detach() > 0, 2.0),
    "copy_": lambda y: y.copy_(values(4, 4)),
    "item assignment": lambda y: operator.setitem(y, 0, values(4)) or y,
}


@pytest.mark.parametrize("given", [torch.float32, BFLOAT16])
@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place(name, given):
    """Autocast does not convert arguments of in-place methods; those with a functional form are written as that."""
    x = parameter(4, 4, dtype=given)
    # eager computes the gradient of celu_ from its rounded result
    trace = check(under(lambda x: IN_PLACE[name](x * 1.5) * 2), x, tolerance=1e-2 * (name == "celu_"))
    if name in ("relu_", "exp_", "clamp_", "leaky_relu_"):
        assert not any("functional_call" in op.symbol.name for op in trace.symbols), str(trace)


# ---- classes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [BFLOAT16, FLOAT16])
@pytest.mark.parametrize("given", [torch.float32, BFLOAT16, FLOAT16, torch.float64])
def test_lower_precision(dtype, given):
    if given is torch.float64:
        program = under(lambda x: x @ x.mT, dtype)
    else:
        program = under(lambda x: x @ torch.ones(4, 2), dtype)
    check(program, values(3, 4, dtype=given))


@pytest.mark.parametrize("given", [torch.float32, BFLOAT16, torch.float64, torch.int64])
def test_float32(given):
    trace = check(under(lambda x: torch.prod(x, 0)), values(3, 4).to(given))
    assert len(trace.symbols) == (2 if given is BFLOAT16 else 1)


def test_a_dtype_that_the_call_gives_stays():
    check(under(lambda x: (torch.prod(x, dtype=BFLOAT16), torch.prod(x, 0, dtype=torch.float64))), values(3, 4))


def test_a_view_of_the_converted_argument():
    trace = check(under(lambda x: torch.view_as_complex(x) * 2), values(3, 2, dtype=BFLOAT16))
    converted, complex_view = (bound.output for bound in trace.symbols[:2])
    assert converted.storage == complex_view.storage != trace.inputs[0].storage


@pytest.mark.parametrize("function", [torch.cat, torch.stack])
def test_the_widest_dtype_in_a_list(function):
    trace = check(under(lambda x, y: function([x, y, x])), values(3, dtype=BFLOAT16), values(3))
    assert [bound.symbol.name for bound in trace.symbols] == ["to", "to", f"torch.{function.__name__}"]
    check(under(lambda x, y: function([x, y])), values(3, dtype=BFLOAT16), values(3, dtype=BFLOAT16))


def test_out_is_not_under_autocast():
    def program(x, y):
        out = torch.empty(3, 3)
        torch.mm(x, y, out=out)
        return out

    check(under(program), values(3, 3), values(3, 3))


def test_unaffected_ops_stay_as_they_are():
    trace = check(under(lambda x: (x + 1).exp().sum(0)), values(3, 4))
    assert [bound.symbol.name for bound in trace.symbols] == ["torch.add", "torch.exp", "torch.sum"]


# ---- regions ---------------------------------------------------------------------------------------------------------


def test_nested_and_disabled_regions():
    def program(x, w):
        y = x @ w
        with torch.autocast("cpu", dtype=FLOAT16):
            z = y @ w
            with torch.autocast("cpu", enabled=False):
                u = x @ w
        return y, z, u, u @ w

    # eager's cache knows one dtype for each parameter, so that it fails with parameters here
    check(under(program), values(4, 4), values(4, 4))


def test_the_whole_program_under_autocast():
    def program(x, w):
        with torch.autocast("cpu", enabled=False):
            y = x @ w
        return y @ w

    x, w = values(4, 4), parameter(4, 4)
    with torch.autocast("cpu", dtype=BFLOAT16):
        expected = program(x, w)
        acquired = acquire_program(program, x, w)
        result = explicit(acquired)
        assert lines_under_autocast(result.computation) == []
        run = without_autocast(lambda *inputs: run_functionalized(result, list(inputs)))
        (actual,) = run(*acquired.inputs)
        assert torch.is_autocast_enabled("cpu")
    assert actual.dtype is expected.dtype is BFLOAT16
    assert torch.equal(actual, expected)


def test_without_autocast_restores_it_after_an_error():
    def fail():
        assert not torch.is_autocast_enabled("cpu")
        raise ValueError

    with torch.autocast("cpu"):
        with pytest.raises(ValueError):
            without_autocast(fail)()
        assert torch.is_autocast_enabled("cpu")


def test_programs_without_autocast_run_as_they_are(monkeypatch):
    changed = []

    def recorded(function):
        changed.append(function)
        return without_autocast(function)

    monkeypatch.setattr(run_function, "without_autocast", recorded)
    thunder.jit(lambda x: x + 1)(torch.ones(2))
    assert changed == []
    with torch.autocast("cpu"):
        thunder.jit(lambda x: x + 1)(torch.ones(2))
    assert len(changed) == 1


def test_gradient_modes_stay():
    def program(x, w):
        with torch.no_grad():
            y = x @ w
        return y, x @ w

    trace = check(under(program, cache_enabled=False), values(4, 4), parameter(4, 4))
    assert any(bound.context is not None and not bound.context.grad_enabled for bound in trace.symbols)


# ---- the cache of converted parameters -------------------------------------------------------------------------------


def test_a_parameter_is_converted_once():
    trace = check(under(lambda x, w: functional.linear(functional.linear(x, w), w)), values(2, 4), parameter(4, 4))
    assert conversions(trace, "a1") == 1


def test_everything_else_is_converted_for_each_use():
    trace = check(under(lambda x, w: functional.linear(x, w) + functional.linear(x, w * 1)), values(2, 4), values(4, 4))
    assert conversions(trace, "a0") == 2
    trace = check(under(lambda x, w: (w * 1) @ x + x @ w), parameter(4, 4), values(4, 4))
    assert conversions(trace, "a0") == 1

    def computed(x, w):
        v = w * 2
        return x @ v + v @ x

    trace = check(under(computed), values(4, 4), parameter(4, 4))
    assert conversions(trace, trace.symbols[0].output.name) == 2


def test_without_the_cache_parameters_are_converted_for_each_use():
    program = under(lambda x, w: x @ w @ w, cache_enabled=False)
    assert conversions(check(program, values(4, 4), parameter(4, 4)), "a1") == 2


def test_the_parts_of_a_composition_use_the_cache():
    module = torch.nn.MultiheadAttention(4, 2)
    trace = check(under(lambda x: module(x, x, x)[0] + x @ module.out_proj.weight), values(3, 4, 4))
    weight = trace.symbols[-2].args[1].name
    assert sum(bound.symbol.name == "to" and bound.output.name == weight for bound in trace.symbols) == 1


def test_views_of_a_parameter_are_not_cached():
    trace = check(under(lambda x, w: x @ w + torch.einsum("ij,kj->ik", x, w)), values(4, 4), parameter(4, 4))
    assert conversions(trace, "a1") == 2
    assert trace.symbols[-2].symbol.name == "torch.einsum"


# ---- compositions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [torch.float32, BFLOAT16])
def test_cross_entropy(given):
    check(under(lambda x, y: functional.cross_entropy(x, y)), parameter(3, 4, dtype=given), torch.tensor([0, 2, 1]))


def test_multi_head_attention():
    module = torch.nn.MultiheadAttention(8, 2)
    trace = check(under(lambda x: module(x, x, x, need_weights=False)[0]), parameter(5, 2, 8))
    assert lines_under_autocast(trace) == []


@pytest.mark.slow
def test_recurrent_layers():
    gated = torch.nn.GRU(4, 4, 2)
    check(under(lambda x: gated(x)[0]), parameter(3, 2, 4))


@pytest.mark.skipif(not runs_lstm(BFLOAT16), reason="oneDNN has no LSTM in bfloat16 for this processor")
def test_recurrent_layers_with_memory():
    memory = torch.nn.LSTM(4, 4, 2)
    check(
        under(lambda x: memory(x)[0]), parameter(3, 2, 4), kept=None
    )  # its kernel depends on whether gradients are recorded


def test_random_ops_without_conversions_stay():
    trace = check(under(lambda x: functional.dropout(x, 0.5) @ x), parameter(4, 4))
    assert any(bound.effects.random for bound in trace.symbols)


def test_random_ops_with_a_class_are_converted():
    def program(x):
        return functional.scaled_dot_product_attention(x, x, x, dropout_p=0.5)

    check(under(program), parameter(1, 2, 4, 4))


@pytest.mark.parametrize("need_weights", [False, True])
def test_random_compositions(need_weights):
    module = torch.nn.MultiheadAttention(8, 2, dropout=0.5)
    check(under(lambda x: module(x, x, x, need_weights=need_weights)[0]), parameter(5, 2, 8))


def test_a_value_that_a_composition_converts_twice():
    with torch.library._scoped_library("thunder_autocast_test", "DEF") as library:
        library.define("twice(Tensor x, Tensor y) -> Tensor")
        library.impl("twice", lambda x, y: x @ y + (x @ y.mT).relu(), "CompositeImplicitAutograd")
        trace = check(
            under(lambda x, y: torch.ops.thunder_autocast_test.twice(x * 2, y)), parameter(4, 4), values(4, 4)
        )
        assert conversions(trace, trace.symbols[0].output.name) == 2


def test_what_is_hidden_from_autograd_stays_under_autocast():
    with torch.library._scoped_library("thunder_autocast_test", "DEF") as library:
        library.define("half_hidden(Tensor x) -> Tensor")
        library.impl("half_hidden", lambda x: x.exp() @ x + x.exp().detach() @ x, "CompositeImplicitAutograd")
        check(under(lambda x: torch.ops.thunder_autocast_test.half_hidden(x)), parameter(4, 4), kept=1)


def test_user_functions_stay_under_autocast():
    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x @ x

        @staticmethod
        def backward(ctx, gradient):
            return 3 * gradient.float()

    check(under(lambda x: Product.apply(x)), parameter(4, 4), kept=1)


def test_in_place_calls():
    def program(x, y):
        z = x * 1
        z += x @ y
        z.addmm_(x, y)
        z.mul_(2)
        return z

    check(under(program), values(4, 4), parameter(4, 4))


def test_written_statistics():
    x = values(3, 4)

    def program(x):
        return functional.batch_norm(x @ x.T @ x, mean, variance, training=True)

    mean, variance = torch.zeros(4), torch.ones(4)
    expected = under(program)(x)
    means = mean.clone()
    mean.zero_(), variance.fill_(1)
    acquired = acquire_program(under(program), x)
    result = explicit(acquired)
    assert lines_under_autocast(result.computation) == []
    (actual,) = run_functionalized(result, acquired.inputs)
    assert torch.equal(actual, expected)
    assert torch.equal(mean, means)


def test_checkpoint_regions():
    def program(x, w):
        return checkpoint.checkpoint(lambda y: (y @ w).cos() @ w, x, use_reentrant=False)

    check(under(program), parameter(4, 4), parameter(4, 4))


def test_a_trace_without_autocast_is_returned():
    trace = functionalize(acquire_program(lambda x: x @ x, values(4, 4)).trace).computation
    assert ExplicitAutocast().run(trace, PassContext()) is trace
