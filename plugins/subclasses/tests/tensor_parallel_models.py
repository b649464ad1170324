"""Models that `parallelize_module` was applied to: three steps of training against eager and against one process."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    PrepareModuleInputOutput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.utils.checkpoint import checkpoint

import thunder

VOCABULARY, WIDTH = 12, 8


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        q, k, v = [layer(x).view(batch, length, -1, 2).transpose(1, 2) for layer in (self.q, self.k, self.v)]
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(y.transpose(1, 2).reshape(batch, length, -1))


class MLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x)))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.attention, self.norm2, self.mlp = nn.LayerNorm(WIDTH), Attention(), nn.LayerNorm(WIDTH), MLP()

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Model(nn.Module):
    def __init__(self, layers: int = 1) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.Sequential(*[Block() for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.norm(self.layers(self.embedding(tokens))))


class WithLoss(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        return F.cross_entropy(self.model(tokens).flatten(0, 1), tokens.roll(1, 1).flatten())


def plan(*, sequence: bool, loss: bool, layers: int = 1) -> dict[str, Any]:
    """Megatron's: columns then rows in attention and MLP, with an input that is made a DTensor once for each."""
    whole = Shard(1) if sequence else Replicate()
    once = {"input_layouts": (whole,), "desired_input_layouts": (Replicate(),)}
    block: dict[str, Any] = {
        "attention": PrepareModuleInput(**once),
        **{f"attention.{name}": ColwiseParallel() for name in "qkv"},
        "attention.o": RowwiseParallel(output_layouts=whole),
        "mlp": PrepareModuleInput(**once),
        "mlp.up": ColwiseParallel(),
        "mlp.down": RowwiseParallel(output_layouts=whole),
    }
    if sequence:
        block |= {"norm1": SequenceParallel(), "norm2": SequenceParallel()}
    output = Shard(-1) if loss else Replicate()
    return {
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=whole),
        **{f"layers.{index}.{name}": style for index in range(layers) for name, style in block.items()},
        **({"norm": SequenceParallel()} if sequence else {}),
        "head": ColwiseParallel(input_layouts=whole, output_layouts=output, use_local_output=not loss),
    }


def tokens(seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, VOCABULARY, (2, 4), generator=generator, device="cpu").to(torch.get_default_device())


def floats(seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, 4, WIDTH, generator=generator, device="cpu").to(torch.get_default_device())


def plain(value: Any) -> Any:
    """A tensor that is there: eager gives those that a communication has still to deliver."""
    return value.trigger_wait() if isinstance(value, AsyncCollectiveTensor) else value


def assert_same(one: Any, other: Any, *, placements: bool = True) -> None:
    one, other = plain(one), plain(other)
    assert type(one) is type(other)
    if isinstance(one, DTensor):
        assert one.shape == other.shape
        assert one.device_mesh == other.device_mesh
        if placements:
            assert one.placements == other.placements
            torch.testing.assert_close(plain(one._local_tensor), plain(other._local_tensor))
        else:
            torch.testing.assert_close(one.full_tensor(), other.full_tensor())
    else:
        torch.testing.assert_close(one, other)


def whole(value: Tensor) -> Tensor:
    return value.full_tensor() if isinstance(value, DTensor) else value


