"""What is trained under `fully_shard` in two processes, compiled and by eager PyTorch, and has to be the same."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

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
from thunder_core.errors import UncacheableWarning

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
    def __init__(self, width: int = 8, outputs: int = 4, blocks: int = 2) -> None:
        super().__init__()
        self.embedding = nn.Linear(4, width)
        self.blocks = nn.ModuleList([Block(width) for _ in range(blocks)])
        self.head = nn.Linear(width, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embedding(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def small() -> Net:
    """For cases that do not depend on the order of groups: half of the ops to compile."""
    return Net(blocks=1)


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


def assert_same_gradients(expected: Any, actual: Any, when: str = "") -> None:
    for (name, one), other in zip(expected.named_parameters(), actual.parameters(), strict=True):
        assert_same(one.grad, other.grad, f"gradient of {name}{when}")


def equal_models(build: Callable[[], Any], transforms: Sequence[Any] = ()) -> tuple[Any, Any, Any]:
    """Two models with equal parameters, and the second one compiled."""
    torch.manual_seed(0)
    expected = build()
    torch.manual_seed(0)
    original = build()
    return expected, original, thunder.jit(original, executors=[], transforms=transforms)


def train(
    build: Callable[[], Any],
    *,
    step: Callable[[Any, int], torch.Tensor] = lambda model, count: model(inputs(count)).square().mean(),
    optimizer: Callable[[Any], Any] = lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    compilations: int = 1,
    clip: bool = False,
    transforms: Sequence[Any] = (),
    steps: int = STEPS,
) -> Any:
    """Train two equal models, one compiled, with equal losses, gradients and parameters; the compiled one."""
    expected, _, actual = equal_models(build, transforms)
    optimizers = [optimizer(model.parameters()) for model in (expected, actual)]
    for count in range(steps):
        losses = [step(model, count) for model in (expected, actual)]
        assert_same(losses[0], losses[1], f"loss of step {count}")
        for loss in losses:
            loss.backward()
        assert_same_gradients(expected, actual, f" in step {count}")
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
    assert thunder.cache_misses(actual) == compilations
    return actual


def called(function: Callable[[], Any]) -> dict[str, int]:
    """Call a function as `elements` does, without counting."""
    function()
    return {}


def elements(function: Callable[[], Any]) -> dict[str, int]:
    """How many elements this rank's whole parameters and gradients have that it gathers and scatters in a function.

    As gloo sees them, which reduces all of what is to be scattered. Call the function before (`called`): the profiler's
    events of a compilation take a second.
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
    actual = train(
        lambda: sharded(Net(), reshard_after_forward=True), optimizer=lambda p: torch.optim.AdamW(p, lr=0.01)
    )
    assert len(thunder.explain(actual).entries) == 1


def zero_2() -> None:
    train(lambda: sharded(Net(), reshard_after_forward=False))


def within_a_memory_budget() -> None:
    """Some parameters are saved for backward and others are gathered again, regardless of the wrapper's options."""
    some: list[Any] = [{"distributed.regather_parameters": {"memory_budget": 500}}]
    train(lambda: sharded(Net(7, 3), reshard_after_forward=True), transforms=some)
    train(lambda: sharded(Tied(), reshard_after_forward=False), transforms=some)
    train(lambda: sharded(Checkpointed(), reshard_after_forward=True), transforms=some)

    def step(memory_budget: int) -> dict[str, int]:
        transforms = [{"distributed.regather_parameters": {"memory_budget": memory_budget}}]
        model = thunder.jit(sharded(Net()), executors=[], transforms=transforms)
        called(lambda: model(inputs(0)).sum().backward())
        return elements(lambda: model(inputs(0)).sum().backward())

    everything = sum(parameter.numel() for parameter in Net().parameters())
    assert step(0) == {"gathered": 2 * everything, "scattered": everything}
    assert step(4 * everything) == {"gathered": everything, "scattered": everything}


def as_the_wrapper_decides() -> None:
    train(lambda: sharded(Net()))


