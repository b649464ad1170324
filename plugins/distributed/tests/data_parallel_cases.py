"""Models under DistributedDataParallel, in two processes: compiled against eager PyTorch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import thunder
from thunder_core.errors import UnsupportedError

Options = dict[str, Any]
SMALL: Options = {"bucket_cap_mb": 0.0002}
"""Buckets of about two hundred bytes, so that small models have several."""


class Layers(nn.Module):
    def __init__(self, width: int = 8, count: int = 4) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(count)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x


class Checkpointed(Layers):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = checkpoint(lambda value, layer=layer: torch.tanh(layer(value)), x, use_reentrant=False)
        return x


class Shared(Layers):
    def __init__(self) -> None:
        super().__init__()
        self.layers[3].weight = self.layers[0].weight


class Frozen(Layers):
    def __init__(self) -> None:
        super().__init__()
        self.layers[1].requires_grad_(False)
        self.layers[2].bias.requires_grad_(False)


class Unused(Layers):
    """The last layer is never used, and rank 1 does not use the second one in its second step."""

    def __init__(self) -> None:
        super().__init__(count=5)
        self.skips = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(self.layers[0](x))
        if not self.skips or dist.get_rank() == 0:
            x = torch.tanh(self.layers[1](x))
        return self.layers[3](torch.tanh(self.layers[2](x)))


class TwoResults(Layers):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.tanh(self.layers[1](torch.tanh(self.layers[0](x))))
        return self.layers[2](x), self.layers[3](x)


def with_buffers() -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 4, 8))


def channels_last() -> nn.Module:
    return with_buffers().to(memory_format=torch.channels_last)


def of_two_dtypes() -> nn.Module:
    class Mixed(Layers):
        def __init__(self) -> None:
            super().__init__()
            self.layers[2].to(torch.float64)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = torch.tanh(layer(x.to(layer.weight.dtype)))
            return x

    return Mixed()


def data(step: int, images: bool = False) -> torch.Tensor:
    """The whole batch of a step."""
    generator = torch.Generator().manual_seed(100 + step)
    return torch.randn(6, 2, 4, 4, generator=generator) if images else torch.randn(6, 8, generator=generator)


def own(batch: torch.Tensor) -> torch.Tensor:
    """This rank's part of it."""
    return batch.chunk(dist.get_world_size())[dist.get_rank()]


def loss_of(result: Any) -> torch.Tensor:
    result = result[0] if isinstance(result, tuple) else result
    return result.float().square().mean()


def states(model: nn.Module) -> list[torch.Tensor | None]:
    gradients = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    return [*gradients, *[p.detach().clone() for p in model.parameters()], *[b.clone() for b in model.buffers()]]


def train(
    model: Any,
    *,
    batches: Callable[[torch.Tensor], torch.Tensor] = own,
    around: Callable[[], AbstractContextManager[Any]] = nullcontext,
    silent: tuple[int, ...] = (),
    zero: Callable[[int], bool] = lambda step: True,
    set_to_none: bool = True,
    images: bool = False,
    steps: int = 3,
) -> list[torch.Tensor | None]:
    """Losses, gradients, parameters and buffers after each step.

    Args:
        silent: steps without synchronization, after which the optimizer does nothing.
        zero: whether gradients are zero before a step.
    """
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    seen: list[torch.Tensor | None] = []
    for step in range(steps):
        for module in model.modules():
            if isinstance(module, Unused):
                module.skips = step == 1
        if zero(step):
            optimizer.zero_grad(set_to_none=set_to_none)
        with model.no_sync() if step in silent else nullcontext(), around():
            loss = loss_of(model(batches(data(step, images))))
        loss.backward()
        if step not in silent:
            optimizer.step()
        seen += [loss.detach(), *states(model)]
    return seen


