"""What is trained under `fully_shard` in two processes, compiled and by eager PyTorch, and has to be the same."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor
from torch.utils.checkpoint import checkpoint

import thunder

STEPS = 3


class Block(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self, width: int = 8, outputs: int = 4) -> None:
        super().__init__()
        self.embedding = nn.Linear(4, width)
        self.blocks = nn.ModuleList([Block(width) for _ in range(2)])
        self.head = nn.Linear(width, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embedding(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def sharded(model: Any, **options: Any) -> Any:
    for block in model.blocks:
        fully_shard(block, **options)
    return fully_shard(model, **options)


def inputs(step: int, *shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(10 * step + dist.get_rank())
    return torch.randn(shape or (5, 4), generator=generator, device="cpu").to(torch.get_default_device())


def local(tensor: Any) -> Any:
    return tensor._local_tensor if isinstance(tensor, DTensor) else tensor


def assert_same(expected: Any, actual: Any, what: str) -> None:
    assert type(actual) is type(expected), what
    if isinstance(expected, DTensor):
        assert actual._spec == expected._spec, (what, actual._spec, expected._spec)
    if expected is not None:
        torch.testing.assert_close(local(actual), local(expected), rtol=0, atol=0, msg=lambda text: f"{what}: {text}")


def train(
    build: Callable[[], Any],
    *,
    step: Callable[[Any, int], torch.Tensor] = lambda model, count: model(inputs(count)).square().mean(),
    optimizer: Callable[[Any], Any] = lambda parameters: torch.optim.AdamW(parameters, lr=0.01),
    compilations: int = 1,
    clip: bool = False,
) -> Any:
    """Train two equal models, one compiled, with equal losses, gradients and parameters; the compiled one."""
    torch.manual_seed(0)
    expected = build()
    torch.manual_seed(0)
    original = build()
    actual = thunder.jit(original, executors=[])
    optimizers = [optimizer(model.parameters()) for model in (expected, actual)]
    for count in range(STEPS):
        losses = [step(model, count) for model in (expected, actual)]
        assert_same(losses[0], losses[1], f"loss of step {count}")
        for loss in losses:
            loss.backward()
        for (name, one), other in zip(expected.named_parameters(), actual.parameters(), strict=True):
            assert_same(one.grad, other.grad, f"gradient of {name} in step {count}")
        if clip:
            norms = [nn.utils.clip_grad_norm_(model.parameters(), 0.01) for model in (expected, actual)]
            assert_same(norms[0], norms[1], f"norm in step {count}")
        for each in optimizers:
            each.step()
            each.zero_grad()
        for (name, one), other in zip(expected.named_parameters(), actual.parameters(), strict=True):
            assert_same(one, other, f"{name} after step {count}")
    for (name, one), other in zip(expected.named_buffers(), actual.buffers(), strict=True):
        assert_same(one, other, name)
    assert len(thunder.explain(actual).entries) == compilations
    return actual


def elements(function: Callable[[], Any]) -> dict[str, int]:
    """How many elements this rank's whole parameters and gradients have that it gathers and scatters in a function.

    As gloo sees them, which reduces all of what is to be scattered.
    """
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profile:
        function()
    found = {"gathered": 0, "scattered": 0}
    kinds = {"gloo:all_gather": ("gathered", dist.get_world_size()), "gloo:all_reduce": ("scattered", 1)}
    for event in profile.events():
        if event.name in kinds:
            kind, factor = kinds[event.name]
            found[kind] += factor * sum(map(math.prod, event.input_shapes))
    return found


def zero_3() -> None:
    train(lambda: sharded(Net(), reshard_after_forward=True))


def zero_2() -> None:
    train(lambda: sharded(Net(), reshard_after_forward=False))


def as_the_wrapper_decides() -> None:
    train(lambda: sharded(Net()))


def only_the_root() -> None:
    train(lambda: fully_shard(Net()))


def sgd_and_clipping() -> None:
    train(
        lambda: sharded(Net(), reshard_after_forward=True),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
        clip=True,
    )


def fused_adamw() -> None:
    train(lambda: sharded(Net()), optimizer=lambda p: torch.optim.AdamW(p, lr=0.01, fused=True))
    train(lambda: sharded(Net()), optimizer=lambda p: torch.optim.AdamW(p, lr=0.01, foreach=True))


def uneven() -> None:
    """Rows that two ranks cannot share evenly; of one row the second rank has none."""
    for outputs in (1, 3):
        train(lambda outputs=outputs: sharded(Net(7, outputs), reshard_after_forward=True), clip=True)


def frozen() -> None:
    def build() -> Any:
        model = Net()
        model.embedding.requires_grad_(False)
        model.blocks[0].up.weight.requires_grad_(False)
        return sharded(model)

    train(build)


class Unused(Net):
    def __init__(self) -> None:
        super().__init__()
        self.other = nn.Linear(3, 3)


def unused() -> None:
    train(lambda: sharded(Unused()))


class Tied(Net):
    def __init__(self) -> None:
        super().__init__(8, 8)
        self.other = nn.Linear(8, 8)
        self.other.weight = self.head.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.other(super().forward(x))


def shared() -> None:
    train(lambda: sharded(Tied()))


def mixed_precision() -> None:
    for options in (
        {"param_dtype": torch.bfloat16, "reduce_dtype": torch.float32},
        {"param_dtype": torch.bfloat16},
        {"param_dtype": torch.bfloat16, "cast_forward_inputs": False},
        {"param_dtype": torch.float16, "reduce_dtype": torch.float16},
        {"param_dtype": torch.bfloat16, "reduce_dtype": torch.float32, "output_dtype": torch.bfloat16},
        {"reduce_dtype": torch.bfloat16},
    ):

        def step(model: Any, count: int, options: dict[str, Any] = options) -> torch.Tensor:
            x = inputs(count)
            return model(x if options.get("cast_forward_inputs", True) else x.bfloat16()).float().square().mean()

        policy = MixedPrecisionPolicy(**options)
        train(lambda policy=policy: sharded(Net(), mp_policy=policy, reshard_after_forward=True), step=step)


def hybrid() -> None:
    for shape in ((2, 1), (1, 2)):
        mesh = init_device_mesh(torch.get_default_device().type, shape, mesh_dim_names=("replicate", "shard"))
        for again in (True, False):
            train(lambda mesh=mesh, again=again: sharded(Net(), mesh=mesh, reshard_after_forward=again))


def different_batches() -> None:
    """Ranks with batches of different shapes, which vary from step to step."""

    def step(model: Any, count: int) -> torch.Tensor:
        return model(inputs(count, 3 + count + 2 * dist.get_rank(), 4)).square().mean()

    train(lambda: sharded(Net(), reshard_after_forward=True), step=step, compilations=2)


def divide_factor() -> None:
    def build() -> Any:
        model = sharded(Net())
        for module in (model, *model.blocks):
            module.set_gradient_divide_factor(3.0)
            module.set_force_sum_reduction_for_comms(True)
        return model

    train(build)


def meta_initialization() -> None:
    def build() -> Any:
        with torch.device("meta"):
            model = sharded(Net())
        model.to_empty(device=torch.get_default_device())
        with torch.no_grad():
            for count, parameter in enumerate(model.parameters()):
                shard = parameter.to_local()
                shard.copy_(torch.linspace(-1, 1, shard.numel()).view(shard.shape) / (count + 1))
        return model

    train(build)


class Checkpointed(Net):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embedding(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return self.head(x)


def activation_checkpointing() -> None:
    for again in (True, False):
        train(lambda again=again: sharded(Checkpointed(), reshard_after_forward=again))


def autocast() -> None:
    def step(model: Any, count: int) -> torch.Tensor:
        with torch.autocast(torch.get_default_device().type, torch.bfloat16):
            return model(inputs(count)).float().square().mean()

    for again in (True, False):
        train(lambda again=again: sharded(Net(), reshard_after_forward=again), step=step)


def other_dimension() -> None:
    from torch.distributed.tensor import Shard

    def placement(parameter: torch.Tensor) -> Any:
        return Shard(1) if parameter.ndim == 2 else Shard(0)

    train(lambda: sharded(Net(), shard_placement_fn=placement, reshard_after_forward=True))


def inference() -> None:
    torch.manual_seed(0)
    expected = sharded(Net())
    torch.manual_seed(0)
    model = sharded(Net())
    actual = thunder.jit(model, executors=[])
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            torch.testing.assert_close(actual(inputs(0)), expected(inputs(0)), rtol=0, atol=0)
    assert_same_module(expected, model)


def assert_same_module(expected: Any, actual: Any) -> None:
    for module in (expected, actual):
        module.reshard()
    for (name, one), other in zip(expected.named_parameters(), actual.parameters(), strict=True):
        assert_same(one, other, name)


def volume() -> None:
    """As in theory, and in eager: P elements gathered, twice to shard parameters after forward, and P scattered."""
    for again in (True, False):
        models = [sharded(Net(), reshard_after_forward=again) for _ in range(2)]
        count = sum(parameter.numel() for parameter in models[0].parameters())
        for model in (models[0], thunder.jit(models[1], executors=[])):
            for _ in range(2):
                found = elements(lambda model=model: model(inputs(0)).sum().backward())
            assert found == {"gathered": count * (1 + again), "scattered": count}, (found, count)


def backward_inside() -> None:
    """A compiled step that calls backward itself, which PyTorch's autograd runs through."""
    torch.manual_seed(0)
    expected = sharded(Net())
    torch.manual_seed(0)
    actual = sharded(Net())

    def step(model: Any) -> Callable[[torch.Tensor], torch.Tensor]:
        def run(x: torch.Tensor) -> torch.Tensor:
            loss = model(x).square().mean()
            loss.backward()
            return loss.detach()

        return run

    compiled = thunder.jit(step(actual), executors=[])
    for count in range(2):
        for model in (expected, actual):
            model.zero_grad()
        assert_same(step(expected)(inputs(count)), compiled(inputs(count)), "loss")
        for (name, one), other in zip(expected.named_parameters(), actual.parameters(), strict=True):
            assert_same(one.grad, other.grad, name)