def around_compiled_modules() -> None:
    """Each block is compiled before it is sharded, or the whole model is."""

    def blocks(compile_: Callable[[Any], Any]) -> Any:
        torch.manual_seed(0)
        model = Net()
        for index, block in enumerate(model.blocks):
            model.blocks[index] = fully_shard(compile_(block))
        return fully_shard(model)

    def whole(compile_: Callable[[Any], Any]) -> Any:
        torch.manual_seed(0)
        return fully_shard(compile_(Net()))

    def of_replicas(compile_: Callable[[Any], Any]) -> Any:
        from torch.distributed._composable.replicate_with_fsdp import replicate

        torch.manual_seed(0)
        return replicate(compile_(Net()))

    for build in (blocks, whole, of_replicas):
        models = [build(compile_) for compile_ in (lambda module: module, thunder.jit)]
        for step in range(STEPS):
            losses = [model(inputs(step)).square().mean() for model in models]
            assert_same(*losses, f"loss of step {step}")
            for loss in losses:
                loss.backward()
            assert_same_gradients(*models, f" in step {step}")
            for model in models:
                optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                optimizer.step()
                optimizer.zero_grad()
        compiled = models[1].blocks if build is blocks else [models[1]]
        assert all(len(thunder.explain(module).entries) == 1 for module in compiled)


def varying_sizes() -> None:
    """Batches of several sizes, which differ between ranks: sizes of shards are constants."""

    def step(model: Any, count: int) -> torch.Tensor:
        return model(inputs(count, 5 + count * (1 + dist.get_rank()), 4)).square().mean()

    expected, _, _ = equal_models(lambda: sharded(small()))
    torch.manual_seed(0)
    actual = thunder.jit(sharded(small()), executors=[], dynamic=True)
    for count in range(STEPS):
        losses = [step(model, count) for model in (expected, actual)]
        assert_same(losses[0], losses[1], f"loss of step {count}")
        for loss in losses:
            loss.backward()
    assert_same_gradients(expected, actual)
    assert len(thunder.explain(actual).entries) == 1
    shards = [each for each in thunder.last_traces(actual)[-1].inputs if each.name.endswith("_shard")]
    assert shards
    assert all(type(size) is int for shard in shards for size in shard.shape)


def only_the_root() -> None:
    train(lambda: fully_shard(small()))


def sgd_and_clipping() -> None:
    train(
        lambda: sharded(Net(), reshard_after_forward=True),
        clip=True,
    )


def fused_adamw() -> None:
    train(lambda: sharded(small()), optimizer=lambda p: torch.optim.AdamW(p, lr=0.01, fused=True))
    train(lambda: sharded(small()), optimizer=lambda p: torch.optim.AdamW(p, lr=0.01, foreach=True))


def uneven() -> None:
    """Rows that two ranks cannot share evenly; of one row the second rank has none."""
    for outputs in (1, 3):
        train(lambda outputs=outputs: sharded(Net(7, outputs, blocks=1), reshard_after_forward=True), clip=True)


def frozen() -> None:
    train(lambda: sharded(partly_frozen()))


class Unused(Net):
    def __init__(self) -> None:
        super().__init__(blocks=1)
        self.other = nn.Linear(3, 3)


def unused() -> None:
    train(lambda: sharded(Unused()))


class Tied(Net):
    def __init__(self) -> None:
        super().__init__(8, 8, blocks=1)
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
        train(lambda policy=policy: sharded(small(), mp_policy=policy, reshard_after_forward=True), step=step)


def hybrid() -> None:
    for shape, again in (((2, 1), True), ((1, 2), True), ((1, 2), False)):
        mesh = init_device_mesh(torch.get_default_device().type, shape, mesh_dim_names=("replicate", "shard"))
        train(lambda mesh=mesh, again=again: sharded(Net(), mesh=mesh, reshard_after_forward=again))