def same(expected: list[Any], found: list[Any]) -> None:
    assert len(expected) == len(found)
    for index, (one, other) in enumerate(zip(expected, found, strict=True)):
        if one is None or other is None:
            assert one is other, (index, one, other)
        else:
            assert one.dtype == other.dtype and one.stride() == other.stride(), index
            torch.testing.assert_close(other, one, rtol=0, atol=0, msg=lambda text, index=index: f"{index}: {text}")


def pair(model: Callable[[], nn.Module], **options: Any) -> tuple[DistributedDataParallel, DistributedDataParallel]:
    """Two equal modules, with other parameters on rank 1 before they are wrapped."""
    torch.manual_seed(dist.get_rank())
    first = model()
    options = {**SMALL, **options}
    return DistributedDataParallel(copy.deepcopy(first), **options), DistributedDataParallel(first, **options)


def check(model: Callable[[], nn.Module], *, options: Options | None = None, entries: int = 1, **training: Any) -> Any:
    """Compiled and eager train equally; the compiled module."""
    one, other = pair(model, **(options or {}))
    compiled = thunder.jit(other)
    same(train(one, **training), train(compiled, **training))
    assert thunder.cache_misses(compiled) == entries, [entry.reason for entry in thunder.explain(compiled).entries]
    return compiled


def plain() -> None:
    compiled = check(Layers)
    one = Layers()
    _, other = pair(Layers)
    one.load_state_dict(other.module.state_dict())
    whole, parts = train(one, batches=lambda batch: batch), train(thunder.jit(other))
    count = len(whole) // 3
    for index, (expected, found) in enumerate(zip(whole, parts, strict=True)):
        if index % count == 0:  # the loss
            dist.all_reduce(found, op=dist.ReduceOp.AVG if False else dist.ReduceOp.SUM)
            found /= 2
        torch.testing.assert_close(found, expected)
    assert compiled.module is not None


def default_buckets() -> None:
    check(Layers, options={"bucket_cap_mb": None})


def accumulation() -> None:
    """Two steps without synchronization before one with; also by gradients that are kept, and set to zero."""
    check(Layers, silent=(0, 1, 3, 4), zero=lambda step: step in (0, 3), steps=6, entries=2)
    check(Layers, silent=(1, 3), zero=lambda step: False, steps=6, entries=2)
    check(Layers, set_to_none=False)


def accumulated_gradients_stay_the_same_tensors() -> None:
    _, other = pair(Layers)
    compiled = thunder.jit(other)
    train(compiled, steps=1)
    before = [p.grad for p in other.parameters()]
    train(compiled, steps=2, set_to_none=False)
    assert all(p.grad is grad for p, grad in zip(other.parameters(), before, strict=True))


def checkpointing() -> None:
    check(Checkpointed)


def shared() -> None:
    check(Shared)


def frozen() -> None:
    check(Frozen)


def unused() -> None:
    check(Unused, options={"find_unused_parameters": True}, entries=2)
    check(Unused, options={"find_unused_parameters": True}, entries=2, set_to_none=False, steps=4)


def unused_results() -> None:
    check(TwoResults, options={"find_unused_parameters": True})


def static_graph() -> None:
    check(Layers, options={"static_graph": True})


def buffers() -> None:
    for model in (with_buffers, channels_last):
        check(model, images=True)
        check(model, images=True, silent=(1,), zero=lambda step: step != 2, steps=5, entries=3)
    check(with_buffers, images=True, options={"broadcast_buffers": False})


def evaluation_between() -> None:
    one, other = pair(with_buffers)
    compiled = thunder.jit(other)
    for model in (one, compiled):
        train(model, images=True)
        model.eval()
        with torch.no_grad():
            results = model(own(data(7, images=True)))
        model.train()
        same([results], [results])
    same(train(one, images=True), train(compiled, images=True))


def autocast() -> None:
    check(Layers, around=lambda: torch.autocast("cpu", torch.bfloat16))


def bfloat16() -> None:
    check(lambda: Layers().bfloat16(), batches=lambda batch: own(batch).bfloat16())


def two_dtypes() -> None:
    check(of_two_dtypes)


