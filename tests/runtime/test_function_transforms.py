"""Function transforms inside of programs: their batching rules call operators below the torch functions."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.func import functional_call, grad, jacfwd, jacrev, jvp, vmap
from torch.nn import functional as F

import thunder


def in_place(row: torch.Tensor) -> torch.Tensor:
    value = row.clone()
    value.div_(3)
    value.mul_(2).add_(row)
    value[0] = 5
    return value.sub_(row).masked_fill_(row > 1, 0.5).index_add_(0, torch.tensor([0, 1]), row[:2])


def draws(row: torch.Tensor) -> torch.Tensor:
    return row + torch.rand(3) + torch.randn_like(row) + torch.randint(0, 4, (3,)) + torch.randperm(3)


DROPS: dict[str, Callable[..., Any]] = {
    "dropout": lambda row: F.dropout(row, 0.5),
    "alpha_dropout": lambda row: F.alpha_dropout(row, 0.3, training=True),
    "feature_alpha_dropout": lambda row: F.feature_alpha_dropout(row[None], 0.3, training=True),
    "dropout1d": lambda row: F.dropout1d(row[None], 0.3),
    "bernoulli_": lambda row: row.clone().bernoulli_(0.3),
    "draws": draws,
    "gradient": grad(lambda row: F.dropout(row * row, 0.5).sum()),
}


@pytest.mark.parametrize("randomness", ["different", "same"])
@pytest.mark.parametrize("name", DROPS)
def test_random_calls_of_each_row(name: str, randomness: str, check: Callable[..., None]) -> None:
    check(vmap(DROPS[name], randomness=randomness), lambda: (torch.rand(4, 3),), rounds=3)


@pytest.mark.parametrize("name", DROPS)
def test_random_calls_of_each_row_inside(name: str, check: Callable[..., None]) -> None:
    mapped = vmap(DROPS[name], randomness="different", chunk_size=2)
    check(lambda x: mapped(x * 2) + 1, lambda: (torch.rand(4, 3),), rounds=3)


@pytest.mark.parametrize(
    "program",
    [
        vmap(in_place),
        vmap(vmap(in_place)),
        lambda x: jvp(in_place, (x,), (x + 1,)),
        lambda x: jacrev(in_place)(x),
        lambda x: jacfwd(in_place)(x),
        lambda x: vmap(grad(lambda row: in_place(row * 1).sum()))(x),
        lambda x: grad(lambda value: vmap(in_place)(value).sum())(x),
        lambda x: grad(lambda value: vmap(DROPS["dropout"], randomness="different")(value).sum())(x),
    ],
    ids=["vmap", "vmap of vmap", "jvp", "jacrev", "jacfwd", "grad in vmap", "vmap in grad", "dropout in vmap in grad"],
)
def test_in_place(program: Callable[..., Any], check: Callable[..., None], request: pytest.FixtureRequest) -> None:
    shape = (2, 4, 3) if "vmap of vmap" in request.node.name else (4, 3) if "vmap" in request.node.name else (3,)
    check(program, lambda: (torch.rand(shape),), rounds=3)


WEIGHTS = torch.arange(9.0).view(3, 3)


def _row_written(v: torch.Tensor) -> torch.Tensor:
    z = v.new_zeros(3, 3)
    z[1] = v
    return (z * WEIGHTS).sum()


def _columns_written(v: torch.Tensor) -> torch.Tensor:
    z = v.new_zeros(3, 3)
    z[:, 1:] = v[:, None]
    return (z * WEIGHTS).sum()


def _diagonal_written(v: torch.Tensor) -> torch.Tensor:
    z = v.new_zeros(3, 3)
    z.diagonal(1).copy_(v[:2])
    return (z * WEIGHTS).sum()


def _view_of_a_view_written(v: torch.Tensor) -> torch.Tensor:
    z = v.new_zeros(3, 3)
    rows = z[1:]
    rows[:, 1:].mul_(2).add_(v[1:, None])
    z.narrow(1, 1, 2).add_(v[:, None])
    return (z * WEIGHTS).sum()


@pytest.mark.parametrize(
    "transform",
    [
        grad,
        lambda f: lambda x: jvp(f, (x,), (x + 1,)),
        lambda f: lambda x: vmap(grad(f))(torch.stack([x, x * 2])),
        jacfwd,
    ],
    ids=["grad", "jvp", "vmap_of_grad", "jacfwd"],
)
@pytest.mark.parametrize("function", [_row_written, _columns_written, _diagonal_written, _view_of_a_view_written])
@pytest.mark.slow
def test_writes_to_views_with_an_offset(
    function: Callable[..., Any], transform: Callable[..., Any], check: Callable[..., None]
) -> None:
    """Autograd takes the part of a cotangent that belongs to a view by the view's offset."""
    check(lambda x: transform(function)(x), lambda: (torch.rand(3),))