def partly_frozen() -> Any:
    model = small()
    model.embedding.requires_grad_(False)
    model.blocks[0].up.weight.requires_grad_(False)
    return model


BUILDS: dict[str, Callable[[], Any]] = {
    "uneven": lambda: Net(7, 3, blocks=1),
    "frozen": partly_frozen,
    "unused": lambda: Unused(),
    "shared": lambda: Tied(),
    "checkpointing": lambda: Checkpointed(blocks=1),
}
"""The models of the matrix of wrappers and peculiarities."""


POLICIES = (MixedPrecisionPolicy(), MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32))


def hybrid_of_model(shape: tuple[int, int], model: str) -> None:
    """HSDP of a model, in float32 or with bf16 parameters and float32 reductions.

    Of the product of shapes, models and policies, all pairs are trained and not all triples.
    """
    mesh = init_device_mesh(torch.get_default_device().type, shape, mesh_dim_names=("replicate", "shard"))
    policy = POLICIES[(list(BUILDS).index(model) + shape[0] % 2) % 2]
    train(
        lambda: sharded(BUILDS[model](), mesh=mesh, mp_policy=policy),
        step=lambda model, count: model(inputs(count)).float().square().mean(),
    )


HYBRID = {
    f"hybrid, {model}, {shape}": partial(hybrid_of_model, shape, model)
    for shape in ((2, 1), (1, 2))
    for model in BUILDS
}


def hybrid_volume() -> None:
    """Of P elements: a reduce-scatter of P where ranks share them, then an all-reduce of a shard among replicas."""
    for shape in ((2, 1), (1, 2)):
        mesh = init_device_mesh(torch.get_default_device().type, shape, mesh_dim_names=("replicate", "shard"))
        models = [sharded(small(), mesh=mesh, reshard_after_forward=True) for _ in range(2)]
        count = sum(parameter.numel() for parameter in models[0].parameters())
        found = []
        for model in (models[0], thunder.jit(models[1], executors=[])):
            for measured in (called, elements):
                sent = measured(lambda model=model: model(inputs(0)).sum().backward())
            found.append(sent)
        shards = shape[1]
        assert found[0]["scattered"] == count * (shards > 1) + count // shards, (shape, found, count)
        assert found[1] == found[0], (shape, found, count)


def different_batches() -> None:
    """Ranks with batches of different shapes, which vary from step to step."""

    def step(model: Any, count: int) -> torch.Tensor:
        return model(inputs(count, 3 + count + 2 * dist.get_rank(), 4)).square().mean()

    train(lambda: sharded(small(), reshard_after_forward=True), step=step, compilations=2)


def divide_factor() -> None:
    """Where replicas have whole parameters PyTorch divides twice, in place of the reduce-scatter and after it."""

    def build(**options: Any) -> Any:
        model = sharded(small(), **options)
        for module in (model, *model.blocks):
            module.set_gradient_divide_factor(3.0)
            module.set_force_sum_reduction_for_comms(True)
        return model

    train(build)
    half = MixedPrecisionPolicy(param_dtype=torch.float16, reduce_dtype=torch.float16)
    for shape in ((2, 1), (1, 2)):
        mesh = init_device_mesh(torch.get_default_device().type, shape, mesh_dim_names=("replicate", "shard"))
        for policy in (MixedPrecisionPolicy(), half):
            train(
                lambda mesh=mesh, policy=policy: build(mesh=mesh, mp_policy=policy),
                step=lambda model, count: model(inputs(count)).float().square().mean(),
            )


def meta_initialization() -> None:
    def build() -> Any:
        with torch.device("meta"):
            model = sharded(small())
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
        train(lambda again=again: sharded(small(), reshard_after_forward=again), step=step)


def other_dimension() -> None:
    from torch.distributed.tensor import Shard

    def placement(parameter: torch.Tensor) -> Any:
        return Shard(1) if parameter.ndim == 2 else Shard(0)

    train(lambda: sharded(small(), shard_placement_fn=placement, reshard_after_forward=True))


