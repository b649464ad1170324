"""Programs that write: in-place calls, views, indexing, out=, buffers, attributes; and which objects stay the same."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from thunder_core.errors import DataDependentError, ThunderError
from thunder_testing import BehaviourMismatch


def t(*shape: int) -> torch.Tensor:
    return torch.randn(shape or (3, 4))


def in_place_on_intermediate(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    y.mul_(2).add_(x).relu_()
    y += 3
    y[0] = 7
    return y


def in_place_on_input(x: torch.Tensor) -> None:
    x.add_(1)
    x *= 2


def returns_mutated_input(x: torch.Tensor) -> Any:
    y = x.add_(1)
    return x, y, x[0], y.sum()


def write_through_view(x: torch.Tensor) -> Any:
    y = x * 1
    view = y[1:].t()
    view.zero_()
    view[0] += 5
    return y, view, y.sum()


def write_to_base_of_view(x: torch.Tensor) -> Any:
    y = x * 1
    view = y[0]
    y.fill_(3)
    return view, y, view + 1


def write_through_view_of_input(x: torch.Tensor) -> Any:
    x[:, 1:].view(-1) if x[:, 1:].is_contiguous() else None
    x[1].mul_(2)
    x.t()[0].copy_(torch.arange(3.0))
    return x.view(-1)[:2]


def chain_of_views(x: torch.Tensor) -> Any:
    y = x.clone()
    a = y.view(4, 3)
    b = a.transpose(0, 1)
    c = b[1]
    d = c.unsqueeze(0).expand(2, -1)
    a.add_(1)
    c.mul_(10)
    return y, a, b, c, d


def overlapping_slices(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[:2] = y[1:] * 2
    y[1:].add_(y[:2])
    return y


def as_strided_write(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y.as_strided((2, 2), (1, 4), 1).fill_(9)
    return y


def diagonal_write(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y.diagonal().zero_()
    y.select(0, 0).fill_(1)
    y.narrow(1, 1, 2).sub_(4)
    return y


def chunk_write(x: torch.Tensor) -> Any:
    y = x.clone()
    a, b = y.chunk(2, dim=1)
    a.add_(b)
    for row in y.unbind(0):
        row.mul_(2)
    return y, a, b


def alias_without_copy(x: torch.Tensor) -> Any:
    """`contiguous`, `to`, `reshape` and `flatten` return the same object or a view when nothing is to be done."""
    y = x.contiguous().to(x.dtype).float()
    z = x.reshape(-1)
    z.add_(1)
    return y, z, x.flatten(), x.expand(3, 4), x.view_as(x), x.detach()


def copy_when_needed(x: torch.Tensor) -> Any:
    z = x.t().reshape(-1)
    z.add_(1)
    return z, x.t().contiguous(), x.double()


def mutated_then_read_twice(x: torch.Tensor) -> Any:
    a = x + 1
    b = a.sum()
    a.mul_(2)
    c = a.sum()
    return b, c, b + c


def zero_in_place_equal_calls(x: torch.Tensor) -> Any:
    """Two equal allocations of which one is written must not become one."""
    a, b = torch.zeros(3), torch.zeros(3)
    a.add_(x.sum())
    c, d = x + 1, x + 1
    c.mul_(2)
    return a, b, c, d


def swaps(x: torch.Tensor) -> Any:
    y = x.clone()
    y[[0, 1]] = y[[1, 0]]
    y[:, 0], y[:, 1] = y[:, 1].clone(), y[:, 0].clone()
    return y


def out_argument(x: torch.Tensor) -> Any:
    out = torch.empty(3, 4)
    result = torch.add(x, 1, out=out)
    torch.mul(out, 2, out=out[:])
    values, indices = torch.empty(3), torch.empty(3, dtype=torch.long)
    torch.max(x, 1, out=(values, indices))
    return result, out, result is out, values, indices


def out_into_input(x: torch.Tensor) -> Any:
    return torch.exp(x, out=x)


def mutate_integers(x: torch.Tensor) -> Any:
    index = torch.arange(3)
    index += 1
    y = torch.zeros(5).index_add_(0, index, x.sum(1))
    y.scatter_(0, index, 1.0).index_fill_(0, index[:1], 4.0).masked_fill_(y > 2, 0)
    return y, index, y.index_copy_(0, index, x[:, 0]), y.index_put_((index,), x[:, 1], accumulate=True)


def dtype_promotion_in_place(x: torch.Tensor) -> Any:
    y = torch.zeros(3, 4, dtype=torch.float64)
    y.add_(x)
    y.copy_(x.int())
    return y


def detached_write(x: torch.Tensor) -> Any:
    y = x * 2
    y.detach().add_(1)
    y.data.mul_(3)
    return y


def set_on_none_dims(x: torch.Tensor) -> Any:
    y = torch.zeros(2, 3, 4)
    y[..., 0] = 1
    y[:, None, 1] = x[None, None, 1]
    y[0, :, 2:] = x[:, 2:]
    y[-1] = x
    y[1, torch.tensor([0, 2]), 1:3] = 5.0
    y[torch.tensor([True, False])] = -1
    y[y > 2] = 0.5
    y[..., -1:] += 2
    y[0, 0, 0] = x[0, 0]
    y[:, ::2] *= 3
    y[torch.tensor(1), 0] = 8
    return y


PROGRAMS = [
    in_place_on_intermediate, in_place_on_input, returns_mutated_input, write_through_view, write_to_base_of_view,
    write_through_view_of_input, chain_of_views, overlapping_slices, as_strided_write, diagonal_write, chunk_write,
    alias_without_copy, copy_when_needed, mutated_then_read_twice, zero_in_place_equal_calls, swaps, out_argument,
    out_into_input, mutate_integers, dtype_promotion_in_place, detached_write, set_on_none_dims,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_program(program: Callable[..., Any], check: Callable[..., None]) -> None:
    check(program, lambda: (t(),))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_program_on_view(program: Callable[..., Any], check: Callable[..., None]) -> None:
    """The input is a transposed part of a larger tensor, which is not an argument."""
    check(program, lambda: (t(5, 4)[1:4],))


def test_aliased_inputs(check: Callable[..., None]) -> None:
    def program(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> Any:
        x.add_(1)
        y.mul_(2)
        return x + y, z * 1, y

    def arguments() -> Any:
        base = t()
        return base, base[0], base

    check(program, arguments)


@pytest.mark.parametrize("needs_grad", [False, True])
def test_inputs_in_one_memory_that_are_no_views(check: Callable[..., None], needs_grad: bool) -> None:
    """What autograd knows of one of them is not so for the other, nor for what was detached."""

    def program(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> Any:
        detached = y.detach()
        x.add_(1)
        return detached * z[:2], x + 1, detached * 2, y * z[:2]

    def arguments() -> Any:
        whole = t(8, 16)
        first, second = whole.as_strided((3, 4), (16, 1), 1).detach(), whole.as_strided((2, 4), (16, 1), 17).detach()
        return first, second.requires_grad_(needs_grad), t().requires_grad_()

    check(program, arguments)


def test_aliasing_changes_the_entry(jit: Callable[..., Any]) -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return y * 1

    compiled = jit(program)
    a, b = torch.zeros(2), torch.zeros(2)
    assert compiled(a, b).tolist() == [0, 0]
    assert compiled(a, a).tolist() == [2, 2]
    assert compiled(b, a).tolist() == [2, 2]


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.n = 0
        self.register_buffer("total", torch.zeros(4))
        self.history: list[int] = []
        self.table: dict[str, Any] = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.n += 1
        self.total += x.sum(0)
        self.table["last"] = x.shape[0]
        return x * self.total


class Rebinds(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.inner = nn.Module()
        self.inner.register_buffer("state", torch.ones(3, 4))
        self.plain: Any = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
        self.inner.state = self.inner.state + x
        self.plain = x * 2
        return self.inner.state - self.mean


class KeyValueCache(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(8, 4))

    def forward(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        self.keys.index_copy_(0, positions, x)
        self.keys[positions] *= 2
        return x @ self.keys.t()


class GrowsList(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cache: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.cache.append(x * 1)
        return torch.cat(self.cache)


class WritesParameter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.weight.mul_(2)
        self.weight.data.add_(1)
        return x * self.weight


def test_counter(check: Callable[..., None]) -> None:
    check(Counter(), lambda: (t(),), rounds=4, cache_hits=None)


@pytest.mark.parametrize("grad", [False, True])
def test_rebinding(grad: bool, check: Callable[..., None]) -> None:
    with torch.set_grad_enabled(grad):
        check(Rebinds(), lambda: (t(),), rounds=3, cache_hits=None)


def test_root_buffer_rebinding_hits_the_cache(check: Callable[..., None]) -> None:
    class Module(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.zeros(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.mean = self.mean + x.mean(0)
            return x - self.mean

    check(Module(), lambda: (t(),), rounds=3)


def test_key_value_cache(check: Callable[..., None]) -> None:
    check(KeyValueCache(), lambda: (t(2, 4), torch.randperm(8)[:2]), rounds=3)


def test_growing_list(check: Callable[..., None]) -> None:
    check(GrowsList(), lambda: (t(),), rounds=4, cache_hits=None)


def test_writes_parameter(check: Callable[..., None]) -> None:
    check(WritesParameter(), lambda: (t(),), rounds=3)


def test_batch_norm_training(check_gradients: Callable[..., None]) -> None:
    check_gradients(nn.Sequential(nn.Conv1d(3, 3, 1), nn.BatchNorm1d(3)), lambda: (t(2, 3, 4),), rounds=3)


def test_batch_norm_that_reads_its_counter_is_right_or_refused(check: Callable[..., None]) -> None:
    with contextlib.suppress(DataDependentError):
        check(nn.BatchNorm1d(4, momentum=None), lambda: (t(),), rounds=3, cache_hits=None)


def test_batch_norm_that_reads_its_counter_in_a_model(check_gradients: Callable[..., None]) -> None:
    """It is called as eager does: the counter counts, and each call averages with another factor."""
    check_gradients(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, momentum=None)), lambda: (t(),), rounds=3)


@pytest.mark.parametrize(
    "write",
    [lambda y: y.resize_(2, 2), lambda y: y.expand(2, 3, 4).add_(1), lambda y: y.set_(torch.zeros(1)),
     lambda y: y.t_(), lambda y: y.squeeze_(), lambda y: y.requires_grad_(), lambda y: y.transpose_(0, 1)],
    ids=["resize_", "expand", "set_", "t_", "squeeze_", "requires_grad_", "transpose_"],
)  # fmt: skip
@pytest.mark.parametrize("on_input", [False, True])
def test_rare_writes_are_right_or_refused(
    write: Callable[..., Any], on_input: bool, check: Callable[..., None]
) -> None:
    def program(x: torch.Tensor) -> Any:
        y = x if on_input else x.clone()
        write(y)
        return y

    try:
        check(program, lambda: (t(),), cache_hits=None)
    except BehaviourMismatch as mismatch:
        # eager itself refuses to write to an expanded tensor, by a RuntimeError; ours may be a subclass of it
        if not isinstance(mismatch.__cause__, ThunderError):
            raise
    except ThunderError as error:
        assert error.location is not None  # noqa: PT017 - being right is as good


def test_global_tensor_is_written(jit: Callable[..., Any]) -> None:
    compiled = jit(_writes_global)
    before = STATE.clone()
    compiled(torch.ones(2))
    compiled(torch.ones(2))
    assert torch.equal(STATE, before + 2)


STATE = torch.zeros(2)


def _writes_global(x: torch.Tensor) -> torch.Tensor:
    STATE.add_(x)
    return STATE * 1
