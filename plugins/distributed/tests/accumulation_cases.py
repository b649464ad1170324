"""Gradients that are accumulated without communication under `fully_shard`: as in eager PyTorch, by programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import fully_shard_cases
import pytest
import torch
from fully_shard_cases import (
    Net,
    Twice,
    assert_same_gradients,
    called,
    elements,
    equal_models,
    inputs,
    local,
    parts,
    replicated,
    sharded,
    small,
    train,
)
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy
from torch.multiprocessing.reductions import StorageWeakRef

import thunder
from thunder_core.errors import UnsupportedError
from thunder_core.ir.symbol import Tag
from thunder_plugin_distributed.accumulated_gradients import accumulated
from thunder_plugin_distributed.coalesced import is_parameter_gather, whole_bytes
from thunder_plugin_distributed.fully_shard_plan import groups_of

MICRO_STEPS = 3
MIXED = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
POLICIES = (MixedPrecisionPolicy(), MIXED)
BUILDS: dict[str, Callable[[], Any]] = {"plain": Net, **fully_shard_cases.BUILDS}


def loss_of(model: Any, count: int) -> torch.Tensor:
    return model(inputs(count)).float().square().mean()


@contextmanager
def no_sync(model: Any) -> Iterator[None]:
    model.set_requires_gradient_sync(False)
    try:
        yield
    finally:
        model.set_requires_gradient_sync(True)


def micro_steps(model: Any, count: int) -> torch.Tensor:
    """The last of `MICRO_STEPS` losses; the others are differentiated without a reduction."""
    for part in range(1, MICRO_STEPS):
        with no_sync(model):
            loss_of(model, count + 10 * part).backward()
        assert all(parameter.grad is None for parameter in model.parameters())
    return loss_of(model, count)


def check(build: Callable[[], Any], step: Callable[[Any, int], torch.Tensor] = micro_steps, entries: int = 2) -> None:
    """Programs compute what eager PyTorch does: one for steps that accumulate, one for those that reduce."""
    steps = entries  # so that each program runs twice at least
    actual = train(build, step=step, compilations=entries, steps=steps)
    if step is micro_steps:
        assert thunder.cache_hits(actual) == steps * MICRO_STEPS - 2


def mesh(*shape: int) -> Any:
    return init_device_mesh(torch.get_default_device().type, shape, mesh_dim_names=("replicate", "shard"))


WAYS: dict[str, Callable[[], dict[str, Any]]] = {
    "zero_3": lambda: {"reshard_after_forward": True},
    "zero_2": lambda: {"reshard_after_forward": False},
    "replicas": lambda: {"mesh": mesh(2, 1)},
    "hybrid": lambda: {"mesh": mesh(1, 2)},
}


def of_model(way: str, model: str) -> None:
    """Train a model that is sharded in one way.

    Of the product of ways, models and policies, all pairs are trained and not all triples: policies alternate from
    model to model, and every second way has the other policy first.
    """
    policy = POLICIES[(list(WAYS).index(way) + list(BUILDS).index(model)) % len(POLICIES)]
    check(lambda: sharded(BUILDS[model](), mp_policy=policy, **WAYS[way]()))


OF_MODELS = {
    f"{way}, {model}": partial(of_model, way, model)
    for way in WAYS
    for model in BUILDS
    if model != "checkpointing" or way.startswith("zero")
}


def mixed_precision() -> None:
    """Dtypes in which gradients are accumulated that are not those of parameters, or of reductions."""
    for options in (
        {"param_dtype": torch.bfloat16},
        {"param_dtype": torch.float16, "reduce_dtype": torch.float16},
        {"reduce_dtype": torch.bfloat16},
    ):
        check(lambda options=options: sharded(small(), mp_policy=MixedPrecisionPolicy(**options)))


def second_dimension(parameter: torch.Tensor) -> Any:
    from torch.distributed.tensor import Shard

    return Shard(1) if parameter.ndim == 2 else Shard(0)


def configurations() -> None:
    """Parameters sharded along their second dimension, in memory of the host, replicated, and in groups of layers."""
    check(lambda: sharded(small(), shard_placement_fn=second_dimension, mp_policy=MIXED, reshard_after_forward=True))
    policy = CPUOffloadPolicy(pin_memory=torch.get_default_device().type != "cpu")
    check(lambda: sharded(small(), offload_policy=policy))
    check(lambda: replicated(small(), mp_policy=MIXED))
    for placement in (None, second_dimension):
        train(
            lambda placement=placement: parts(Net(), reshard_after_forward=True, shard_placement_fn=placement),
            step=micro_steps,
            transforms=[{"distributed.bucket_collectives": {}}],
            compilations=2,
            steps=2,
        )


def accumulation() -> None:
    """Steps with and without accumulation: programs that accumulate, reduce what is accumulated, or reduce alone."""

    def step(model: Any, count: int) -> torch.Tensor:
        return micro_steps(model, count) if count != 1 else loss_of(model, count)

    check(lambda: sharded(small()), step, entries=3)


def settings_without_effect() -> None:
    """`set_is_last_backward` and `set_reshard_after_backward` say when eager PyTorch waits for and frees memory."""

    def step(model: Any, count: int) -> torch.Tensor:
        model.set_is_last_backward(False)
        model.set_reshard_after_backward(False)
        with no_sync(model):
            loss_of(model, count + 10).backward()
        model.set_is_last_backward(True)
        model.set_reshard_after_backward(True)
        return loss_of(model, count)

    check(lambda: sharded(small()), step)


def some_modules() -> None:
    """Gradients of the blocks alone are accumulated."""

    def step(model: Any, count: int) -> torch.Tensor:
        for block in model.blocks:
            block.set_requires_gradient_sync(False)
        loss_of(model, count + 10).backward()
        for block in model.blocks:
            block.set_requires_gradient_sync(True)
        return loss_of(model, count)

    check(lambda: sharded(small(), mp_policy=MIXED), step)


def eager_calls_between() -> None:
    """Eager PyTorch continues what programs accumulated, and programs what eager PyTorch did.

    Of each policy, what eager PyTorch accumulated is reduced by a program, and the reverse.
    """
    half = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
    steps_of_eager = {POLICIES[0]: ((0,), (2,)), MIXED: ((0, 1), (1, 2)), half: ((1,), (2,))}
    for policy, eager in [(policy, eager) for policy, each in steps_of_eager.items() for eager in each]:
        expected, original, actual = equal_models(lambda policy=policy: sharded(small(), mp_policy=policy))
        for part in range(MICRO_STEPS):
            is_last = part == MICRO_STEPS - 1
            original.set_requires_gradient_sync(is_last)
            expected.set_requires_gradient_sync(is_last)
            for model in (expected, original if part in eager else actual):
                loss_of(model, part).backward()
        assert_same_shards(expected, original)


def assert_same_shards(expected: Any, actual: Any) -> None:
    """The gradients of sharded parameters, which modules have again, are equal."""
    for module in (expected, actual):
        module.reshard()
    assert_same_gradients(expected, actual)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        assert ctx.needs_input_grad == (True,)
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * 2


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert self.weight.requires_grad
        return torch.tanh(x @ Doubled.apply(self.weight))


def functions_of_the_user() -> None:
    """Equal layers with an `autograd.Function` of their parameters, which require grad."""

    class Layers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.Sequential(Layer(), Layer(), Layer())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.blocks(x)

    for policy in POLICIES:
        check(lambda policy=policy: sharded(Layers(), mp_policy=policy))


class Branches(Net):
    """Only some calls use the second block and the bias of this module."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.ones(8))
        self.uses_all = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.blocks[0](self.embedding(x))
        return self.head(self.blocks[1](x) + self.bias if self.uses_all else x)


