"""Each private name of PyTorch that the plugin uses exists, and behaves as the plugin takes for granted."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import thunder_plugin_subclasses
from thunder_plugin_subclasses.pytorch_internals import NAMES
from thunder_testing import private_names_suite
from thunder_testing.private_names import called_through


def _equal(found: Any, expected: Any) -> None:
    assert found == expected, f"{found!r}, not {expected!r}"


def _parameters(function: Any, *names: str) -> None:
    _equal(tuple(inspect.signature(function).parameters)[: len(names)], names)


def dtensor_handlers(handlers: Any) -> None:
    from torch.distributed.tensor.parallel import loss_parallel

    before = dict(handlers)
    with loss_parallel():
        assert len(handlers) > len(before)
    assert handlers == before


def implicit_replication_flag(read: Any) -> None:
    from torch.distributed.tensor.experimental import implicit_replication

    assert not read()
    with implicit_replication():
        assert read()


def dtensor_metadata() -> None:
    """It computes on fake tensors of the active fake mode; without one, of a new fake mode."""
    from torch.distributed.tensor._sharding_prop import ShardingPropagator

    assert "detect_fake_mode" in ShardingPropagator._propagate_tensor_meta_non_cached.__code__.co_names


def dtensor_random_region() -> None:
    from torch.distributed.tensor._random import OffsetBasedRNGTracker

    assert "_distribute_region" in vars(OffsetBasedRNGTracker)


def dtensor_tensor_check() -> None:
    from torch.distributed.tensor import _api

    assert "check_tensor_meta" in _api._FromTorchTensor.forward.__code__.co_names


def view_dummy(point: Any) -> None:
    """It makes a tensor without data, which PyTorch keeps."""
    assert point.value().is_nested
    assert point.value() is point.value()
    values, offsets = torch.ones(3, 2), torch.tensor([0, 1, 3])
    assert len(called_through(point, lambda: torch.nested.nested_tensor_from_jagged(values, offsets))) == 1


def jagged_functions(point: Any) -> None:
    """It is given the functions that jagged tensors are given to."""
    jagged = torch.nested.nested_tensor([torch.ones(1, 2)], layout=torch.jagged)
    ((args, _), *_rest) = called_through(point, lambda: torch.sin(jagged))
    assert args[0] is torch.sin
    assert args[1] is jagged


def jagged_backend(point: Any) -> None:
    _parameters(point.value, "query", "key", "value", "attn_mask", "dropout", "is_causal")
    jagged: Any = torch.nested.nested_tensor([torch.ones(1, 2, 2)], layout=torch.jagged).transpose(1, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the strided layout
        called_through(point, lambda: torch.nn.functional.scaled_dot_product_attention(jagged, jagged, jagged))


def jagged_facts() -> None:
    jagged: Any = torch.nested.nested_tensor([torch.ones(1, 2), torch.ones(3, 2)], layout=torch.jagged)
    _equal((jagged._maybe_min_seqlen, jagged._maybe_max_seqlen, jagged._ragged_idx), (1, 3, 1))
    _equal(jagged.unsqueeze(1).transpose(1, 2)._ragged_idx, 1)


def from_padded(function: Any) -> None:
    """It is differentiable, and keeps the offsets."""
    offsets = torch.tensor([0, 2, 3])
    padded = torch.arange(4.0).view(2, 2, 1).requires_grad_()
    jagged: Any = function(padded, offsets, 1, min_seqlen=1, max_seqlen=2, sum_S=3)
    _equal(jagged.values().flatten().tolist(), [0, 1, 2])
    assert jagged.offsets() is offsets
    jagged.values().sum().backward()
    assert padded.grad is not None
    _equal(padded.grad.flatten().tolist(), [1, 1, 1, 0])


def attention_by_formula(function: Any) -> None:
    query = torch.randn(1, 1, 2, 4)
    expected = torch.softmax(query @ query.mT * 0.5, -1) @ query
    torch.testing.assert_close(function(query, query, query, None, 0.0, False, scale=None)[0], expected)


def hooks_of_tensors() -> None:
    """None, or a dictionary that autograd reads when it computes the gradient."""
    x = torch.ones(1, requires_grad=True)
    assert not x._backward_hooks
    x.register_hook(lambda gradient: gradient * 3)
    x._backward_hooks.clear()
    (x * 2).backward()
    _equal(x.grad, torch.tensor([2.0]))


CHECKS: dict[str, Callable[..., object]] = {
    "dtensor_handlers": dtensor_handlers,
    "get_dtensor_allow_implicit_replication": implicit_replication_flag,
    "propagate_tensor_meta_non_cached": dtensor_metadata,
    "distribute_region": dtensor_random_region,
    "check_tensor_meta": dtensor_tensor_check,
    "nested_view_dummy": view_dummy,
    "jagged_torch_function": jagged_functions,
    "select_sdp_backend": jagged_backend,
    "nested_from_padded": from_padded,
    "scaled_dot_product_attention_math": attention_by_formula,
    "maybe_min_seqlen": jagged_facts,
    "maybe_max_seqlen": jagged_facts,
    "backward_hooks": hooks_of_tensors,
    "ragged_idx": jagged_facts,
}

test_names = private_names_suite(NAMES, CHECKS, folders=[Path(thunder_plugin_subclasses.__file__).parent])