def state_dicts() -> None:
    """Names and values are eager's; what is loaded, also by assignment, is what the next call computes with."""
    torch.manual_seed(0)
    expected = sharded(Net())
    torch.manual_seed(1)
    original = sharded(Net())
    actual = thunder.jit(original, executors=[])
    actual(inputs(0)).sum().backward()
    for assign in (False, True):
        with torch.no_grad():
            for parameter in expected.parameters():
                parameter.mul_(1.5)
        values = {name: value.clone() for name, value in get_model_state_dict(expected).items()}
        if assign:
            actual.load_state_dict(values, assign=True)
        else:
            set_model_state_dict(actual, values)
        found = get_model_state_dict(actual)
        assert list(found) == list(values)
        for name, value in values.items():
            assert_same(value, found[name], name)
        for model in (expected, actual):
            model.zero_grad()
        losses = [model(inputs(1)).square().mean() for model in (expected, actual)]
        assert_same(losses[0], losses[1], "loss")
        for loss in losses:
            loss.backward()
        for (name, one), other in zip(expected.named_parameters(), actual.parameters(), strict=True):
            assert_same(one.grad, other.grad, name)


@contextmanager
def no_sync(model: Any) -> Iterator[None]:
    model.set_requires_gradient_sync(False)
    try:
        yield
    finally:
        model.set_requires_gradient_sync(True)