@contextlib.contextmanager
def counted(counts: Counter[str]) -> Any:
    """Count the communications that are started."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], acc_events=True) as profile:
        yield
    called = [event.name for event in profile.events() if event.name.startswith("c10d::")]
    counts.update(kind for kind in ("allreduce", "allgather", "reduce_scatter") for name in called if kind in name)


class Trained:
    """Three steps of AdamW: losses, gradients, parameters, and the communications of the last forward and backward."""

    def __init__(
        self, run: Callable[..., Any], module: nn.Module, inputs: Any, loss: Any, context: Any, *, counts: bool
    ) -> None:
        optimizer = torch.optim.AdamW(module.parameters(), lr=0.05, foreach=False)
        self.losses: list[Tensor] = []
        self.gradients: dict[str, Tensor] = {}
        self.forward, self.backward = Counter[str](), Counter[str]()
        for seed in range(3):
            measured: Any = (
                counted if counts and seed == 2 else contextlib.nullcontext
            )  # events of a compilation are slow
            with context():
                with measured(self.forward):
                    value = loss(run(inputs(seed)))
                with measured(self.backward):
                    value.backward()
            self.losses.append(value.detach())
            self.gradients |= {f"{seed} {name}": p.grad for name, p in module.named_parameters()}
            optimizer.step()
            optimizer.zero_grad()
        self.parameters = dict(module.named_parameters())


def check(
    make: Callable[[], nn.Module],
    parallelize: Callable[[nn.Module], nn.Module],
    inputs: Callable[[int], Tensor],
    loss: Callable[[Any], Tensor],
    context: Any = contextlib.nullcontext,
    *,
    counts: bool = True,
    other_placements: tuple[str, ...] = (),
) -> Trained:
    """Train the whole model in this process, the parallel one by eager, and the parallel one compiled.

    Args:
        counts: whether the communications are those of eager. Checkpoint regions of eager communicate again.
        other_placements: parameters whose gradients eager lays out otherwise than the parameter.
    """
    modules = []
    for _ in range(3):
        torch.manual_seed(0)
        modules.append(make())
    one = Trained(modules[0], modules[0], inputs, loss, contextlib.nullcontext, counts=False)
    eager = parallelize(modules[1])
    expected = Trained(eager, eager, inputs, loss, context, counts=counts)
    module = parallelize(modules[2])
    compiled = thunder.jit(module)
    found = Trained(compiled, module, inputs, loss, context, counts=counts)
    assert thunder.cache_misses(compiled) == 1
    if counts:
        assert (found.forward, found.backward) == (expected.forward, expected.backward)
    for ours, theirs, alone in zip(found.losses, expected.losses, one.losses, strict=True):
        assert_same(ours, theirs)
        torch.testing.assert_close(whole(ours), alone)
    for name, gradient in expected.gradients.items():
        placements = not name.endswith(other_placements) if other_placements else True
        assert_same(found.gradients[name], gradient, placements=placements)
        if isinstance(gradient, DTensor):
            torch.testing.assert_close(whole(found.gradients[name]), one.gradients[name], rtol=1e-4, atol=1e-6)
    for name, parameter in expected.parameters.items():
        assert_same(found.parameters[name], parameter)
    return found


def by_plan(mesh: Any, **options: Any) -> Callable[[nn.Module], nn.Module]:
    return lambda model: parallelize_module(model, mesh, plan(**options))


def cross_entropy(result: Tensor) -> Tensor:
    target = torch.arange(result.shape[0] * result.shape[1]) % VOCABULARY
    return F.cross_entropy(result.flatten(0, 1), target)


_LAYERS = 2
"""Of the models whose communications are counted."""


def columns_and_rows(mesh: Any) -> None:
    parallelize = by_plan(mesh, sequence=False, loss=False, layers=_LAYERS)
    make = partial(Model, _LAYERS)
    trained = check(make, parallelize, tokens, cross_entropy, other_placements=("embedding.weight",))
    if mesh.size() == 1:
        return
    # two for each layer, one for the rows of the embedding or the columns of the head; the result is gathered
    assert trained.forward == Counter(allreduce=2 * _LAYERS + 1, allgather=1)
    assert trained.backward == Counter(allreduce=2 * _LAYERS + 1)


def sequences(mesh: Any) -> None:
    parallelize = by_plan(mesh, sequence=True, loss=False, layers=_LAYERS)
    trained = check(partial(Model, _LAYERS), parallelize, tokens, cross_entropy, other_placements=("embedding.weight",))
    if mesh.size() == 1:
        return
    count = 2 * _LAYERS + 1
    assert trained.forward == Counter(allgather=count + 1, reduce_scatter=count)
    assert trained.backward == Counter(allgather=count, reduce_scatter=count)


def parallel_loss(mesh: Any) -> None:
    parallelize = by_plan(mesh, sequence=False, loss=True)
    trained = check(Model, parallelize, tokens, cross_entropy, loss_parallel, other_placements=("embedding.weight",))
    assert trained.forward["allgather"] == 0


def parallel_loss_inside(mesh: Any) -> None:
    def parallelize(module: Any) -> nn.Module:
        parallelize_module(module.model, mesh, plan(sequence=True, loss=True))
        return module

    check(
        lambda: WithLoss(Model()),
        parallelize,
        tokens,
        lambda loss: loss,
        loss_parallel,
        other_placements=("embedding.weight",),
    )


class Checkpointed(Model):
    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False)
        return self.head(self.norm(x))


def checkpoints(mesh: Any) -> None:
    parallelize = by_plan(mesh, sequence=True, loss=False)
    check(Checkpointed, parallelize, tokens, cross_entropy, counts=False, other_placements=("embedding.weight",))


def results_that_are_distributed(mesh: Any) -> None:
    styles = {
        "up": ColwiseParallel(use_local_output=False),
        "down": RowwiseParallel(output_layouts=Shard(0), use_local_output=False),
    }
    check(MLP, lambda module: parallelize_module(module, mesh, styles), floats, lambda y: whole(y).square().mean())


def inputs_and_outputs_of_modules(mesh: Any) -> None:
    layouts = {"input_layouts": (Shard(1),), "desired_input_layouts": (Replicate(),)}
    into = PrepareModuleInputOutput(
        **layouts, output_layouts=(Replicate(),), desired_output_layouts=(Shard(1),), use_local_output=False
    )
    out = PrepareModuleOutput(output_layouts=(Shard(1),), desired_output_layouts=(Replicate(),))

    def parallelize(module: Any) -> nn.Module:
        styles = {"0.up": ColwiseParallel(), "0.down": RowwiseParallel(use_local_output=False)}
        parallelize_module(module, mesh, {"0": into, "": out, **styles})
        return module

    modules = []
    for _ in range(2):
        torch.manual_seed(0)
        modules.append(parallelize(nn.Sequential(MLP())))
    compiled = thunder.jit(modules[1])
    for seed in range(2):
        value = floats(seed)[:, : 4 // mesh.size()]
        expected, result = modules[0](value), compiled(value)
        assert_same(result, expected)
        for each in (expected, result):
            each.square().mean().backward()
    for (name, one), other in zip(modules[0].named_parameters(), modules[1].parameters(), strict=True):
        assert one.grad is not None, name
        assert_same(other.grad, one.grad)
    assert thunder.cache_misses(compiled) == 1


def without_gradients(mesh: Any) -> None:
    torch.manual_seed(0)
    module = parallelize_module(Model(), mesh, plan(sequence=True, loss=False))
    compiled = thunder.jit(module)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            for seed in range(2):
                assert_same(compiled(tokens(seed)), module(tokens(seed)))
    assert thunder.cache_misses(compiled) == 2


class NormedAttention(nn.Module):
    """Its projections each gather the sequence, and each scatter a gradient of it."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(x)
        return x + self.o(self.q(h).sin() * self.k(h).cos() + self.v(h))


