"""Transformations of `torch.func` inside programs, of a batch whose size varies: one program, with eager's results."""

from __future__ import annotations

import multiprocessing
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, vmap
from torch.nn import functional as F

import thunder
from thunder_core.pytorch_internals import BATCHED, kernels_by_key
from thunder_frontend.record import batching_rules

Program = Callable[[torch.Tensor], Any]
SIZES = (3, 5, 4, 7, 2)
WEIGHT, BIAS = torch.linspace(0.5, 2, 4), torch.linspace(-1, 1, 4)
torch.manual_seed(0)
NORMED = nn.Sequential(nn.Linear(4, 5), nn.LayerNorm(5), nn.GELU(), nn.Linear(5, 3))
CONVOLVED = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.GroupNorm(1, 2), nn.MaxPool2d(2), nn.Flatten())
CLASSIFIER = nn.Sequential(nn.Conv2d(1, 2, 2), nn.ReLU(), nn.MaxPool2d(2, 1), nn.Flatten(), nn.Linear(8, 3))
EMBEDDING = nn.Embedding(8, 3)
ATTENTION = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)


BATCH_NORMED = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, track_running_stats=False), nn.ReLU(), nn.Flatten(0))
SQUARE = 4 * torch.eye(4) + torch.ones(4, 4)


def images(row: torch.Tensor) -> torch.Tensor:
    return torch.stack([row, row.sin()]).reshape(2, 4, 1, 1) * torch.linspace(-1, 2, 9).reshape(3, 3)


