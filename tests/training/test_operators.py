"""Gradients of operators that choose, order, accumulate or factorise, also where a derivative is a convention."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.training import steps
from tests.training.steps import leaf
from thunder_testing import Comparison

check = functools.partial(
    steps.check, comparison=Comparison(rtol=1e-12, atol=1e-12, gradients=True, gradient_rtol=1e-9, gradient_atol=1e-9)
)


def spread() -> torch.Tensor:
    """No two elements are near each other, so that order does not depend on rounding."""
    return (torch.randperm(12).double() / 4 - 1.3).view(3, 4).requires_grad_()


def square() -> torch.Tensor:
    matrix = torch.randn(4, 4, dtype=torch.float64)
    return (matrix @ matrix.t() + torch.diag(torch.arange(1.0, 5.0, dtype=torch.float64))).requires_grad_()


def with_zeros() -> torch.Tensor:
    x = torch.randn(3, 4, dtype=torch.float64)
    x[0, 0] = x[1, 1] = x[1, 2] = 0.0
    x[2] = 0.0
    return x.requires_grad_()


def kinks() -> torch.Tensor:
    return torch.tensor([[-1.0, -0.5, 0.0, 0.5], [1.0, 0.0, 2.0, 2.0]], dtype=torch.float64, requires_grad=True)


INDEX = torch.tensor([[0, 2, 1, 0], [1, 1, 0, 2], [2, 0, 2, 1]])


def embedded_choice(x: torch.Tensor) -> Any:
    return x.gather(0, INDEX), x.scatter(0, INDEX, x.cos()), x.scatter_add(1, INDEX, x), x.take(INDEX)


PROGRAMS: dict[str, tuple[Callable[[torch.Tensor], Any], Callable[[], torch.Tensor]]] = {
    "sort": (lambda x: (*x.sort(1, descending=True), x.argsort(), *x.msort()), spread),
    "topk": (lambda x: (*x.topk(2), *x.kthvalue(2), *x.mode(0)), spread),
    "max with indices": (lambda x: (*x.max(1), *torch.min(x, 0, keepdim=True), *x.cummax(1), *x.median(1)), spread),
    "max of ties": (lambda x: (x.amax(1), x.max(), x.amin(), *x.max(1), x.median(), x.abs().amax()), kinks),
    "maximum of ties": (lambda x: (torch.maximum(x, x * 1), x.clamp(0.0, 1.0), x.clamp_min(0.5), x.relu()), kinks),
    "gather and scatter": (embedded_choice, spread),
    "scatter_reduce": (lambda x: [x.scatter_reduce(0, INDEX, x, how) for how in ("sum", "mean", "amax")], spread),
    "scatter_reduce, product": (lambda x: x.scatter_reduce(1, INDEX, x, "prod", include_self=False), with_zeros),
    "index": (lambda x: (x[INDEX[:, 0]], x.index_select(1, INDEX[0]), x[:, None, ::2], x[..., -1]), spread),
    "index_copy": (lambda x: (x.index_copy(0, INDEX[0][:2], x[:2]), x.index_fill(1, INDEX[0], 2.0)), spread),
    "cumulative": (lambda x: (x.cumsum(1), x.cumprod(0), x.logcumsumexp(1), x.diff(), x.flip(0).cumsum(0)), spread),
    "cumprod with zeros": (lambda x: (x.cumprod(1), x.cumprod(0)), with_zeros),
    "where": (lambda x: (torch.where(x > 0, x.sqrt(), x.exp()), torch.where(x > 0, 1.0, x), x.masked_fill(x < 0, 1)),
              with_zeros),
    "norm at zero": (lambda x: (x[2].norm(), x.norm(dim=1), x.norm(p=1, dim=0), torch.linalg.vector_norm(x[2], 3)),
                     with_zeros),
    "infinite norm": (lambda x: (x.norm(float("inf")), F.normalize(x), torch.cdist(x, x), F.pairwise_distance(x, x)),
                      with_zeros),
    "prod with zeros": (lambda x: (x.prod(), x.prod(1), x[:1].prod(1, keepdim=True), x[0].prod()), with_zeros),
    "moments": (lambda x: (x.std(), *torch.std_mean(x, 1), x.var(0, correction=0), x[:, :1].std(1, correction=0)),
                spread),
    "kinks": (lambda x: (x.abs(), x.sign(), F.hardtanh(x), F.relu6(x), F.threshold(x, 0.0, 1.0), F.hardshrink(x)),
              kinks),
    "powers": (lambda x: (x**2, x**0, torch.pow(2.0, x), x.square() ** 1.5, torch.pow(x.abs() + 1, x)), with_zeros),
    "remainders": (lambda x: (x % 0.7, torch.fmod(x, 0.7), x.frac(), torch.atan2(x, x + 3), torch.hypot(x, x)), spread),
    "svd": (lambda x: torch.linalg.svdvals(x), square),
    "svd vectors": (lambda x: (lambda u, s, v: (u.abs(), s, v.abs()))(*torch.linalg.svd(x)), square),
    "qr": (lambda x: torch.linalg.qr(x), square),
    "cholesky": (lambda x: (torch.linalg.cholesky(x), torch.cholesky_solve(x, torch.linalg.cholesky(x))), square),
    "solve": (lambda x: (torch.linalg.solve(x, x.t().sin()), x.inverse(), torch.linalg.lstsq(x, x.sin())[0]), square),
    "determinants": (lambda x: (x.det(), x.slogdet()[1], x.trace(), x.logdet(), x.matrix_power(3)), square),
    "eigenvalues": (lambda x: (torch.linalg.eigvalsh(x), torch.linalg.eigh(x)[1].abs()), square),
    "exponentials": (lambda x: (torch.matrix_exp(x / 9), x.logsumexp(0), x.softmax(1), x.log_softmax(0)), square),
    "products": (lambda x: (x @ x[0], torch.einsum("ij,kj->ik", x, x), torch.kron(x, x[:1]), torch.outer(x[0], x[1]),
                            x.addmm(x, x), torch.tensordot(x, x), torch.bmm(x[None], x[None]), torch.vdot(x[0], x[1])),
                 square),
    "shapes": (lambda x: (x.repeat(2, 1), x.roll(1), x.tril(), torch.cat([x, x[:1]]), torch.stack([x, x]), x.diag(),
                          x.unfold(0, 2, 1), F.pad(x, (1, 1), "reflect"), x.repeat_interleave(2, 0), x.movedim(0, 1),
                          torch.block_diag(x, x), x.expand(2, 4, 4), x.rot90(), x.as_strided((2, 2), (1, 3))),
               square),
    "losses": (lambda x: (F.cross_entropy(x, INDEX[0]), F.mse_loss(x, x * 2), F.huber_loss(x, x * 0),
                          F.l1_loss(x, x.sin()), F.kl_div(x.log_softmax(1), x.softmax(0)),
                          F.cross_entropy(x, x.softmax(1), label_smoothing=0.1),
                          F.binary_cross_entropy_with_logits(x, x.sigmoid()), F.nll_loss(x, INDEX[0], ignore_index=0)),
               square),
    "fourier": (lambda x: (torch.fft.rfft(x).abs(), torch.fft.ifft2(x).real, torch.view_as_real(torch.fft.fft(x))),
                square),
    "sampling": (lambda x: (F.grid_sample(x[None, None], x.view(1, 4, 2, 2).tanh(), align_corners=False),
                            F.interpolate(x[None, None], scale_factor=2.0, mode="bicubic")), square),
    "special": (lambda x: (torch.special.erfcx(x), torch.lgamma(x.abs() + 1), torch.digamma(x.abs() + 1), torch.i0(x),
                           torch.special.xlogy(x, x.abs() + 1), torch.sinc(x), torch.logit(x.sigmoid())), with_zeros),
}  # fmt: skip


OF_EACH_KIND = (
    "maximum of ties", "scatter_reduce, product", "cumprod with zeros", "norm at zero", "kinks", "svd vectors",
    "shapes",
)  # fmt: skip


@pytest.mark.parametrize("name", OF_EACH_KIND)
def test_an_operator_of_each_kind(name: str) -> None:
    check_operator(name)


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in OF_EACH_KIND])
@pytest.mark.battery
def test_operator(name: str) -> None:
    check_operator(name)


def check_operator(name: str) -> None:
    program, make = PROGRAMS[name]
    check(program, lambda: (make(),))


@pytest.mark.parametrize("name", ["svd vectors", "sort", "norm at zero", "losses", "gather and scatter", "products"])
def test_operator_whose_results_are_used_in_part(name: str) -> None:
    """One result reaches the loss; the cotangents of the others are absent."""
    program, make = PROGRAMS[name]

    def first(x: torch.Tensor) -> Any:
        results = program(x)
        return results[0] * 2

    def last(x: torch.Tensor) -> Any:
        floating = [result for result in program(x) if result.is_floating_point()]
        return floating[-1] * 2

    for chosen in (first, last):
        check(chosen, lambda: (make(),))


@pytest.mark.parametrize("kind", ["sampled", "rsample", "noise"])
def test_random_programs(kind: str) -> None:
    def program(x: torch.Tensor) -> Any:
        if kind == "sampled":
            return x * torch.bernoulli(x.detach().sigmoid()), x.softmax(-1).multinomial(2), F.gumbel_softmax(x)
        if kind == "rsample":
            return torch.distributions.Normal(x, x.exp(), validate_args=False).rsample()
        return x * torch.randn_like(x), F.rrelu(x, training=True), x + torch.rand(4).cumsum(0)

    steps.check(program, lambda: (leaf(3, 4),))
