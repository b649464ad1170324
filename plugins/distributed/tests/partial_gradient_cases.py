"""Gradients that are reduced among shards and kept until they are reduced among replicas: as in eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
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
from fully_shard_cases import Net, Unused, equal_models, replicated, sharded, small
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy

import thunder
from thunder_core.errors import UnsupportedError
from thunder_plugin_distributed.fully_shard_plan import groups_of


def without_all_reduce(model: Any, count: int) -> torch.Tensor:
    """The last of `MICRO_STEPS` losses; gradients of the others are reduced among shards, and not among replicas."""
    model.set_requires_all_reduce(False)
    for part in range(1, MICRO_STEPS):
        loss_of(model, count + 10 * part).backward()
    model.set_requires_all_reduce(True)
    return loss_of(model, count)


def of_model(build: Callable[[], Any], shape: tuple[int, int], policy: MixedPrecisionPolicy) -> None:
    """Parts that ranks keep, to be reduced among replicas."""
    check(lambda: sharded(build(), mesh=mesh(*shape), mp_policy=policy), without_all_reduce)


DTYPES = {
    "float16": MixedPrecisionPolicy(param_dtype=torch.float16, reduce_dtype=torch.float16),
    "reduced in bfloat16": MixedPrecisionPolicy(reduce_dtype=torch.bfloat16),
}
OF_MODELS = {
    **{
        f"{name}, shards": partial(of_model, build, (1, 2), POLICIES[number % len(POLICIES)])
        for number, (name, build) in enumerate(BUILDS.items())
    },
    "unused, replicas": partial(of_model, BUILDS["unused"], (2, 1), POLICIES[0]),
    **{
        f"{name}, {kind}": partial(of_model, small, shape, policy)
        for name, policy in DTYPES.items()
        for kind, shape in (("replicas", (2, 1)), ("shards", (1, 2)))
    },
}
"""Each model, and dtypes that are reduced."""


def of_other_wrappers() -> None:
    """Parameters sharded along their second dimension, in memory of the host, and replicated."""
    policy = CPUOffloadPolicy(pin_memory=torch.get_default_device().type != "cpu")
    check(lambda: sharded(small(), mesh=mesh(1, 2), shard_placement_fn=second_dimension), without_all_reduce)
    check(lambda: sharded(small(), mesh=mesh(1, 2), offload_policy=policy), without_all_reduce)
    check(lambda: replicated(small(), mp_policy=MIXED), without_all_reduce)


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
        check(lambda shape=shape: sharded(small(), mesh=mesh(*shape)), step, entries=3)


class Skipping(Net):
    """Only some calls use the second block."""

    uses_all = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.blocks[0](self.embedding(x))
        return self.head(self.blocks[1](x) if self.uses_all else x)


def of_modules_that_the_last_step_does_not_use() -> None:
    """Since 2.15 PyTorch reduces them; before it adds them to those of the next steps."""

    def step(model: Any, count: int) -> torch.Tensor:
        model.set_requires_all_reduce(False)
        model.uses_all = True
        loss_of(model, count + 10).backward()
        model.set_requires_all_reduce(True)
        model.uses_all = count != 1
        return loss_of(model, count)

    for shape in ((2, 1), (1, 2)):
        check(lambda shape=shape: sharded(Skipping(), mesh=mesh(*shape)), step, entries=3)


def by_eager_calls() -> None:
    """Eager PyTorch and programs continue what the other kept."""
    steps_of_eager = {(2, 1): ((0,), (1, 2)), (1, 2): ((1,), (2,), (0, 1))}
    for shape, eager in [(shape, eager) for shape, each in steps_of_eager.items() for eager in each]:
        expected, original, actual = equal_models(lambda shape=shape: sharded(small(), mesh=mesh(*shape)))
        for part in range(MICRO_STEPS):
            for model in (expected, original):
                model.set_requires_all_reduce(part == MICRO_STEPS - 1)
            for model in (expected, original if part in eager else actual):
                loss_of(model, part).backward()
        assert_same_shards(expected, original)
        assert thunder.cache_misses(actual) == len({part == 2 for part in range(3) if part not in eager})


def of_some_parameters() -> None:
    """Before 2.15 PyTorch does not note for which parameters of a group it keeps parts."""
    expected, original, actual = equal_models(lambda: sharded(Unused(), mesh=mesh(1, 2)))
    for is_last in (False, True):
        for model in (expected, original):
            model.set_requires_all_reduce(is_last)
        for model in (expected, actual if is_last else original):
            loss_of(model, is_last).backward()
    assert_same_shards(expected, original)
    is_noted = hasattr(groups_of(original._get_fsdp_state())[0], "_partial_reduce_output_layout")
    assert ("some parameters of a group" in thunder.explain(actual).details()) is not is_noted


def of_other_parameters() -> None:
    """Steps that use other parameters; eager PyTorch before 2.15 cannot, so they are compared with whole gradients."""
    steps, found = (False, True, False, False), []
    for shape in ((2, 1), (1, 2), None):
        _, model, compiled = equal_models(lambda shape=shape: sharded(Branches(), mesh=shape and mesh(*shape)))
        for part, uses_all in enumerate(steps):
            model.uses_all = uses_all
            if shape:
                model.set_requires_all_reduce(part == len(steps) - 1)
                loss_of(compiled, part).backward()
            else:
                model.set_requires_gradient_sync(part == len(steps) - 1)
                loss_of(model, part).backward()
        model.reshard()
        gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
        assert gradients["bias"] is not None
        found.append({name: each.full_tensor() for name, each in gradients.items() if each is not None})
    for gradients in found[:2]:  # before 2.15 without those of the block that the last step does not call
        for name, gradient in gradients.items():
            torch.testing.assert_close(gradient, found[2][name])


def in_the_wrong_order() -> None:
    message = "set_requires_all_reduce was called between forward and backward"
    for first in (True, False):
        model = sharded(small(), mesh=mesh(2, 1))
        compiled = thunder.jit(model, executors=[])
        model.set_requires_all_reduce(first)
        loss = loss_of(compiled, 0)
        model.set_requires_all_reduce(not first)
        with pytest.raises(UnsupportedError, match=message):
            loss.backward()
    model = sharded(small(), mesh=mesh(2, 1))
    compiled = thunder.jit(model, executors=[])
    model.set_requires_all_reduce(False)
    loss_of(compiled, 0).backward()
    model.set_requires_all_reduce(True)
    losses = [loss_of(compiled, part) for part in range(2)]
    with pytest.raises(UnsupportedError, match="reduced, between this forward and its backward"):
        sum(losses).backward()


OTHERS = {
    case.__name__: case
    for case in (
        of_other_wrappers,
        of_modules_that_the_last_step_does_not_use,
        and_whole_gradients,
        by_eager_calls,
        of_some_parameters,
        of_other_parameters,
        in_the_wrong_order,
    )
}
CASES = OF_MODELS | OTHERS