def inference() -> None:
    expected, model, actual = equal_models(lambda: sharded(small()))
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
        models = [sharded(small(), reshard_after_forward=again) for _ in range(2)]
        count = sum(parameter.numel() for parameter in models[0].parameters())
        for model in (models[0], thunder.jit(models[1], executors=[])):
            for measured in (called, elements):
                found = measured(lambda model=model: model(inputs(0)).sum().backward())
            assert found == {"gathered": count * (1 + again), "scattered": count}, (found, count)


def backward_inside() -> None:
    """A compiled step that calls backward itself, which PyTorch's autograd runs through."""
    expected, actual, _ = equal_models(lambda: sharded(small()))

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
        assert_same_gradients(expected, actual)


def state_dicts() -> None:
    """Names and values are eager's; what is loaded, also by assignment, is what the next call computes with."""
    torch.manual_seed(0)
    expected = sharded(small())
    torch.manual_seed(1)
    original = sharded(small())
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
        assert_same_gradients(expected, actual)


def configuration_changes() -> None:
    """Each configuration is compiled once."""
    expected, original, actual = equal_models(lambda: sharded(small()))
    for count, again in enumerate((True, False, True)):
        for model in (expected, original):
            model.set_reshard_after_forward(again)
        for model in (expected, actual):
            model.zero_grad()
            model(inputs(count)).square().mean().backward()
        assert_same_gradients(expected, original)
    assert len(thunder.explain(actual).entries) == 2


def eager_calls_between() -> None:
    """A forward by eager PyTorch leaves the root's parameters whole; compiled calls read shards all the same."""
    expected, original, actual = equal_models(lambda: sharded(small()))
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
    train(lambda: replicated(small()))
    for policy in (
        MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32),
        MixedPrecisionPolicy(reduce_dtype=torch.bfloat16),
    ):

        def step(model: Any, count: int) -> torch.Tensor:
            return model(inputs(count)).float().square().mean()

        train(lambda policy=policy: replicated(small(), mp_policy=policy), step=step)


def offloaded() -> None:
    """Parameters and gradients in memory of the host: on a GPU shards are copied there, and gradients back."""
    policy = CPUOffloadPolicy(pin_memory=torch.get_default_device().type != "cpu")
    for again in (True, False):
        train(lambda again=again: sharded(small(), offload_policy=policy, reshard_after_forward=again))


def parts(model: Any, **options: Any) -> Any:
    """`fully_shard` of each part of a block."""
    for block in model.blocks:
        for part in block.children():
            fully_shard(part, **options)
    return fully_shard(model, **options)


def buckets() -> None:
    """Collectives of several groups that are one, and gathers that start further ahead, change no bit."""
    bucket: list[Any] = [{"distributed.bucket_collectives": {}}]
    for transforms, again in ((bucket, True), (bucket, False), ([], True)):
        train(lambda again=again: parts(Net(), reshard_after_forward=again), transforms=transforms)


