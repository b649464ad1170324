"""What kernels of Inductor would do otherwise than PyTorch's: values, dtypes, errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import thunder
from thunder_plugin_inductor import compilers

pytestmark = pytest.mark.skipif(
    compilers.missing_compiler("cpu") is not None, reason=str(compilers.missing_compiler("cpu"))
)


def same(program: Callable[..., Any], *args: torch.Tensor) -> Any:
    """The compiled program, which does as eager."""
    compiled = thunder.jit(program, executors=["inductor"])
    expected, actual = program(*args), compiled(*args)
    for one, other in zip(actual, expected, strict=True):
        assert one.dtype is other.dtype
        torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)
    return compiled


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.slow
def test_remainders(dtype: torch.dtype) -> None:
    values = torch.tensor([1.0, -1.0, 0.0, -0.0, 5.5, -7.25, 1e30, torch.inf, -torch.inf, torch.nan], dtype=dtype)
    x, y = torch.cartesian_prod(values, values).unbind(1)

    def program(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        return [torch.remainder(x, y) * 1, (x % 2.5) * 1, (5 % y) * 1, (x % torch.inf) * 1]

    same(program, x.contiguous(), y.contiguous())
    same(lambda x, y: [x % y + 0, x % 3 + 0], torch.tensor([5, -5, 7]), torch.tensor([3, 3, -4]))


@pytest.mark.slow
def test_sums_of_bools() -> None:
    x, y = torch.tensor([True, True, False, False] * 9), torch.tensor([True, False, True, False] * 9)
    same(lambda x, y: [torch.add(x, y, alpha=a) ^ False for a in (0, 1, 3, True, False)], x, y)


@pytest.mark.slow
def test_any_of_uint8() -> None:
    x = torch.tensor([[1, 0, 0], [3, 4, 0]], dtype=torch.uint8)
    same(lambda x: [(x * 1).any(1), (x * 1).any(), (x * 1).any(0, keepdim=True), (x * 1).all(0), (x > 0).any(1)], x)


@pytest.mark.slow
def test_integers_divided_by_zero() -> None:
    compiled = same(
        lambda x, y: [torch.div(x, y, rounding_mode="trunc") + 1, torch.div(x * 1.5, y, rounding_mode="trunc") + 1],
        torch.tensor([5, 7, -3]),
        torch.tensor([1, -2, 2]),
    )
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        compiled(torch.tensor([5, 7, -3]), torch.tensor([1, 0, 2]))
    reasons = {reason for line in thunder.explain(compiled).decisions for _, reason in line.declined}
    assert "Inductor's kernel ends the process where an integer is divided by zero" in reasons


@pytest.mark.parametrize(
    "program",
    [
        lambda x, at: (x + 1)[at] * 2,
        lambda x, at: F.embedding(at, x + 1) * 2,
        lambda x, at: F.cross_entropy(x * 2, at),
    ],
    ids=["index", "embedding", "cross_entropy"],
)
@pytest.mark.slow
def test_indices_out_of_range_are_index_errors(program: Callable[..., Any]) -> None:
    x, at = torch.randn(4, 4), torch.tensor([0, 1, 2, 9])
    for each in (program, thunder.jit(program, executors=["inductor"])):
        with pytest.raises(IndexError, match=r"out of (range|bounds)") as raised:
            each(x, at)
        assert type(raised.value) is IndexError


X, SOURCE = torch.randn(4, 4), torch.randn(4, 4)
INDEXED: dict[str, Callable[..., torch.Tensor]] = {
    "index": lambda x, at: x[at],
    "index_put": lambda x, at: torch.index_put(x, (at,), SOURCE),
    "index_select": lambda x, at: torch.index_select(x, 0, at),
    "index_select_columns": lambda x, at: torch.index_select(x, -1, at.int()),
    "index_select_scalar": lambda x, at: torch.index_select(x.sum(), 0, at[1:2]),
    "index_add": lambda x, at: torch.index_add(x, 0, at, SOURCE),
    "index_add_columns": lambda x, at: torch.index_add(x, 1, at, SOURCE, alpha=2),
    "index_copy": lambda x, at: torch.index_copy(x, 0, at, SOURCE),
    "index_copy_columns": lambda x, at: torch.index_copy(x, -1, at, SOURCE),
    "index_fill": lambda x, at: torch.index_fill(x, 0, at, 3.0),
    "index_fill_tensor": lambda x, at: torch.index_fill(x, 1, at, torch.tensor(3.0)),
    "gather": lambda x, at: torch.gather(x, 0, at.expand(4, 4)),
    "scatter": lambda x, at: torch.scatter(x, 0, at.unsqueeze(1), 2.0),
    "scatter_add": lambda x, at: torch.scatter_add(x, 0, at.unsqueeze(1), SOURCE),
    "scatter_reduce": lambda x, at: torch.scatter_reduce(x, 0, at.unsqueeze(1), SOURCE, "amax"),
    "embedding": lambda x, at: F.embedding(at, x),
    "embedding_bag": lambda x, at: F.embedding_bag(at.unsqueeze(0), x),
    "one_hot": lambda x, at: F.one_hot(at, 4) + x,
    "one_hot_matrix": lambda x, at: F.one_hot(at.view(2, 2), 4).flatten(0, 1) * x,
    "take": lambda x, at: torch.take(x[0], at),
    "put": lambda x, at: torch.put(x[0], at, SOURCE[0]),
    "take_along_dim": lambda x, at: torch.take_along_dim(x, at.unsqueeze(1), 0),
    "cross_entropy": lambda x, at: F.cross_entropy(x, at),
    "nll_loss": lambda x, at: F.nll_loss(x, at, reduction="none"),
    "multi_margin_loss": lambda x, at: F.multi_margin_loss(x, at),
    "max_unpool": lambda x, at: F.max_unpool2d(x.view(1, 4, 2, 2), at.view(1, 1, 2, 2).expand(1, 4, 2, 2), 1),
}


BY_GATHER = {
    "index_select", "index_select_columns", "gather", "embedding", "one_hot", "one_hot_matrix",
    "cross_entropy", "nll_loss", "multi_margin_loss",
}  # fmt: skip
"""What Inductor computes by `gather`, with whose negative indices it counted from the end: in 2.11, not in 2.13."""
COUNTS_FROM_END = tuple(map(int, torch.__version__.split(".")[:2])) < (2, 13)


FUSED = ("index_select", "index_add", "index_copy", "index_fill", "embedding", "one_hot")
"""Operators whose indices kernels check, so that they are in regions."""
TYPICAL = ("index", "index_add", "embedding")


@pytest.mark.parametrize("name", TYPICAL)
@pytest.mark.slow
def test_indices_count_from_the_end(name: str) -> None:
    check_indices(name)


@pytest.mark.battery
@pytest.mark.parametrize("name", [name for name in INDEXED if name not in TYPICAL])
def test_indices_count_from_the_end_where_they_do_in_eager(name: str) -> None:
    check_indices(name)


def _outcome(run: Callable[..., torch.Tensor], *args: torch.Tensor) -> torch.Tensor | Exception:
    try:
        return run(*args)
    except (IndexError, RuntimeError) as error:
        return error


def check_indices(name: str) -> None:
    """Compare with eager for indices of the range and beyond it, and look for the region."""
    program = INDEXED[name]
    negative = () if COUNTS_FROM_END and name in BY_GATHER else (-1, -4, -5)

    def around(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        return program(x + 1, at + 0) * 2

    compiled = thunder.jit(around, executors=["inductor"])
    for index in (3, 4, *negative):
        at = torch.tensor([1, index, 2, 0])
        expected, found = (_outcome(run, X, at) for run in (around, compiled))
        if not isinstance(expected, Exception):
            torch.testing.assert_close(found, expected)
            continue
        assert type(found) is type(expected)
        assert name.startswith("one_hot") or str(found) == str(expected)
    if name in FUSED:
        assert [line.symbol.name for line in thunder.last_traces(compiled)[-1].symbols] == ["inductor_region_1"]


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.slow
def test_binary_cross_entropy_checks_what_it_reads(reduction: str) -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.binary_cross_entropy(x * 1, y, reduction=reduction) * 2

    compiled, x, y = thunder.jit(program, executors=["inductor"]), torch.rand(50), torch.rand(50)
    torch.testing.assert_close(compiled(x, y), program(x, y))
    assert [line.symbol.name for line in thunder.last_traces(compiled)[-1].symbols] == ["inductor_region_1"]
    for call in (program, compiled):
        for bad in (1.5, -0.1, torch.nan):
            wrong = torch.cat([x[:-1], torch.tensor([bad])])
            with pytest.raises(RuntimeError, match="all elements of input should be between 0 and 1"):
                call(wrong, y)
            with pytest.raises(RuntimeError, match="all elements of target should be between 0 and 1"):
                call(x, wrong)


def test_labels_after_the_last_are_left_out() -> None:
    target = torch.tensor([[3, 0, -1, 1], [-1, 0, 0, 0], [0, 1, 2, 3], [2, -1, -1, -1]])
    for program in (F.multilabel_margin_loss, lambda x, y: F.multilabel_margin_loss(x, y, reduction="none")):
        compiled = thunder.jit(lambda x, y, loss=program: loss(x * 2, y) * 2, executors=["inductor"])
        torch.testing.assert_close(compiled(X, target), program(X * 2, target) * 2)


@pytest.mark.slow
def test_negative_powers_of_integers_are_errors() -> None:
    for call in (lambda x: (x + 1) ** -1 + 1, thunder.jit(lambda x: (x + 1) ** -1 + 1, executors=["inductor"])):
        with pytest.raises(RuntimeError, match="negative integer powers"):
            call(torch.tensor([1, 2]))
    same(lambda x: [(x + 1) ** 2 + 1, (x * 1.0) ** -1 + 1], torch.tensor([1, 3]))