def modules_that_the_last_step_does_not_use() -> None:
    """What the steps before accumulated for them is reduced."""

    def step(model: Any, count: int) -> torch.Tensor:
        model.uses_all = True
        with no_sync(model):
            loss_of(model, count + 10).backward()
        model.uses_all = False
        return loss_of(model, count)

    for policy in POLICIES:
        check(lambda policy=policy: sharded(Branches(), mp_policy=policy), step)


def called_twice() -> None:
    """A module that is called twice, in steps that accumulate, and in one that reduces."""

    def step(model: Any, count: int) -> torch.Tensor:
        with no_sync(model):
            loss_of(model, count + 10).backward()
        return loss_of(model, count)

    expected, original, actual = equal_models(lambda: sharded(Twice()))
    for count in range(2):
        for model in (expected, actual):
            model.zero_grad()
            step(model, count).backward()
        for (name, one), other in zip(expected.named_parameters(), original.parameters(), strict=True):
            torch.testing.assert_close(local(other.grad), local(one.grad), msg=name)  # sums of two gradients
    assert len(thunder.explain(actual).entries) == 2


def gradients_of_inputs() -> None:
    """`torch.autograd.grad` of an input accumulates nothing."""
    expected, original, actual = equal_models(lambda: sharded(small()))
    for model in (expected, actual):
        with no_sync(model):
            x = inputs(1).requires_grad_()
            torch.autograd.grad(loss(model, x), x)
            loss(model, x).backward()
        assert x.grad is not None
        loss_of(model, 0).backward()
    assert_same_shards(expected, original)


