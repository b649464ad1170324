"""Sizes that values decide: lengths of results, and ints that are read from tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import thunder
from tests.values.test_programs import WithSizes, assert_same, outcome

Program = Callable[..., Any]
PROGRAMS: list[Program] = []
"""Functions of one float tensor of 24 elements, of which 2 to 22 are positive."""


def program(function: Program) -> Program:
    """Add a program to the table."""
    PROGRAMS.append(function)
    return function


def argument(positive: int, seed: int = 0) -> torch.Tensor:
    """24 elements in random order, of which so many are positive."""
    generator = torch.Generator().manual_seed(seed * 100 + positive)
    x = torch.rand(24, generator=generator) + 0.1
    x[positive:] *= -1
    return x[torch.randperm(24, generator=generator)]


# ---- lengths of results ----------------------------------------------------------------------------------------------


@program
def mean_by_length(x: torch.Tensor) -> Any:
    y = x[x > 0]
    return (y * 2).sum() / len(y)


@program
def masked(x: torch.Tensor) -> Any:
    y = x[x > 0]
    return y * 2, y.exp().sum(), y.shape, y.numel() * 3


@program
def masked_rows(x: torch.Tensor) -> Any:
    rows = x.reshape(24, 1) * torch.arange(3.0)
    kept = rows[x > 0]
    return kept @ kept.t(), kept.mean(0), kept.softmax(-1)


@program
def masked_select(x: torch.Tensor) -> Any:
    y = torch.masked_select(x, x > 0)
    return y.cumsum(0), y.flip(0)


@program
def nonzero(x: torch.Tensor) -> Any:
    index = (x > 0).nonzero()
    return x[index[:, 0]] * 2, index, index.shape[0]


@program
def nonzero_as_tuple(x: torch.Tensor) -> Any:
    rows, columns = (x.reshape(4, 6) > 0).nonzero(as_tuple=True)
    return x.reshape(4, 6)[rows, columns] + 1, rows * 6 + columns


@program
def where(x: torch.Tensor) -> Any:
    (index,) = torch.where(x > 0)
    return x[index].sin(), torch.zeros(index.shape[0], 2)


@program
def argwhere(x: torch.Tensor) -> Any:
    return torch.argwhere(x > 0).float() * 0.5, x * 2


@program
def unique(x: torch.Tensor) -> Any:
    numbers = (x.detach() * 10).long().relu()
    values, inverse, counts = torch.unique(numbers, return_inverse=True, return_counts=True)
    return values.float()[inverse] * x, counts.float() / values.shape[0]


@program
def unique_consecutive(x: torch.Tensor) -> Any:
    return torch.unique_consecutive((x > 0).long().cumsum(0)) * 2, x + 1


@program
def repeat_interleave(x: torch.Tensor) -> Any:
    y = torch.repeat_interleave(x, (x > 0).long())
    return y * torch.arange(y.shape[0])


@program
def bincount(x: torch.Tensor) -> Any:
    counts = torch.bincount((x > 0).long().cumsum(0))
    return counts.float() / counts.shape[0], x * 2


@program
def one_hot(x: torch.Tensor) -> Any:
    classes = F.one_hot((x > 0).long().cumsum(0))
    return classes.float().sum(0), classes.shape[1], x.exp()


@program
def two_lengths(x: torch.Tensor) -> Any:
    positive, rest = x[x > 0], x[x <= 0]
    return torch.cat([positive * 2, rest]), positive.shape[0] - rest.shape[0], positive.sum() / (len(rest) + 1)


@program
def written_by_mask(x: torch.Tensor) -> Any:
    y = x * 1
    y[x > 0] += 1
    y[x > 0.5] = 3.0
    return y


@program
def written_by_index(x: torch.Tensor) -> Any:
    index = (x > 0).nonzero()[:, 0]
    y = torch.zeros(24).index_put((index,), x[index] * 2)
    return torch.zeros(24).index_add(0, index, x[index]) + y


@program
def new_tensors_of_the_length(x: torch.Tensor) -> Any:
    y = x[x > 0]
    n = y.shape[0]
    return y + torch.arange(n), torch.full((n, 2), 1.5), torch.ones(2 * n).reshape(2, n) * y, y.new_zeros(n // 2)


@program
def through_a_linear(x: torch.Tensor) -> Any:
    torch.manual_seed(0)
    weight = torch.linspace(-1, 1, 12).reshape(4, 3)
    y = x[x > 0].reshape(-1, 1) * torch.ones(3)
    return F.layer_norm(F.linear(y, weight), (4,)).relu().sum(1)


@program
def squeezed(x: torch.Tensor) -> Any:
    y = x[x > 0]
    return y.squeeze().dim(), y.squeeze(0)[None].shape, (y[:, None] @ torch.ones(1, 3)).squeeze(0) * 2


@program
def strides(x: torch.Tensor) -> Any:
    y = x[x > 0][:, None] * torch.ones(3)
    return y.t().is_contiguous(), y.t().stride(), y.exp()


@program
def view_or_copy(x: torch.Tensor) -> Any:
    y = x[x > 0][:, None] * torch.ones(4)
    z = y.t().reshape(-1)
    z.add_(1)
    w = y.t().contiguous()
    y.mul_(2)
    return y, z, w


@program
def broadcast(x: torch.Tensor) -> Any:
    y = x[x > 0]
    return y * torch.arange(1.0, 2.0), y[:, None] * y, torch.where(y > 0.5, y, 0.0), y.expand(3, -1).sum(0)


@program
def printed(x: torch.Tensor) -> Any:
    y = x.detach()[x > 0]
    print(len(y), "of", x.shape[0], (x > 0.5).sum().item())
    return x * 2


# ---- ints ------------------------------------------------------------------------------------------------------------


@program
def sliced(x: torch.Tensor) -> Any:
    n = (x > 0).sum().item()
    return x[:n] * 2, x[n:].sum(), x[:n].sum() / n


@program
def narrowed(x: torch.Tensor) -> Any:
    n = (x > 0).sum().item()
    return x.narrow(0, 0, n).exp()


@program
def split(x: torch.Tensor) -> Any:
    n = (x > 0).sum().item()
    first, second = x.split([n, 24 - n])
    return first.sum() * second.sum(), first * 2


@program
def split_by_a_list(x: torch.Tensor) -> Any:
    first, second = x.split(torch.bincount((x > 0).long(), minlength=2).tolist())
    return first * 2, second.sum()


@program
def largest(x: torch.Tensor) -> Any:
    count = (x > 0).sum()
    return x.topk(count).values, x[: count // 2]


@program
def from_the_end(x: torch.Tensor) -> Any:
    n = (x > 0).sum().item()
    return x[-n:] * 2, x[n - 1], divmod(n, 4)


@program
def made(x: torch.Tensor) -> Any:
    n = (x > 0).sum().item()
    return torch.zeros(n, 3) + x[0], torch.arange(n), torch.full((n,), 1.0), torch.rand(2 * n), torch.ones(n // 2 + 1)


@program
def expanded(x: torch.Tensor) -> Any:
    n = (x > 0).sum().item()
    return x.expand(n, -1).sum(0), x[:1].expand(n) * 2, x.repeat(n).sum(), torch.ones(n, 4).view(n, -1)


@program
def compared(x: torch.Tensor) -> Any:
    n = (x > 0).sum().item()
    return x[:n] if n > 0 else x, n * 2, n / 3


# ---- gradients that the program computes itself ----------------------------------------------------------------------


@program
def own_gradient(x: torch.Tensor) -> Any:
    z = x.detach().requires_grad_()
    y = z[z > 0]
    (y**2).sum().backward()
    assert z.grad is not None
    return z.grad * len(y), z.grad[z.grad > 0]


@program
def own_gradient_of_several(x: torch.Tensor) -> Any:
    z = x.detach().requires_grad_()
    y, index = torch.repeat_interleave(z, (z > 0).long()), (z > 0).nonzero()[:, 0]
    (gradient,) = torch.autograd.grad((y * torch.masked_select(z, z > 0)).sum() + z[index].sum(), z)
    return gradient, y.shape[0]


ROUTED = torch.nn.Linear(4, 8), torch.nn.ModuleList([torch.nn.Linear(4, 4) for _ in range(8)]).requires_grad_(False)
ROUTED[0].requires_grad_(False)


@program
def experts(x: torch.Tensor) -> Any:
    router, layers = ROUTED
    tokens = x.reshape(6, 4)
    weights, chosen = router(tokens).softmax(-1).topk(2, -1)
    result = torch.zeros_like(tokens)
    for number, layer in enumerate(layers):
        token, place = torch.where(chosen == number)
        result = result.index_add(0, token, layer(tokens[token]) * weights[token, place, None])
    return result


LENGTHS = (7, 12, 3, 22, 5, 16, 2, 9, 20, 11, 4, 18, 6, 14, 21, 8, 13, 10, 17, 19)


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
@pytest.mark.battery
def test_few_programs_for_all_lengths(program: Program, training: bool) -> None:
    compiled = thunder.jit(program)
    for length in LENGTHS:
        x = argument(length)
        torch.manual_seed(1)
        expected = outcome(program, x, training=training)
        torch.manual_seed(1)
        assert_same(outcome(compiled, x, training=training), expected)
    report = thunder.explain(compiled)
    assert not report.fallbacks
    assert len(report.entries) <= 2, [entry.values for entry in report.entries]


def test_a_saved_program_is_for_one_length(tmp_path: Any) -> None:
    def program(x: torch.Tensor) -> Any:
        y = x[x > 0]
        return y * len(y), y.sum()

    compiled = thunder.jit(program)
    compiled(argument(5))
    thunder.save_trace(compiled, tmp_path / "saved.py")
    saved = thunder.load_trace(tmp_path / "saved.py")
    torch.testing.assert_close(saved(argument(5, 1)), program(argument(5, 1)))
    with pytest.raises(thunder.DataDependentError, match=r"\(5,\).* which now is .*\(6,\)"):
        saved(argument(6))


@pytest.mark.parametrize("names", [(0,), (1,), (0, 1)], ids=["first", "second", "both"])
def test_backward_from_some_results(names: tuple[int, ...]) -> None:
    def program(x: torch.Tensor, w: torch.Tensor) -> Any:
        y = x[x > 0]
        return (y**3).sum() / len(y), (y[:, None] * w).sin().sum(1)

    compiled = thunder.jit(program)
    for length in (5, 7, 12, 1):
        both = []
        for function in (compiled, program):
            x, w = argument(length).requires_grad_(), torch.linspace(0, 1, 3).requires_grad_()
            results = function(x, w)
            asked = [results[name].sum() for name in names]
            (first,) = torch.autograd.grad(sum(asked), x, create_graph=True)
            (second,) = torch.autograd.grad(first.sum(), x, retain_graph=True)
            both.append((first, second, *torch.autograd.grad(sum(asked), [x, w], allow_unused=True)))
        torch.testing.assert_close(*both)
    assert thunder.cache_misses(compiled) == 1


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
@pytest.mark.battery
def test_regions(program: Program, training: bool) -> None:
    executor = WithSizes()
    compiled = thunder.jit(program, executors=[executor])
    for length in (7, 12, 3):
        x = argument(length)
        assert_same(outcome(compiled, x, training=training), outcome(program, x, training=training))
    assert executor.regions or program.__name__.startswith("own_gradient")
    assert not thunder.explain(compiled).fallbacks


@pytest.mark.parametrize("program", [masked_rows, sliced])
@pytest.mark.slow
def test_inductor(program: Program) -> None:
    """The length of a result, with gradients; an int, without."""
    training = program is masked_rows
    compiled = thunder.jit(program, executors=["inductor"])
    for length in (7, 12, 0, 3, 1, 22):
        x = argument(length)
        assert_same(outcome(compiled, x, training=training), outcome(program, x, training=training))
    report = thunder.explain(compiled)
    assert not report.fallbacks
    assert len(report.entries) <= 3, [entry.values for entry in report.entries]


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
@pytest.mark.battery
def test_empty_and_single(program: Program, training: bool) -> None:
    compiled = thunder.jit(program)
    for length in (5, 0, 1, 9, 24, 23, 1, 0, 3):
        x = argument(length)
        try:
            expected = outcome(program, x, training=training)
        except (RuntimeError, ValueError, IndexError, ZeroDivisionError) as error:
            with pytest.raises(type(error)):
                outcome(compiled, x, training=training)
            continue
        assert_same(outcome(compiled, x, training=training), expected)
    assert not thunder.explain(compiled).fallbacks