def accumulation() -> None:
    """Calls whose gradients are not reduced run by eager PyTorch, and so does the one that reduces them."""

    def step(model: Any, count: int) -> torch.Tensor:
        if count != 1:
            with no_sync(model):
                model(inputs(count + 10)).square().mean().backward()
        return model(inputs(count)).square().mean()

    actual = train(lambda: sharded(Net()), step=step)
    assert thunder.cache_hits(actual) == 0


def configuration_changes() -> None:
    """Each configuration is compiled once."""
    torch.manual_seed(0)
    expected = sharded(Net())
    torch.manual_seed(0)
    original = sharded(Net())
    actual = thunder.jit(original, executors=[])
    for count, again in enumerate((True, False, True)):
        for model in (expected, original):
            model.set_reshard_after_forward(again)
        for model in (expected, actual):
            model.zero_grad()
            model(inputs(count)).square().mean().backward()
        for (name, one), other in zip(expected.named_parameters(), original.parameters(), strict=True):
            assert_same(one.grad, other.grad, name)
    assert len(thunder.explain(actual).entries) == 2


def eager_calls_between() -> None:
    """A forward by eager PyTorch leaves the root's parameters whole; compiled calls read shards all the same."""
    torch.manual_seed(0)
    expected = sharded(Net())
    torch.manual_seed(0)
    original = sharded(Net())
    actual = thunder.jit(original, executors=[])
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in (expected, original)]
    for count in range(3):
        for model, optimizer in zip((expected, actual), optimizers, strict=True):
            model(inputs(count)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        with torch.no_grad():
            torch.testing.assert_close(original(inputs(9)), expected(inputs(9)), rtol=0, atol=0)
            torch.testing.assert_close(actual(inputs(9)), expected(inputs(9)), rtol=0, atol=0)
        for model in (expected, original):
            model.reshard()
    assert len(thunder.explain(actual).entries) == 2


def replicated(model: nn.Module, **options: Any) -> Any:
    from torch.distributed._composable.replicate_with_fsdp import replicate

    for block in model.blocks:
        replicate(block, **options)
    return replicate(model, **options)


def replicas() -> None:
    """`replicate`, which reduces gradients and shards nothing."""
    train(lambda: replicated(Net()))
    for policy in (
        MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32),
        MixedPrecisionPolicy(reduce_dtype=torch.bfloat16),
    ):

        def step(model: Any, count: int) -> torch.Tensor:
            return model(inputs(count)).float().square().mean()

        train(lambda policy=policy: replicated(Net(), mp_policy=policy), step=step)