def uneven_sequences(mesh: Any) -> None:
    """Some ranks pad their part of the sequence, and only these remove the padding."""
    columns = ColwiseParallel(input_layouts=Shard(1))
    rows = RowwiseParallel(output_layouts=Shard(1), use_local_output=False)
    styles = {"norm": SequenceParallel(), "q": columns, "k": columns, "v": columns, "o": rows}
    modules = []
    for _ in range(2):
        torch.manual_seed(0)
        modules.append(nn.Sequential(*[parallelize_module(NormedAttention(), mesh, styles) for _ in range(2)]))
    compiled = thunder.jit(modules[1])
    generator = torch.Generator().manual_seed(0)
    value = torch.randn(2, 5, WIDTH, generator=generator, device="cpu").to(torch.get_default_device())
    given = distribute_tensor(value, mesh, [Shard(1)])
    for run in (modules[0], compiled):
        run(given).to_local().square().sum().backward()
    for one, other in zip(modules[0].parameters(), modules[1].parameters(), strict=True):
        assert_same(other.grad, one.grad, placements=False)


MODELS = (
    *(columns_and_rows, sequences, uneven_sequences, parallel_loss, parallel_loss_inside, results_that_are_distributed),
    *(inputs_and_outputs_of_modules, without_gradients, checkpoints),
)