class Twice(Net):
    def run(self, block: nn.Module, count: int, x: torch.Tensor) -> torch.Tensor:
        return block(x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embedding(x)
        for count, block in enumerate((*self.blocks, *self.blocks)):
            x = self.run(block, count, x)
        return self.head(x)


class PartlyCheckpointed(Twice):
    """Calls in checkpointed regions, before others and after them, and one without gradients."""

    def run(self, block: nn.Module, count: int, x: torch.Tensor) -> torch.Tensor:
        if count in (1, 2):
            return checkpoint(block, x, use_reentrant=False)
        with torch.no_grad():
            y = block(x)
        return block(x) + y


def called_twice() -> None:
    """The gradients of both calls are reduced at once, when their sum is known."""
    mixed = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for build, options in (
        (Twice, {"reshard_after_forward": True}),
        (Twice, {"mp_policy": mixed, "reshard_after_forward": False}),
        (PartlyCheckpointed, {"reshard_after_forward": True}),
        (PartlyCheckpointed, {"mp_policy": mixed}),
    ):
        train(
            lambda build=build, options=options: sharded(build(), **options),
            step=lambda model, count: model(inputs(count)).float().square().mean(),
        )


def called_twice_volume() -> None:
    """As in eager: each call gathers, and one reduction is for both."""
    models = [sharded(Twice()) for _ in range(2)]
    found = []
    for model in (models[0], thunder.jit(models[1], executors=[])):
        for measured in (called, elements):
            sent = measured(lambda model=model: model(inputs(0)).sum().backward())
        found.append(sent)
    assert found[0]["scattered"] == sum(parameter.numel() for parameter in models[0].parameters())
    assert found[1] == found[0]


class First(Net):
    """Some calls leave out the second block."""

    uses_all = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.blocks[0](self.embedding(x))
        return self.head(self.blocks[1](x) if self.uses_all else x)


def settings_without_effect() -> None:
    """Settings of when eager PyTorch gathers, waits and frees, and parameters that the user has gathered."""

    def build() -> Any:
        model = sharded(Net(), reshard_after_forward=True)
        first, second = model.blocks
        model.set_modules_to_forward_prefetch([first])
        first.set_modules_to_forward_prefetch([second])
        second.set_modules_to_backward_prefetch([first])
        model.set_allocate_memory_from_process_group_for_comm(True)
        return model

    def step(model: Any, count: int) -> torch.Tensor:
        model.set_post_optim_event(None)
        if count == 1:
            model.unshard(async_op=True)
        if count == 2:
            model.blocks[0].unshard()
            whole = model.head.weight.full_tensor()
            model.unshard()  # gathers anew, and not what was gathered before the optimizer's step
            assert torch.equal(model.head.weight, whole)
        return model(inputs(count)).square().mean()

    train(build, step=step)


def lists_of_modules() -> None:
    """Modules that are sharded together, of which steps call all or some, once or twice."""
    mixed = MixedPrecisionPolicy(param_dtype=torch.bfloat16, output_dtype=torch.float32)

    def step(model: Any, count: int) -> torch.Tensor:
        model.uses_all = count != 1
        return model(inputs(count)).square().mean()

    def build(kind: Callable[[], Any], **options: Any) -> Any:
        model = kind()
        fully_shard([*model.blocks], **options)
        fully_shard([model.embedding, model.head], **options)
        return fully_shard(model, **options)

    kinds: dict[Callable[[], Any], int] = {Net: 1, First: 2, Twice: 1, partly_frozen: 1}
    if not hasattr(build(Net)._get_fsdp_state(), "_cast_output_dtype"):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".* fully_shard of a list of modules", UncacheableWarning)
            train(lambda: build(Net), compilations=STEPS)
        return
    for kind, options in (*[(kind, {"reshard_after_forward": True}) for kind in kinds], (Net, {"mp_policy": mixed})):
        train(lambda kind=kind, options=options: build(kind, **options), step=step, compilations=kinds[kind])


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


OTHERS = {
    case.__name__: case
    for case in [
        *(
            zero_3,
            zero_2,
            within_a_memory_budget,
            as_the_wrapper_decides,
            around_compiled_modules,
            varying_sizes,
            only_the_root,
            sgd_and_clipping,
            fused_adamw,
            uneven,
            frozen,
            unused,
        ),
        *(
            shared,
            mixed_precision,
            hybrid,
            hybrid_volume,
            divide_factor,
            meta_initialization,
            activation_checkpointing,
            other_dimension,
        ),
        *(autocast, different_batches, backward_inside, state_dicts, inference, volume),
        *(called_twice, called_twice_volume, lists_of_modules, settings_without_effect),
        *(configuration_changes, eager_calls_between, replicas, offloaded, buckets, forward_methods),
    ]
}
CASES = HYBRID | OTHERS
OF_GLOO = ("within_a_memory_budget", "hybrid_volume", "volume", "called_twice_volume")
"""Cases that count what gloo sends."""