def loss(model: Any, x: torch.Tensor) -> torch.Tensor:
    return model(x).square().mean()


def inference_between() -> None:
    """Calls without gradients leave alone what is accumulated."""
    expected, original, actual = equal_models(lambda: sharded(small()))
    for model in (expected, actual):
        with no_sync(model):
            loss_of(model, 1).backward()
            with torch.no_grad():
                loss_of(model, 2)
        with torch.no_grad():
            loss_of(model, 3)
        loss_of(model, 4)  # without backward
        loss_of(model, 0).backward()
    assert_same_shards(expected, original)


def backward_inside() -> None:
    """A compiled step that calls backward() and accumulates."""

    def step(model: Any) -> Callable[[torch.Tensor], torch.Tensor]:
        def run(x: torch.Tensor) -> torch.Tensor:
            value = loss(model, x)
            value.backward()
            return value.detach()

        return run

    expected, original, _ = equal_models(lambda: sharded(small(), mp_policy=MIXED))
    compiled = thunder.jit(step(original), executors=[])
    for part in range(MICRO_STEPS):
        for model, run in ((expected, step(expected)), (original, compiled)):
            model.set_requires_gradient_sync(part == MICRO_STEPS - 1)
            run(inputs(part))
    assert_same_shards(expected, original)
    assert len(thunder.explain(compiled).entries) == 2


def volume() -> None:
    """Steps that accumulate scatter nothing; the one that reduces scatters as much as one without accumulation."""
    for again in (True, False):
        models = [sharded(small(), reshard_after_forward=again) for _ in range(2)]
        count = sum(parameter.numel() for parameter in models[0].parameters())
        for model in (models[0], thunder.jit(models[1], executors=[])):
            for measured in (called, elements):
                with no_sync(model):
                    silent = measured(lambda model=model: loss_of(model, 1).backward())
                reducing = measured(lambda model=model: loss_of(model, 0).backward())
            assert silent == {"gathered": count * (1 + again), "scattered": 0}, (silent, count)
            assert reducing == {"gathered": count * (1 + again), "scattered": count}, (reducing, count)


def hybrid_volume() -> None:
    """Nothing is reduced among replicas, either."""
    for shape in ((2, 1), (1, 2)):
        model = thunder.jit(sharded(small(), mesh=mesh(*shape)), executors=[])
        for measured in (called, elements):
            with no_sync(model):
                silent = measured(lambda model=model: loss_of(model, 1).backward())
            reducing = measured(lambda model=model: loss_of(model, 0).backward())
        assert silent["scattered"] == 0, silent
        assert reducing["scattered"] > 0, reducing