def normed(row: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    return F.batch_norm(images(row), BIAS, WEIGHT, weight, bias)


def per_sample(module: nn.Module, loss: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> Any:
    parameters = {name: parameter.detach() for name, parameter in module.named_parameters()}
    return vmap(grad(lambda own, row: loss(functional_call(module, own, (row,)))), (None, 0))(parameters, x)


def ensemble(x: torch.Tensor) -> Any:
    stacked = {name: torch.stack([value.detach(), value.detach() * 2]) for name, value in NORMED.named_parameters()}
    loss = grad(lambda own, rows: functional_call(NORMED, own, (rows,)).square().sum())
    return vmap(loss, (0, None))(stacked, x)


def classified(output: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(output.reshape(1, -1), torch.ones(1, dtype=torch.int64))


def activations(row: torch.Tensor) -> torch.Tensor:
    functions = (F.gelu, F.silu, F.mish, F.elu, F.leaky_relu, F.softplus, F.hardtanh, F.hardswish, F.hardsigmoid)
    return torch.stack([function(row).square().sum() for function in (*functions, F.relu, F.logsigmoid)]).sum()


ROWS: dict[str, Program] = {
    "layer norm": vmap(lambda row: F.layer_norm(row, (4,), WEIGHT, BIAS)),
    "layer norm of batched weights": vmap(lambda row: F.layer_norm(row, (4,), row * 2, BIAS)),
    "layer norm with batched weights": vmap(lambda row: F.layer_norm(WEIGHT.expand(3, 4), (4,), row, row)),
    "gradients of columns": lambda x: vmap(grad(lambda row: F.layer_norm(row, (4,), WEIGHT).pow(3).sum()), 1, 1)(x.t()),
    "cat": vmap(lambda row: torch.cat([row, WEIGHT, row[:2]], -1)),
    "cat of an empty tensor": vmap(lambda row: torch.cat([torch.zeros(0), row])),
    "cat of a closure": lambda x: vmap(lambda row: torch.cat([row[None], x]).sum(0))(x),
    "nested": lambda x: vmap(lambda a: vmap(lambda b: torch.cat([a, b]))(x))(x),
    "gather": vmap(lambda row: row.gather(-1, row.argsort()) + row.gather(0, row.argmax())),
    "scatter": vmap(lambda row: WEIGHT.scatter(0, row.argsort(), row) + row.scatter_add(0, row.argsort(), BIAS)),
    "scatter of a number": vmap(lambda row: row.scatter(0, row.argmax()[None], 2.0)),
    "cross entropy": vmap(lambda row: classified(row)),
    "jacfwd": vmap(jacfwd(lambda row: torch.cat([F.layer_norm(row, (4,), WEIGHT), row.sin()]))),
    "jacrev": vmap(jacrev(lambda row: torch.cat([F.layer_norm(row, (4,), WEIGHT, BIAS), row.sin()]))),
    "jacfwd of products": vmap(jacfwd(lambda row: torch.tanh(torch.outer(WEIGHT, BIAS) @ row))),
    "hessian": vmap(hessian(lambda row: F.layer_norm(torch.tanh(row), (4,)).pow(3).sum())),
    "hessian of a batch": lambda x: hessian(lambda own: torch.tanh(x @ own).sum())(WEIGHT),
    "activations": vmap(grad(activations)),
    "per-sample gradients": lambda x: per_sample(NORMED, classified, x),
    "ensemble": ensemble,
    "convolutions": vmap(lambda row: CONVOLVED(row.reshape(1, 1, 2, 2))),
    "gradients of convolutions": lambda x: per_sample(CLASSIFIER, classified, x.repeat(1, 4).reshape(-1, 1, 1, 4, 4)),
    "embedding": lambda x: per_sample(EMBEDDING, lambda y: y.square().sum(), (x.abs() * 4).long().clamp(max=7)),
    "attention": vmap(lambda row: ATTENTION(row.reshape(1, 1, 4).expand(1, 3, 4))),
    "solve": vmap(lambda row: torch.linalg.solve(torch.outer(row, row) + SQUARE, row)),
    "solve of one matrix": vmap(lambda row: torch.linalg.solve(SQUARE, row[:, None] * WEIGHT)),
    "gradients of solve": vmap(grad(lambda row: torch.linalg.solve(torch.outer(row, row) + SQUARE, BIAS).sum())),
    "batch norm": vmap(lambda row: normed(row, WEIGHT, BIAS) + normed(row, row, None)),
    "batch norm in training": vmap(lambda row: F.batch_norm(images(row), None, None, WEIGHT, BIAS, training=True)),
    "gradients of batch norm": vmap(grad(lambda row: normed(row, WEIGHT, BIAS).pow(3).sum())),
    "per-sample gradients of batch norm": lambda x: per_sample(BATCH_NORMED, classified, x[:, None].repeat(1, 3, 1)),
    "instance norm": vmap(lambda row: F.instance_norm(images(row))),
    "average": vmap(grad(lambda row: F.avg_pool2d(row.reshape(1, 1, 2, 2), 2).square().sum())),
}


@pytest.mark.battery
@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("name", ROWS)
def test_a_batch_of_any_size(name: str) -> None:
    program = ROWS[name]
    compiled = thunder.jit(program, executors=[])
    for size in SIZES:
        x = torch.randn(size, 4, generator=torch.Generator().manual_seed(size))
        torch.testing.assert_close(compiled(x), program(x))
    assert thunder.cache_misses(compiled) == 2


def rules() -> int:
    """How many rules are installed."""
    return sum(BATCHED in kernels_by_key(operator) for operator in batching_rules._KERNELS)


def test_rules_are_installed_while_a_call_is_recorded() -> None:
    assert rules() == 0
    with batching_rules.installed(), batching_rules.installed():
        assert rules() == len(batching_rules._KERNELS)
        torch.testing.assert_close(vmap(lambda row: torch.cat([row, row]))(torch.eye(2)), torch.eye(2).repeat(1, 2))
    assert rules() == 0


IMAGES, POOL = torch.randn(2, 4, 6, 6), ([2, 2], [2, 2], [0, 0])
POOLED, INDICES = torch.ops.aten.max_pool2d_with_indices(IMAGES, *POOL)
HEADS = tuple(torch.randn(2, 2, 5, 8) for _ in range(3))
ATTENDED = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(*HEADS)
NORM = torch.ops.aten.native_layer_norm(ROW := torch.randn(3, 4), [4], WEIGHT, BIAS, 1e-5)
FOUR = torch.linspace(0.5, 2, 4), torch.linspace(0.2, 1, 4)
MATRIX = torch.tensor([[4, 1, 0.5], [1, 4, 1], [0.5, 1, 4]])  # with equal factors in each layout
FILTERS, CONVOLUTION = torch.randn(6, 4, 3, 3), ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)
CALLS: dict[str, tuple[Any, ...]] = {  # how many of the first tensors are batched, and arguments of one example
    "native_layer_norm": (1, ROW, [4], WEIGHT, BIAS, 1e-5),
    "native_layer_norm_backward": (6, NORM[0], ROW, [4], NORM[1], NORM[2], WEIGHT, BIAS, [True] * 3),
    "native_group_norm": (1, IMAGES[:1], torch.ones(4), torch.zeros(4), 1, 4, 36, 2, 1e-5),
    "native_batch_norm": (5, IMAGES, *FOUR, *FOUR, False, 0.1, 1e-5),
    "_native_batch_norm_legit.no_stats": (3, IMAGES, *FOUR, True, 0.1, 1e-5),
    "_native_batch_norm_legit_no_training": (5, IMAGES, *FOUR, *FOUR, 0.1, 1e-5),
    "native_batch_norm_backward": (8, IMAGES, IMAGES + 1, WEIGHT, *FOUR, *FOUR, True, 1e-5, [True] * 3),
    "_linalg_solve_ex": (2, MATRIX, ROW),
    "_adaptive_avg_pool2d": (1, IMAGES, [2, 3]),
    "_adaptive_avg_pool2d_backward": (2, POOLED, IMAGES),
    "convolution": (1, IMAGES[:1], FILTERS, torch.ones(6), *CONVOLUTION),
    "convolution_backward": (2, torch.randn(1, 6, 6, 6), IMAGES[:1], FILTERS, [6], *CONVOLUTION, [True] * 3),
    "embedding_dense_backward": (2, torch.randn(5, 3), torch.arange(5), 8, -1, False),
    "avg_pool2d": (1, IMAGES, *POOL),
    "avg_pool2d_backward": (2, POOLED, IMAGES, *POOL, False, True, None),
    "max_pool2d_with_indices": (1, IMAGES, *POOL),
    "max_pool2d_with_indices_backward": (3, POOLED, IMAGES, *POOL, [1, 1], False, INDICES),
    "_scaled_dot_product_flash_attention_for_cpu": (3, *HEADS),
    "_scaled_dot_product_flash_attention_for_cpu_backward": (6, HEADS[0], *HEADS, *ATTENDED, 0.0, False),
    "gelu_backward": (2, ROW, ROW + 1),
    "threshold_backward": (2, ROW, ROW, 0),
    "log_sigmoid_backward": (3, ROW, ROW + 1, torch.exp(-ROW.abs())),
}


def test_jacobian_of_a_batch() -> None:
    """Its gradients are batched, and what the forward saved is not. PyTorch 2.11 reads the sizes as plain numbers."""
    program = jacrev(lambda x: F.layer_norm(x, (4,), WEIGHT, BIAS))
    compiled = thunder.jit(program, executors=[])
    for size in (3, 4, 6):
        x = torch.randn(size, 4, generator=torch.Generator().manual_seed(size))
        torch.testing.assert_close(compiled(x), program(x))


@pytest.mark.battery
@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("name", CALLS)
def test_layouts_of_arguments(name: str, dim: int) -> None:
    """Rules give what the operator gives for each example: of batches in any dimension, and of tensors without one."""
    packet, _, overload = name.partition(".")
    operator = getattr(getattr(torch.ops.aten, packet), overload or "default")
    count, *args = CALLS[name]
    tensors = [index for index, arg in enumerate(args) if isinstance(arg, torch.Tensor)][:count]
    choices = [{*tensors}, *[{*tensors} - {index} for index in tensors], *[{index} for index in tensors]]
    called = 0
    for batched in filter(None, choices):
        examples = [
            [arg.flip(0), arg, arg.flip(-1)] if index in batched else [arg] * 3 for index, arg in enumerate(args)
        ]
        given = [torch.stack(each, dim) if index in batched else each[0] for index, each in enumerate(examples)]
        dims = [dim if index in batched else None for index in range(len(args))]
        result = batching_rules._RULES[operator](SimpleNamespace(batch_size=3), dims, *given)
        if result is NotImplemented:
            continue
        found, at = (each if isinstance(each, tuple) else (each,) for each in result)
        expected = [operator(*example) for example in zip(*examples, strict=True)]
        rows = zip(*[each if isinstance(each, tuple) else (each,) for each in expected], strict=True)
        for value, position, row in zip(found, at, rows, strict=True):
            assert position == 0
            torch.testing.assert_close(value, torch.stack(row))
        called += 1
    assert called


def left_to_pytorch() -> dict[str, Program]:
    return {
        "gradient of a number": vmap(lambda row: torch.ops.aten.silu_backward(row[0], row)),
        "cat of an empty tensor": vmap(lambda row: torch.cat([torch.zeros(0), row.long()])),
        "cat of numbers of other types": vmap(lambda row: torch.cat([row.long(), row.double(), row[:0]])),
    }


@pytest.mark.parametrize("name", left_to_pytorch())
def test_calls_that_rules_leave_to_pytorch(name: str) -> None:
    program = left_to_pytorch()[name]
    compiled = thunder.jit(program, executors=[])
    for size in (3, 4, 6):  # a batch of 4 in the place of the rows' dimension raises no exception
        x = torch.randn(size, 4, generator=torch.Generator().manual_seed(size)) * 4
        torch.testing.assert_close(compiled(x), program(x))


def test_a_forked_child_has_no_rules_of_other_threads() -> None:
    """The child lacks the thread that would remove them, and the lock may be held when it is forked."""

    def in_child() -> None:
        before = rules()
        with batching_rules.installed():
            found = (before, rules())
        results.put((*found, rules()))

    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    with batching_rules.installed(), batching_rules._lock, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # that the process has threads
        child = context.Process(target=in_child)
        child.start()
        child.join(20)
        ended = not child.is_alive()
        child.kill()
    assert ended
    assert results.get() == (0, len(batching_rules._KERNELS), 0)
    assert rules() == 0
