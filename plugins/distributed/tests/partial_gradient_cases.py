"""Gradients that are reduced among shards and kept until they are reduced among replicas: as in eager PyTorch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from accumulation_cases import (
    BUILDS,
    MICRO_STEPS,
    MIXED,
    POLICIES,
    Branches,
    assert_same_shards,
    check,
    loss_of,
    mesh,
    no_sync,
    second_dimension,
)
from fully_shard_cases import Net, Unused, equal_models, replicated, sharded
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy

import thunder
from thunder_core.errors import UnsupportedError


def without_all_reduce(model: Any, count: int) -> torch.Tensor:
    """The last of `MICRO_STEPS` losses; gradients of the others are reduced among shards, and not among replicas."""
    model.set_requires_all_reduce(False)
    for part in range(1, MICRO_STEPS):
        loss_of(model, count + 10 * part).backward()
    model.set_requires_all_reduce(True)
    return loss_of(model, count)


def of_models() -> None:
    """Parts that ranks keep, to be reduced among replicas: of each model, and in dtypes that are reduced."""
    for first_policy, shape in enumerate([(2, 1), (1, 2)]):
        for number, build in enumerate(BUILDS.values(), first_policy):
            policy = POLICIES[number % len(POLICIES)]
            check(
                lambda build=build, shape=shape, policy=policy: sharded(build(), mesh=mesh(*shape), mp_policy=policy),
                without_all_reduce,
            )
        for policy in (
            MixedPrecisionPolicy(param_dtype=torch.float16, reduce_dtype=torch.float16),
            MixedPrecisionPolicy(reduce_dtype=torch.bfloat16),
        ):
            check(
                lambda shape=shape, policy=policy: sharded(Net(), mesh=mesh(*shape), mp_policy=policy),
                without_all_reduce,
            )


def of_other_wrappers() -> None:
    """Parameters sharded along their second dimension, in memory of the host, and replicated."""
    policy = CPUOffloadPolicy(pin_memory=torch.get_default_device().type != "cpu")
    check(lambda: sharded(Net(), mesh=mesh(1, 2), shard_placement_fn=second_dimension), without_all_reduce)
    check(lambda: sharded(Net(), mesh=mesh(1, 2), offload_policy=policy), without_all_reduce)
    check(lambda: replicated(Net(), mp_policy=MIXED), without_all_reduce)


def and_whole_gradients() -> None:
    """Steps that reduce nothing before and after one that reduces among shards alone."""

    def step(model: Any, count: int) -> torch.Tensor:
        with no_sync(model):
            loss_of(model, count + 10).backward()
        model.set_requires_all_reduce(False)
        loss_of(model, count + 20).backward()
        with no_sync(model):
            loss_of(model, count + 30).backward()
        model.set_requires_all_reduce(True)
        return loss_of(model, count)

    for shape in ((2, 1), (1, 2)):
        check(lambda shape=shape: sharded(Net(), mesh=mesh(*shape)), step, entries=3)


def by_eager_calls() -> None:
    """Eager PyTorch and programs continue what the other kept."""
    for shape in ((2, 1), (1, 2)):
        for eager in ((0,), (1,), (2,), (0, 1), (1, 2)):
            expected, original, actual = equal_models(lambda shape=shape: sharded(Net(), mesh=mesh(*shape)))
            for part in range(MICRO_STEPS):
                for model in (expected, original):
                    model.set_requires_all_reduce(part == MICRO_STEPS - 1)
                for model in (expected, original if part in eager else actual):
                    loss_of(model, part).backward()
            assert_same_shards(expected, original)
            assert len(thunder.explain(actual).entries) == len({part == 2 for part in range(3) if part not in eager})


def of_some_parameters() -> None:
    """Of what eager PyTorch keeps for some parameters of a group, it does not note for which ones."""
    expected, original, actual = equal_models(lambda: sharded(Unused(), mesh=mesh(1, 2)))
    for is_last in (False, True):
        for model in (expected, original):
            model.set_requires_all_reduce(is_last)
        for model in (expected, actual if is_last else original):
            loss_of(model, is_last).backward()
    assert_same_shards(expected, original)
    assert "of some parameters of a group" in str(thunder.explain(actual))


def of_other_parameters() -> None:
    """Eager PyTorch raises an error, or adds those of one parameter to those of another."""
    model = sharded(Branches(), mesh=mesh(1, 2))
    model.set_requires_all_reduce(False)
    compiled = thunder.jit(model, executors=[])
    loss_of(compiled, 0).backward()
    model.uses_all = False
    with pytest.raises(UnsupportedError, match="for other parameters than in the backward before"):
        loss_of(compiled, 1).backward()
    model.set_requires_all_reduce(True)
    loss_of(compiled, 2).backward()  # adds what is kept of parameters that it gives no gradient
    assert model.bias.grad is not None


def in_the_wrong_order() -> None:
    message = "set_requires_all_reduce was called between forward and backward"
    for first in (True, False):
        model = sharded(Net(), mesh=mesh(2, 1))
        compiled = thunder.jit(model, executors=[])
        model.set_requires_all_reduce(first)
        loss = loss_of(compiled, 0)
        model.set_requires_all_reduce(not first)
        with pytest.raises(UnsupportedError, match=message):
            loss.backward()
    model = sharded(Net(), mesh=mesh(2, 1))
    compiled = thunder.jit(model, executors=[])
    model.set_requires_all_reduce(False)
    loss_of(compiled, 0).backward()
    model.set_requires_all_reduce(True)
    losses = [loss_of(compiled, part) for part in range(2)]
    with pytest.raises(UnsupportedError, match="reduced, between this forward and its backward"):
        sum(losses).backward()


CASES = {
    case.__name__: case
    for case in (
        of_models,
        of_other_wrappers,
        and_whole_gradients,
        by_eager_calls,
        of_some_parameters,
        of_other_parameters,
        in_the_wrong_order,
    )
}