def structure() -> None:
    """A step that accumulates gathers in backward what one that reduces does, as early, and reduces nothing."""
    model = thunder.jit(sharded(Net(), reshard_after_forward=True), executors=[])
    names = []
    for is_last in (False, True):
        model.set_requires_gradient_sync(is_last)
        loss_of(model, 0).backward()
        lines = thunder.last_backward_traces(model)[-1].symbols
        names.append([line.symbol.name.rpartition(".")[2] for line in lines if Tag.COLLECTIVE in line.symbol.tags])
    assert not any("scatter" in name for name in names[0])
    assert names[0] == [name for name in names[1] if "scatter" not in name]
    assert any("scatter" in name for name in names[1])


def sizes_of_gathers() -> None:
    """Gathers of steps that accumulate have as many bytes of parameters as others, for decisions by a cost model."""
    model = thunder.jit(sharded(small(), mp_policy=MIXED), executors=[])
    found = []
    for is_last in (True, False, True):  # reduces, accumulates, reduces what is accumulated
        model.set_requires_gradient_sync(is_last)
        loss_of(model, 0).backward()
        lines = thunder.last_traces(model)[-1].symbols
        found.append([whole_bytes(line) for line in lines if is_parameter_gather(line)])
    assert found[0] == found[1] == found[2]
    assert sum(found[0]) == 2 * sum(parameter.numel() for parameter in model.parameters())


def graph_of_an_earlier_reduction() -> None:
    """A backward is refused after its accumulated gradient was reduced, though another one could have its memory."""
    for placement in (None, second_dimension):
        model = thunder.jit(sharded(small(), shard_placement_fn=placement), executors=[])
        with no_sync(model):
            loss_of(model, 0).backward()
        value = loss_of(model, 1)
        loss_of(model, 2).backward()
        with no_sync(model):
            loss_of(model, 3).backward()
        with pytest.raises(UnsupportedError, match="between this forward and its backward"):
            value.backward()


def memory() -> None:
    """What was accumulated is freed when it is reduced, also while the losses are alive."""
    model = thunder.jit(sharded(small(), mp_policy=MIXED), executors=[])
    losses, memories = [], []
    for count in range(2):
        with no_sync(model):
            losses.append(loss_of(model, count))
            losses[-1].backward()
        for state in model._get_fsdp_state()._state_ctx.all_states:
            for group in groups_of(state):
                totals = [accumulated(each) for each in group.fsdp_params]
                memories += [StorageWeakRef(total.untyped_storage()) for total in totals if total is not None]
        losses.append(loss_of(model, count))
        losses[-1].backward()
        totals = []
        assert memories
        assert all(memory.expired() for memory in memories)


def wrong_order() -> None:
    """Settings that change between forward and backward are refused: nothing is reduced twice, or not at all."""
    model = thunder.jit(sharded(small()), executors=[])
    with no_sync(model):
        value = loss_of(model, 0)
    with pytest.raises(UnsupportedError, match="set_requires_gradient_sync was called between"):
        value.backward()
    value = loss_of(model, 0)
    with no_sync(model), pytest.raises(UnsupportedError, match="set_requires_gradient_sync was called between"):
        value.backward()
    value = loss_of(model, 0)
    with no_sync(model):
        loss_of(model, 1).backward()
    with pytest.raises(UnsupportedError, match="between this forward and its backward"):
        value.backward()
    one, other = loss_of(model, 0), loss_of(model, 1)
    one.backward()
    with pytest.raises(UnsupportedError, match="between this forward and its backward"):
        other.backward()


OTHERS = {
    case.__name__: case
    for case in [
        *(mixed_precision, configurations),
        *(accumulation, settings_without_effect, some_modules),
        *(
            functions_of_the_user,
            eager_calls_between,
            modules_that_the_last_step_does_not_use,
            called_twice,
            gradients_of_inputs,
        ),
        *(inference_between, backward_inside, volume, hybrid_volume, structure, wrong_order),
        *(sizes_of_gathers, graph_of_an_earlier_reduction, memory),
    ]
}
CASES = OF_MODELS | OTHERS
OF_GLOO = ("volume", "hybrid_volume")
"""Cases that count what gloo sends."""