def bucket_views() -> None:
    check(Layers, options={"gradient_as_bucket_view": True})


def communication_hooks() -> None:
    for hook, state in (
        (default_hooks.allreduce_hook, lambda: None),
        (default_hooks.fp16_compress_hook, lambda: None),
        (powerSGD_hook.powerSGD_hook, lambda: powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2)),
    ):
        one, other = pair(Layers)
        for model in (one, other):
            model.register_comm_hook(state(), hook)
        compiled = thunder.jit(other)
        torch.manual_seed(5)
        expected = train(one, steps=4)
        torch.manual_seed(5)
        found = train(compiled, steps=4)
        if hook is powerSGD_hook.powerSGD_hook:  # its approximation depends on the buckets
            assert all(torch.isfinite(value).all() for value in found)
        else:
            same(expected, found)


def twice_in_one_loss() -> None:
    one, other = pair(Layers)
    for model in (one, compiled := thunder.jit(other)):
        (loss_of(model(own(data(0)))) + loss_of(model(own(data(1))))).backward()
    assert compiled.training
    for expected, found in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(found.grad, expected.grad)


def eager_calls_between() -> None:
    one, other = pair(Layers)
    compiled = thunder.jit(other)
    expected = [value for _ in range(3) for value in train(one)]
    same(expected, [value for model in (compiled, other, compiled) for value in train(model)])


def inside_of_a_program() -> None:
    """The module is a part of the program, which computes the loss, and scales the gradients before."""
    one, other = pair(Layers)

    def program(model: Any, x: torch.Tensor) -> torch.Tensor:
        return loss_of(model(x * 2)) * 3

    compiled = thunder.jit(program)
    for run, model in ((program, one), (compiled, other)):
        run(model, own(data(0))).backward()
    same(states(one), states(other))


@contextmanager
def raises(text: str) -> Iterator[None]:
    try:
        yield
    except UnsupportedError as error:
        assert text in str(error), str(error)
    else:
        raise AssertionError(f"no error about {text}")


def refusals() -> None:
    def compiled(model: Callable[[], nn.Module] = Layers, **options: Any) -> Any:
        return thunder.jit(pair(model, **options)[1])

    x = own(data(0))
    model = compiled(Unused)
    with raises("gives no gradient to layers.4.weight, layers.4.bias"):
        loss_of(model(x)).backward()
    assert all(p.grad is None for p in model.parameters())
    model = compiled()
    with raises("torch.autograd.grad"):
        torch.autograd.grad(loss_of(model(x)), list(model.parameters()))
    with raises("torch.autograd.grad"):
        loss_of(model(x)).backward(inputs=[next(model.parameters())])
    handle = next(model.parameters()).register_hook(lambda gradient: gradient * 2)
    with raises("has a hook"):
        loss_of(model(x)).backward()
    handle.remove()
    assert all(p.grad is None for p in model.parameters())
    with raises("second derivatives"):
        loss_of(model(x)).backward(create_graph=True)
    loss_of(model(x)).backward()
    names = [(name, parameter) for name, parameter in Layers().named_parameters()][:1]
    assert names
    model = compiled()
    model.module.layers[0] = nn.Linear(8, 8)
    other = pair(Layers)[1]
    other._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE)
    with raises("built into PyTorch"):
        thunder.jit(other)(x)
    with raises("sparse gradients"):
        thunder.jit(pair(lambda: nn.Sequential(nn.Embedding(4, 8, sparse=True)))[1])(torch.tensor([1, 2]))


CASES = (
    plain,
    default_buckets,
    accumulation,
    accumulated_gradients_stay_the_same_tensors,
    checkpointing,
    shared,
    frozen,
    unused,
    unused_results,
    static_graph,
    buffers,
    evaluation_between,
    autocast,
    bfloat16,
    two_dtypes,
    bucket_views,
    communication_hooks,
    twice_in_one_loss,
    eager_calls_between,
    inside_of_a_program,
    refusals,
)
