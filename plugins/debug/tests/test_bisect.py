"""The line that an executor gets wrong."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import thunder
from thunder_core.executors import Claim, Claimed, Declined, DerivativePair, Executor, OperatorExecutor
from thunder_core.executors.configured import ConfiguredExecutor
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.symbol import Symbol, Tag
from thunder_core.symbols.registry import registry
from thunder_plugin_debug import Bisect, DebugWarning, Divergence, DivergenceError


def program(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    y = x @ weight
    y = F.gelu(y)
    y = F.silu(y)
    return (y * 2 + 1).sum()


def arguments(*, grad: bool = True) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x, weight = torch.randn(3, 4, generator=generator), torch.randn(4, 5, generator=generator)
    return x.requires_grad_(grad), weight.requires_grad_(grad)


def bisected(*executors: Executor, function: Callable[..., Any] = program, **options: Any) -> tuple[Bisect, Any]:
    bisect = Bisect(**{"action": "record", **options})
    return bisect, thunder.jit(function, executors=list(executors), transforms=[bisect])


def only(bisect: Bisect) -> Divergence:
    (divergence,) = bisect.divergences
    return divergence


def executor(symbol: Any, **claim: Any) -> OperatorExecutor:
    return OperatorExecutor("tested", (Claim(symbol, **claim),))


@pytest.mark.parametrize("grad", [False, True])
def test_wrong_kernel(wrong_gelu: Executor, right_silu: Executor, grad: bool) -> None:
    bisect, compiled = bisected(right_silu, wrong_gelu)
    compiled(*arguments(grad=grad))
    divergence = only(bisect)
    assert (divergence.executor, divergence.line.operation) == ("wrong_gelu", "torch.nn.functional.gelu")
    assert divergence.line.phase == ("forward" if grad else "inference")
    assert divergence.location is not None
    assert divergence.location.text == "y = F.gelu(y)"
    assert divergence.greatest == pytest.approx(1e-2, rel=1e-3)
    assert bisect.comparisons == 2


def test_the_error(wrong_gelu: Executor) -> None:
    _, compiled = bisected(wrong_gelu, action="error")
    with pytest.raises(DivergenceError) as raised:
        compiled(*arguments())
    lines = str(raised.value).splitlines()
    assert lines[0] == "wrong_gelu differs from the reference in torch.nn.functional.gelu, in forward"
    assert lines[1].startswith(
        "  t1 differs in 15 of 15 elements by more than rtol=0.0001 and atol=1.17549e-38 allow; the"
    )
    assert lines[2].endswith("in program: y = F.gelu(y)")
    assert (
        "  - exclude it from the executor: executors: [{wrong_gelu: {exclude: ['torch.nn.functional.gelu']}}]" in lines
    )
    assert raised.value.divergence.executor == "wrong_gelu"


def test_what_is_advised_repairs_it(wrong_gelu: Executor) -> None:
    bisect, compiled = bisected(ConfiguredExecutor(wrong_gelu, exclude=("torch.nn.functional.gelu",)))
    torch.testing.assert_close(compiled(*arguments()), program(*arguments()))
    assert bisect.divergences == ()


def test_wrong_backward(wrong_silu: Executor) -> None:
    bisect, compiled = bisected(wrong_silu)
    loss = compiled(*arguments())
    assert bisect.divergences == ()  # forward is right
    loss.backward()
    divergence = only(bisect)
    assert divergence.line.phase == "backward"
    assert divergence.line.operation == "the gradient of torch.nn.functional.silu"
    assert divergence.line.function.endswith("_silu_gradient_off")
    assert divergence.location is not None
    assert divergence.location.text == "y = F.silu(y)"
    assert bisect.comparisons == 2


def test_right_executors(right_silu: Executor, fusion: Any) -> None:
    bisect, compiled = bisected(right_silu, fusion(), action="error")
    ours, theirs = arguments(), arguments()
    compiled(*ours).backward()
    program(*theirs).backward()
    torch.testing.assert_close([tensor.grad for tensor in ours], [tensor.grad for tensor in theirs])
    assert bisect.comparisons >= 4  # silu, forward and backward, and a region in each program
    assert bisect.skipped == ()


@pytest.mark.parametrize(
    ("wrong", "suspects", "text"),
    [
        ("torch.mul", ("torch.sin", "torch.mul"), "y = torch.sin(x) * 2"),
        ("torch.exp", ("torch.exp",), "z = torch.exp(y)"),
    ],
)
def test_wrong_line_of_a_fused_region(fusion: Any, wrong: str, suspects: tuple[str, ...], text: str) -> None:
    """Operations on which a right result of the region depends are right."""

    def pointwise(x: torch.Tensor) -> Any:
        y = torch.sin(x) * 2
        z = torch.exp(y)
        return y, z

    bisect, compiled = bisected(fusion(wrong), function=pointwise)
    compiled(torch.randn(5))
    divergence = only(bisect)
    assert divergence.executor == "wrong_fusion"
    assert divergence.line.operation == "torch.sin + torch.mul + torch.exp"
    assert divergence.suspects == suspects
    assert divergence.location is not None
    assert divergence.location.text == text
    assert len(divergence.differences) == (2 if wrong == "torch.mul" else 1)
    assert f"the wrong operation is {' or '.join(suspects)}" in divergence.problem
    assert f"exclude: {list(suspects)}" in divergence.advice[0]


def test_regions_that_are_equal_are_told_apart(fusion: Any) -> None:
    """Compiled once, they run at two lines of the user."""

    def two(x: torch.Tensor) -> torch.Tensor:
        y = torch.exp(x)
        y = y.sum(0, keepdim=True)
        return torch.exp(y)

    bisect, compiled = bisected(fusion("torch.exp"), function=two)
    compiled(torch.zeros(1))
    assert [found.location.text for found in bisect.divergences if found.location] == [
        "y = torch.exp(x)",
        "return torch.exp(y)",
    ]


def test_backward_of_a_fused_region(fusion: Any) -> None:
    bisect, compiled = bisected(fusion("torch.cos"), function=lambda x: torch.sin(x).sum())
    compiled(torch.randn(5, requires_grad=True)).backward()
    divergence = only(bisect)
    assert divergence.line.phase == "backward"
    assert "torch.cos" in divergence.suspects


def test_warnings(wrong_gelu: Executor) -> None:
    bisect, compiled = bisected(wrong_gelu, action="warn")
    with pytest.warns(DebugWarning, match="wrong_gelu differs from the reference") as caught:
        compiled(*arguments())
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled(*arguments())
    assert len(bisect.divergences) == 1


@pytest.mark.parametrize(
    ("run", "text"),
    [
        (lambda x: F.gelu(x).t().contiguous().t(), "has strides (1, 2) instead of (3, 1)"),
        (lambda x: F.gelu(x).double(), "has dtype torch.float64 instead of torch.float32"),
        (lambda x: F.gelu(x)[:1], "has shape (1, 3) instead of (2, 3)"),
        (lambda x: (F.gelu(x), 1), "it returns (a tensor, int) instead of a tensor"),
        (lambda x: F.gelu(x.clone()).fill_(float("nan")), "differs in 6 of 6 elements"),
        (lambda x: x.mul_(1.0) * 0 + F.gelu(x), "writes to its arguments"),
    ],
    ids=["strides", "dtype", "shape", "form", "nan", "write"],
)
def test_other_differences(run: Callable[..., Any], text: str) -> None:
    bisect, compiled = bisected(executor(F.gelu, run=run), function=lambda x: F.gelu(x), action="error")
    with pytest.raises(DivergenceError) as raised:
        compiled(torch.randn(2, 3))
    assert text in str(raised.value)
    assert len(bisect.divergences) == 1


def test_tolerances(wrong_gelu: Executor) -> None:
    for options, expected in (({}, 1), ({"rtol": 1.0}, 0), ({"atol": 1.0}, 0), ({"atol": 0.001}, 1)):
        bisect, compiled = bisected(wrong_gelu, **options)
        compiled(*arguments())
        assert len(bisect.divergences) == expected


def test_patterns(wrong_gelu: Executor, wrong_silu: Executor) -> None:
    bisect, compiled = bisected(wrong_gelu, wrong_silu, include=("*silu*",))
    compiled(*arguments()).backward()
    assert only(bisect).executor == "wrong_silu"
    bisect, compiled = bisected(wrong_gelu, wrong_silu, exclude=("*silu*",))
    compiled(*arguments()).backward()
    assert only(bisect).executor == "wrong_gelu"
    bisect, compiled = bisected(wrong_gelu, wrong_silu, include=("torch.nn.functional.silu",))  # with its gradient
    compiled(*arguments()).backward()
    assert (only(bisect).executor, bisect.comparisons) == ("wrong_silu", 2)
    bisect, compiled = bisected(wrong_gelu, wrong_silu, exclude=("torch.nn.functional.silu",))
    compiled(*arguments()).backward()
    assert only(bisect).executor == "wrong_gelu"
    assert "with_arguments" not in str(thunder.last_backward_traces(compiled)[0])  # nothing is kept for other lines


def test_each_line_is_judged_by_itself(wrong_gelu: Executor, wrong_silu: Executor) -> None:
    bisect, compiled = bisected(wrong_gelu, wrong_silu)
    compiled(*arguments()).backward()
    assert [(found.executor, found.line.phase) for found in bisect.divergences] == [
        ("wrong_gelu", "forward"),
        ("wrong_silu", "backward"),
    ]


def test_gradient_of_one_argument(wrong_silu: Executor) -> None:
    """A backward that is made later."""
    bisect, compiled = bisected(wrong_silu)
    x, weight = arguments()
    torch.autograd.grad(compiled(x, weight), weight)
    assert only(bisect).line.phase == "backward"


def test_retained_graph_and_second_call(wrong_silu: Executor) -> None:
    bisect, compiled = bisected(wrong_silu)
    x, weight = arguments()
    loss = compiled(x, weight)
    first = torch.autograd.grad(loss, x, retain_graph=True)
    torch.testing.assert_close(torch.autograd.grad(loss, x), first)
    compiled(x, weight).backward()
    assert only(bisect).line.phase == "backward"
    assert bisect.comparisons == 2 + 3  # two calls of forward, three of backward


def product_forward(x: torch.Tensor, y: torch.Tensor) -> Any:
    return x * y, (x, y)


def product_backward(residuals: Any, cotangents: Any, wanted: Any) -> Any:
    (x, y), (cotangent,) = residuals, cotangents
    return cotangent * y if wanted[0] else None, cotangent * x * 1.5 if wanted[1] else None


WRONG_PRODUCT = OperatorExecutor(
    "products", (Claim(torch.mul, derivative=DerivativePair(product_forward, product_backward)),)
)


def test_one_tensor_as_two_arguments() -> None:
    bisect, compiled = bisected(WRONG_PRODUCT, function=lambda x: torch.mul(x, x).sum())
    compiled(torch.randn(3, requires_grad=True)).backward()
    assert len(only(bisect).differences) == 1  # the first of the two gradients is right


def test_several_calls_at_one_line() -> None:
    """Each backward is compared with the arguments of its forward, also if several have one line."""

    def powers(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = torch.mul(x, y)
        return x.sum()

    right = DerivativePair(
        product_forward,
        lambda residuals, cotangents, wanted: (cotangents[0] * residuals[1], cotangents[0] * residuals[0]),
    )
    bisect, compiled = bisected(executor(torch.mul, derivative=right), function=powers)
    compiled(torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)).backward()
    assert (bisect.divergences, bisect.comparisons, bisect.skipped) == ((), 6, ())


def test_unwanted_gradients() -> None:
    bisect, compiled = bisected(WRONG_PRODUCT, function=lambda x, y: torch.mul(x, y).sum())
    compiled(torch.randn(3, requires_grad=True), torch.randn(3)).backward()
    assert bisect.divergences == ()
    assert bisect.comparisons == 2


def test_arguments_without_gradients() -> None:
    """Integers can have none."""

    def rows(ids: torch.Tensor, weight: torch.Tensor) -> Any:
        return weight[ids], (ids, weight)

    def rows_gradient(residuals: Any, cotangents: Any, wanted: Any) -> Any:
        ids, weight = residuals
        return None, torch.zeros_like(weight).index_add(0, ids, cotangents[0])

    pair = executor(F.embedding, derivative=DerivativePair(rows, rows_gradient))
    bisect, compiled = bisected(pair, function=lambda ids, weight: F.embedding(ids, weight).sum(), action="error")
    compiled(torch.tensor([1, 0, 1]), torch.randn(3, 2, requires_grad=True)).backward()
    assert (bisect.comparisons, bisect.skipped) == (2, ())


def test_checkpoint(wrong_silu: Executor) -> None:
    """What forward took is computed again in backward, as everything in the region is."""

    def region(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return F.silu(torch.sin(x @ weight)).exp()

    def checkpointed(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return checkpoint(region, x, weight, use_reentrant=False).sum()

    bisect, compiled = bisected(wrong_silu, function=checkpointed)
    compiled(*arguments()).backward()
    assert only(bisect).executor == "wrong_silu"
    assert bisect.skipped == ()


def test_saved_on_another_device(wrong_silu: Executor) -> None:
    """Arguments are found again, though hooks make other tensors of what is saved."""
    bisect, compiled = bisected(wrong_silu)
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor.clone(), lambda tensor: tensor.clone()):
        loss = compiled(*arguments())
    loss.backward()
    assert only(bisect).line.phase == "backward"


def test_random_lines_draw_the_same_numbers() -> None:
    """The reference draws what the executor drew, and the program goes on where the executor left the generator."""
    same = executor(torch.rand_like, run=lambda x: torch.rand_like(x))
    other = executor(torch.rand_like, run=lambda x: torch.rand_like(x).square())

    def noisy(x: torch.Tensor) -> torch.Tensor:
        return torch.rand_like(x) + torch.randn_like(x)

    x = torch.zeros(4)
    for tested, expected in ((same, 0), (other, 1)):
        bisect, compiled = bisected(tested, function=noisy)
        plain = thunder.jit(noisy, executors=[tested])
        torch.manual_seed(3)
        wanted, state = plain(x), torch.get_rng_state()
        torch.manual_seed(3)
        torch.testing.assert_close(compiled(x), wanted, rtol=0, atol=0)
        assert torch.equal(torch.get_rng_state(), state)
        assert len(bisect.divergences) == expected
        assert bisect.comparisons == 1


def test_pair_that_draws_random_numbers() -> None:
    def forward(x: torch.Tensor, p: float = 0.5, training: bool = True) -> Any:
        mask = (torch.rand_like(x) >= p) / (1 - p)
        return x * mask, (mask,)

    pair = DerivativePair(forward, lambda residuals, cotangents, wanted: (cotangents[0] * residuals[0],))
    bisect, compiled = bisected(executor(F.dropout, derivative=pair), function=lambda x: F.dropout(x, 0.5).sum())
    compiled(torch.randn(4, requires_grad=True)).backward()
    assert [found.reason for found in bisect.skipped] == ["its forward draws random numbers"]


def test_lines_with_effects_run_once() -> None:
    calls = []

    def count(x: torch.Tensor) -> torch.Tensor:
        calls.append(x)
        return torch.sin(x)

    def forward(x: torch.Tensor) -> Any:
        calls.append(x)
        return torch.sin(x), (x,)

    impure = DerivativePair(
        forward,
        lambda residuals, cotangents, wanted: (cotangents[0] * residuals[0].cos(),),
        fake=lambda x: (torch.sin(x), (x,)),
        pure=False,
    )
    bisect, compiled = bisected(executor(torch.sin, derivative=impure), function=lambda x: torch.sin(x).sum())
    compiled(torch.randn(3, requires_grad=True)).backward()
    assert len(calls) == 1
    assert [found.reason for found in bisect.skipped] == ["it has effects, which must not be repeated"]
    assert (bisect.divergences, bisect.comparisons) == ((), 1)  # backward

    calls.clear()
    bisect, compiled = bisected(executor(torch.sin, run=count), function=torch.sin)
    compiled(torch.randn(3))
    assert len(calls) == 1  # the reference calls PyTorch's own
    assert bisect.comparisons == 1


def test_a_reference_that_fails() -> None:
    """PyTorch may lack what an executor has: the program goes on, and the line counts as not compared."""

    def refuses(x: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("not implemented for 'Half'")

    reference = replace(registry.symbol_of(torch.sin), target=refuses)
    kernel = Symbol("kernel", torch.sin, tags=frozenset({Tag.LOCAL}), executor="tested", reference=reference)

    @dataclass(frozen=True)
    class Tested(Executor):
        name: str = "tested"

        def claim(self, bound: BoundSymbol) -> Claimed | Declined:
            return Claimed(self.name, kernel)

    bisect, compiled = bisected(Tested(), function=lambda x: torch.sin(x), action="error")
    torch.testing.assert_close(compiled(torch.ones(3)), torch.ones(3).sin())
    (skipped,) = bisect.skipped
    assert skipped.reason == "the reference failed with RuntimeError: not implemented for 'Half'"
    assert bisect.comparisons == 0


def test_states() -> None:
    """A line with a state runs once for each call, with its state; the reference has none."""

    class Scale:
        calls = 0

    def scaled(state: Scale, x: torch.Tensor) -> torch.Tensor:
        state.calls += 1
        return torch.sin(x) * state.calls

    stateful = executor(torch.sin, run=scaled, state=lambda bound: Scale())
    bisect, compiled = bisected(stateful, function=lambda x: torch.sin(x))
    x = torch.ones(2)
    torch.testing.assert_close([compiled(x), compiled(x)], [torch.sin(x), torch.sin(x) * 2])
    assert bisect.comparisons == 2
    assert only(bisect).greatest == pytest.approx(x.sin().max().item())


def test_programs_without_executors() -> None:
    bisect, compiled = bisected(action="error")
    compiled(*arguments()).backward()
    assert (bisect.comparisons, bisect.skipped) == (0, ())


def test_wrong_option() -> None:
    with pytest.raises(thunder.ThunderError, match="use one of 'error', 'warn', 'record'"):
        Bisect(action="log")  # type: ignore[arg-type]
