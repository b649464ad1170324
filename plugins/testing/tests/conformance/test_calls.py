"""Where calls come from: the database, the author, and what is made of them."""

from __future__ import annotations

import ctypes
import gc
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from thunder_core.private_names import Name, PrivateNames
from thunder_testing import ConformanceError, pytorch_internals
from thunder_testing.conformance import samples
from thunder_testing.conformance.call import Call, describe_call
from thunder_testing.conformance.failure import Breach
from thunder_testing.conformance.guarded import GuardedMemory
from thunder_testing.conformance.sampler import covering
from thunder_testing.conformance.subject import operation, symbol_of
from thunder_testing.conformance.variants import (
    as_matrices,
    layouts,
    shapes,
    with_negative_dimensions,
    with_other_values,
)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (F.silu, "nn.functional.silu"),
        ("torch.nn.functional.silu", "nn.functional.silu"),
        (torch.ops.aten.silu.default, "nn.functional.silu"),
        (torch.ops.aten.add, "add"),
        ("torch.Tensor.view", "view"),
        ("torch.Tensor.add_", "add"),
        (torch.special.expit, "sigmoid"),
    ],
)
def test_spellings_lead_to_the_database(given: Any, name: str) -> None:
    subject = operation(symbol_of(given), {})
    assert name in {operator.name for operator in samples.opinfos(subject)}
    assert samples.calls(subject, "cpu", torch.float32)
    assert torch.float32 in samples.dtypes_of(subject, "cpu")


def test_calls_are_the_same_whenever_asked() -> None:
    subject = operation(symbol_of(torch.matmul), {})
    first, second = (samples.calls(subject, "cpu", torch.float32) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        assert describe_call(one) == describe_call(other)
        assert all(torch.equal(a, b) for a, b in zip(one.tensors(), other.tensors(), strict=True))


def test_calls_that_return_nothing_are_no_cases() -> None:
    """As some kernels of PyTorch do on a GPU for sizes that they do not expect."""
    call = Call("", lambda tensor: tensor * 2 if tensor.numel() else None, (torch.ones(2, 3),), {})
    assert samples.accepts(call)
    assert not [made for made in shapes([call], samples.accepts) if not made.tensors()[0].numel()]


def test_samples_of_the_author_come_first() -> None:
    given = {symbol_of(F.silu): lambda device, dtype: [((torch.ones(2, device=device, dtype=dtype),), {})]}
    first, *others = samples.calls(operation(symbol_of(F.silu), given), "cpu", torch.float64)
    assert first.what == "sample 0 of those given"
    assert first.args[0].dtype is torch.float64
    assert len(others) == 3


def test_calls_that_eager_refuses_are_left_out() -> None:
    wrong = {symbol_of(torch.mm): lambda device, dtype: [((torch.ones(2), torch.ones(3)), {})]}
    found = samples.calls(operation(symbol_of(torch.mm), wrong), "cpu", torch.float32)
    assert found
    assert all("OpInfo" in call.what for call in found)


def test_random_draws_are_noticed() -> None:
    x = torch.ones(3)
    assert samples.draws(Call("", F.dropout, (x,)))
    assert not samples.draws(Call("", F.dropout, (x,), {"training": False}))


@pytest.mark.parametrize("given", [F.dropout, "torch.nn.functional.dropout"])
def test_functions_are_called_as_users_do(given: Any) -> None:
    """The symbol's target is another function, which takes no keyword ``training``."""
    found = samples.calls(operation(symbol_of(given), {}), "cpu", torch.float32)
    assert {call.function for call in found} == {F.dropout}
    assert any("training" in call.kwargs for call in found)


def test_missing_database_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    row = Name("torch.testing._internal.absent.op_db", "samples")
    monkeypatch.setattr(pytorch_internals, "op_db", PrivateNames(__name__, (row,)).bind("op_db"))
    with pytest.raises(ConformanceError, match="pip install expecttest"):
        samples._database()


def test_covering_keeps_each_kind() -> None:
    calls = [Call(str(n), torch.sum, (torch.ones(*[2] * n),), {"dim": d}) for n in (1, 2, 3) for d in (0, -1, (0, -1))]
    chosen = covering(calls, 4)
    assert len(chosen) == 4
    assert {call.args[0].ndim for call in chosen} == {1, 2, 3}
    assert {type(call.kwargs["dim"]) for call in chosen} == {int, tuple}
    assert covering(calls, 100) == calls
    assert covering([calls[0]] * 5, 4) == [calls[0]]


def test_layouts() -> None:
    made = {call.what: call.tensors()[0] for call in layouts([Call("x", torch.add, (torch.randn(3, 4),))])}
    assert made["x, transposed"].stride() == (1, 3)
    assert (
        made["x, sliced from a larger tensor"].stride(),
        made["x, sliced from a larger tensor"].storage_offset(),
    ) == (
        (11, 2),
        2,
    )
    assert made["x, expanded"].stride() == (0, 1)
    assert len(made) == 3
    assert "x, channels last" in {call.what for call in layouts([Call("x", torch.add, (torch.randn(2, 3, 4, 5),))])}


def test_shapes() -> None:
    call = Call("x", torch.add, (torch.randn(3, 4), torch.randn(3, 4)))
    found = [tuple(tuple(t.shape) for t in made.tensors()) for made in shapes([call], lambda made: True)]
    assert len(set(found)) == len(found)
    assert {((0, 4), (0, 4)), ((3, 0), (3, 0)), ((1, 4), (1, 4)), ((), ()), ((3, 4), (1, 4)), ((3, 4), (4,))} <= set(
        found
    )
    assert ((3, 344), (3, 344)) in found  # more elements than a block
    assert not list(shapes([call], lambda made: False))


def test_matrices_and_dimensions() -> None:
    assert as_matrices(Call("x", torch.add, (torch.ones(20),))).args[0].shape == (4, 5)
    call = Call("x", torch.add, (torch.ones(2, 3, 4), 1), {"dims": (0, -1), "keepdim": True})
    negative = with_negative_dimensions(call)
    assert (negative.args[1], negative.kwargs) == (-2, {"dims": (-3, -1), "keepdim": True})


def test_other_values_keep_metadata() -> None:
    x = torch.randn(4, 3).t()
    made = with_other_values(Call("x", torch.add, (x, torch.arange(3), torch.randn(1, 3).expand(2, 3)))).tensors()
    assert [(t.shape, t.stride(), t.dtype) for t in made[:2]] == [
        (x.shape, x.stride(), x.dtype),
        ((3,), (1,), torch.int64),
    ]
    assert not torch.equal(made[0], x)
    assert made[1].tolist() == [2, 1, 0]
    assert made[0].tolist() == x.flip((0, 1)).tolist()


def test_one_tensor_twice_stays_one() -> None:
    x = torch.randn(3)
    copied = Call("x", torch.add, (x, [x], 2)).copy((0,))
    assert copied.args[0] is copied.args[1][0]
    assert copied.args[0] is not x
    assert copied.args[0].requires_grad


@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(3, 4).t(),
        torch.randn(4, 9)[:, 2:8:2],
        torch.randn(1, 3).expand(4, 3),
        torch.tensor(2.5),
        torch.zeros(0, 3),
        torch.arange(5),
        torch.tensor([True, False]),
        torch.randn(3, dtype=torch.complex64),
    ],
)
def test_guarded_memory_holds_the_same(tensor: torch.Tensor) -> None:
    guard = GuardedMemory(0xFF)
    placed = guard.place(Call("x", torch.add, (tensor,)), (), written=False).args[0]
    assert torch.equal(placed, tensor)
    assert (placed.stride(), placed.dtype) == (tensor.stride(), tensor.dtype)
    guard.check()