@pytest.mark.slow
def test_transforms_after_one_that_is_refused() -> None:
    """A refused program leaves PyTorch as it was: eager transforms of the thread work afterwards."""
    x, q = torch.rand(3), torch.tensor([0.25, 0.75])
    compiled = thunder.jit(lambda x: jvp(lambda v: torch.quantile(v, q), (x,), (x,))[1], executors=[])
    keys = torch._C._dispatch_tls_local_exclude_set()
    for _ in range(2):
        with pytest.raises(thunder.ThunderError, match=r"lerp_|torch\.equal"):  # by version of PyTorch
            compiled(x)
        assert torch._C._dispatch_tls_local_exclude_set() == keys
        torch.testing.assert_close((grad(torch.sum)(x), vmap(torch.sin)(x)), (torch.ones(3), x.sin()))


def test_gradients_of_each_sample(check: Callable[..., None]) -> None:
    layer = torch.nn.Linear(3, 2)

    def program(x: torch.Tensor) -> Any:
        parameters = {name: value.detach() for name, value in layer.named_parameters()}

        def loss(values: Any, row: torch.Tensor) -> torch.Tensor:
            return F.dropout(functional_call(layer, values, (row,)), 0.5).pow(2).sum()

        return vmap(grad(loss), in_dims=(None, 0), randomness="different")(parameters, x)

    check(program, lambda: (torch.rand(4, 3),), rounds=3)


EACH_FUNCTION = [
    (torch.mul, torch.float32, 2),
    (torch.add, torch.int64, 3.5),
    (torch.sub, torch.float64, True),
    (torch.div, torch.int64, 2),
    (torch.eq, torch.float32, 1j),
]
OTHERS = [
    case
    for case in itertools.product(
        (torch.mul, torch.add, torch.sub, torch.div, torch.eq),
        (torch.float32, torch.float64, torch.int64),
        (2, 3.5, True, 1j),
    )
    if case not in EACH_FUNCTION
]


@pytest.mark.parametrize(("function", "dtype", "number"), EACH_FUNCTION)
def test_number_that_is_not_mapped(
    function: Callable[..., Any], dtype: torch.dtype, number: complex, check: Callable[..., None]
) -> None:
    check_number(function, dtype, number, check)


@pytest.mark.parametrize(("function", "dtype", "number"), OTHERS)
@pytest.mark.battery
def test_numbers_that_are_not_mapped(
    function: Callable[..., Any], dtype: torch.dtype, number: complex, check: Callable[..., None]
) -> None:
    check_number(function, dtype, number, check)


def check_number(function: Callable[..., Any], dtype: torch.dtype, number: complex, check: Callable[..., None]) -> None:
    if function is torch.sub and number is True:
        number = 7
    values = torch.arange(1, 4).to(dtype)
    check(lambda x: vmap(function, in_dims=(0, None))(x, number), lambda: (values + 1,))
    check(lambda x: vmap(lambda row, scale: function(scale, row), in_dims=(0, None))(x, number), lambda: (values,))