def offloaded() -> None:
    """On the CPU parameters are where they are computed with; elsewhere the policy is refused."""
    policy = CPUOffloadPolicy(pin_memory=False)
    if torch.get_default_device().type == "cpu":
        train(lambda: sharded(Net(), offload_policy=policy))
        return
    with pytest.raises(thunder.UnsupportedError, match="CPUOffloadPolicy"):
        thunder.jit(sharded(Net(), offload_policy=policy))(inputs(0))


class WithMethod(Net):
    def encode(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.embedding(x))


def forward_methods() -> None:
    """`register_fsdp_forward_method`: a method that gathers parameters as forward does."""

    def build() -> Any:
        torch.manual_seed(0)
        model = sharded(WithMethod())
        register_fsdp_forward_method(model, "encode")
        return model

    expected, actual = build(), build()

    def program(model: Any, x: torch.Tensor) -> torch.Tensor:
        return model.encode(x).square().mean() + model(x).square().mean()

    compiled = thunder.jit(program, executors=[])
    for count in range(2):
        for run, model in ((program, expected), (compiled, actual)):
            model.zero_grad()
            run(model, inputs(count)).backward()
        for (name, one), other in zip(expected.named_parameters(), actual.parameters(), strict=True):
            torch.testing.assert_close(local(other.grad), local(one.grad), msg=name)  # sums of two gradients
    assert len(thunder.explain(compiled).entries) == 1


CASES = {
    case.__name__: case
    for case in [
        *(zero_3, zero_2, as_the_wrapper_decides, only_the_root, sgd_and_clipping, fused_adamw, uneven, frozen, unused),
        *(
            shared,
            mixed_precision,
            hybrid,
            divide_factor,
            meta_initialization,
            activation_checkpointing,
            other_dimension,
        ),
        *(autocast, different_batches, backward_inside, state_dicts, inference, volume, accumulation),
        *(configuration_changes, eager_calls_between, replicas, offloaded, forward_methods),
    ]
}