def test_allocations_are_guarded() -> None:
    guard = GuardedMemory(0xFF)
    with guard.allocations():
        x, y, z = torch.empty(3), torch.zeros(2, 2), torch.ones(2).new_full((2,), 5)
    assert x.isnan().all()
    assert (y.tolist(), z.tolist()) == ([[0, 0], [0, 0]], [5, 5])
    assert [(t.storage_offset(), t.untyped_storage().nbytes()) for t in (x, y, z)] == [(0, 12), (0, 16), (0, 8)]
    x.fill_(1)
    guard.check()
    ctypes.c_char.from_address(y.data_ptr() + 16).value = b"x"
    with pytest.raises(Breach, match="1 bytes were written outside, the first 0 bytes behind the end of memory that"):
        guard.check()


def test_writes_between_elements_are_found() -> None:
    guard = GuardedMemory(0xFF)
    x = guard.place(Call("x", torch.add, (torch.zeros(4, 9)[:, 2:8:2],)), (), written=False).args[0]
    assert (x.storage_offset(), x.stride()) == (2, (9, 2))
    x.as_strided((1,), (1,), 3).fill_(5)
    with pytest.raises(Breach, match="between the elements of tensor 0 among the arguments"):
        guard.check()


@pytest.mark.slow
def test_placed_tensors_keep_their_memory() -> None:
    def make() -> torch.Tensor:
        return GuardedMemory(0xFF).place(Call("x", torch.add, (torch.arange(1000),)), (), written=False).args[0]

    tensors = [make() for _ in range(10)]
    gc.collect()
    assert all(torch.equal(tensor, torch.arange(1000)) for tensor in tensors)
