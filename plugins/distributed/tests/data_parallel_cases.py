"""Models under DistributedDataParallel, in two processes: compiled against eager PyTorch."""

from __future__ import annotations

import copy
import itertools
import math
import re
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parallel.distributed import _MixedPrecision
from torch.utils.checkpoint import checkpoint

import thunder
from thunder_core.errors import UnsupportedError
from thunder_core.ir.symbol import Tag

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
    shape = (6, 2, 4, 4) if images else (6, 8)
    return torch.randn(shape, generator=generator, device="cpu").to(torch.get_default_device())


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
            assert (one.dtype, one.stride()) == (other.dtype, other.stride()), index
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
            dist.all_reduce(found, op=dist.ReduceOp.SUM)
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


def accumulation_of_others() -> None:
    """Other models and settings, with two steps without synchronization before one with."""
    silent = {"silent": (0, 1, 3, 4), "zero": lambda step: step in (0, 3), "steps": 6}
    for model in (Shared, Frozen, Layers):
        check(model, entries=2, **silent)
        check(lambda model=model: model().bfloat16(), batches=lambda batch: own(batch).bfloat16(), entries=2, **silent)
    check(Layers, options={"gradient_as_bucket_view": True}, entries=2, **silent)
    check(Unused, options={"find_unused_parameters": True}, entries=3, **silent)
    check(Layers, around=lambda: torch.autocast(torch.get_default_device().type, torch.bfloat16), entries=2, **silent)


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
    results = []
    for model in (one, compiled):
        train(model, images=True)
        model.eval()
        with torch.no_grad():
            results.append(model(own(data(7, images=True))))
        model.train()
    same(results[:1], results[1:])
    same(train(one, images=True), train(compiled, images=True))


def autocast() -> None:
    check(Layers, around=lambda: torch.autocast(torch.get_default_device().type, torch.bfloat16))


def bfloat16() -> None:
    check(lambda: Layers().bfloat16(), batches=lambda batch: own(batch).bfloat16())


def two_dtypes() -> None:
    check(of_two_dtypes)


def bucket_views() -> None:
    compiled = check(Layers, options={"gradient_as_bucket_view": True, "bucket_cap_mb": None})
    compiled.zero_grad()
    loss_of(compiled(own(data(0)))).backward()
    assert len({p.grad.untyped_storage().data_ptr() for p in compiled.parameters()}) == 1


def communication_hooks() -> None:
    def halved(state, bucket):  # PyTorch compares annotations with classes
        state.append((bucket.buffer().numel() == sum(p.numel() for p in bucket.parameters()), bucket.is_last()))
        for gradient in bucket.gradients():
            gradient.mul_(0.5)
        return default_hooks.allreduce_hook(None, bucket)

    for hook in (default_hooks.allreduce_hook, default_hooks.fp16_compress_hook, halved):
        one, other = pair(Layers)
        seen: list[Any] = []
        one.register_comm_hook([] if hook is halved else None, hook)
        other.register_comm_hook(seen if hook is halved else None, hook)
        compiled = thunder.jit(other)
        same(train(one), train(compiled))
        assert all(fits for fits, _ in seen)
        assert sum(last for _, last in seen) == (3 if hook is halved else 0)


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


def other_batches_on_each_rank() -> None:
    """Ranks compile for themselves, here also at different steps."""
    one, other = pair(Layers)
    compiled = thunder.jit(other)
    batches = [data(step)[: 2 + step * dist.get_rank()] for step in range(4)]
    for batch in batches:
        for model in (one, compiled):
            model.zero_grad()
            loss_of(model(batch)).backward()
        same(states(one), states(other))


class Branches(Layers):
    """Another layer is used where the input is small."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(self.layers[0](x))
        return self.layers[1](x) if x.mean() > 0 else self.layers[2](x)


def other_branches_on_each_rank() -> None:
    one, other = pair(Branches, find_unused_parameters=True)
    compiled = thunder.jit(other)
    same(train(one, steps=6), train(compiled, steps=6))
    assert len(thunder.explain(compiled).entries) == 2


def inside_of_a_program() -> None:
    """The module is a part of the program, which computes the loss, and scales the gradients before."""
    one, other = pair(Layers)

    def program(model: Any, x: torch.Tensor) -> torch.Tensor:
        return loss_of(model(x * 2)) * 3

    compiled = thunder.jit(program)
    for run, model in ((program, one), (compiled, other)):
        run(model, own(data(0))).backward()
    same(states(one), states(other))


def synchronized_normalization() -> None:
    """SyncBatchNorm, which eager has on accelerators alone, in training and in evaluation."""

    def model() -> nn.Module:
        return nn.SyncBatchNorm.convert_sync_batchnorm(with_buffers())

    if torch.get_default_device().type == "cpu":
        with pytest.raises(ValueError, match="SyncBatchNorm layers only work with GPU modules"):
            pair(model)
        return
    one, other = pair(model)
    compiled, x = thunder.jit(other), own(data(0, images=True))
    for expected, found in zip(train(one, images=True), train(compiled, images=True), strict=True):
        torch.testing.assert_close(found, expected)
    for each in (one, compiled):
        each.eval()
        each.zero_grad()
        loss_of(each(x)).backward()
    for expected, found in zip(states(one), states(other), strict=True):
        torch.testing.assert_close(found, expected)


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.bags = nn.Embedding(12, 8, sparse=True), nn.EmbeddingBag(12, 8, mode="sum", sparse=True)
        self.last = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.last(self.words(x) + self.bags(x[:, None])))


def sparse_gradients() -> None:
    """Ranks have gradients of other rows; also accumulated without synchronization, and added to kept ones."""
    for silent, keeps in (((), False), ((0, 2), False), ((), True)):
        one, other = pair(Words)
        seen = []
        for model in (one, thunder.jit(other)):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for step in range(4):
                if not keeps and step - 1 not in silent:
                    optimizer.zero_grad()
                generator = torch.Generator().manual_seed(10 * step + dist.get_rank())
                x = torch.randint(0, 12, (5,), generator=generator, device="cpu").to(torch.get_default_device())
                with model.no_sync() if step in silent else nullcontext():
                    loss_of(model(x)).backward()
                if step in silent:
                    continue
                gradients = [p.grad for p in model.parameters()]
                assert sum(gradient.is_sparse for gradient in gradients) == 2
                seen += [gradient.to_dense() for gradient in gradients]
                optimizer.step()
        count = len(seen) // 2
        same(seen[:count], seen[count:])


def sparse_gradients_of_results_that_are_not_used() -> None:
    class OneOfTwo(Words):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(self.words(x))

    compiled = thunder.jit(pair(OneOfTwo, find_unused_parameters=True)[1])
    with pytest.raises(UnsupportedError, match=r"computes no gradient for bags\.weight, whose gradients are sparse"):
        loss_of(compiled(torch.tensor([1, 2]))).backward()


def sparse_gradients_of_a_shared_weight() -> None:
    class Tied(Words):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) @ self.words.weight.t()

    one, other = pair(Tied)
    with pytest.raises(RuntimeError, match="Expected variable to have sparse gradient"):
        loss_of(one(torch.tensor([1, 2]))).backward()
    pending = torch._C._distributed_c10d._get_work_registry_size()
    with pytest.raises(UnsupportedError, match=r"the gradient of words\.weight is dense"):
        loss_of(thunder.jit(other)(torch.tensor([1, 2]))).backward()
    assert torch._C._distributed_c10d._get_work_registry_size() == pending, "nothing was sent"


def sparse_gradients_added_to_dense_ones() -> None:
    compiled = thunder.jit(other := pair(Words)[1])
    pending = torch._C._distributed_c10d._get_work_registry_size()
    other.module.words.weight.grad = torch.zeros_like(other.module.words.weight)
    with pytest.raises(UnsupportedError, match=r"the gradient of words\.weight is dense"):
        loss_of(compiled(torch.tensor([1, 2]))).backward()
    assert torch._C._distributed_c10d._get_work_registry_size() == pending, "nothing was sent"
    other.zero_grad()
    loss_of(compiled(torch.tensor([1, 2]))).backward()


class Synchronized(nn.BatchNorm2d):
    """It calls the function that SyncBatchNorm calls, which refuses CPUs."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        group, function = dist.group.WORLD, torch.nn.modules._functions.SyncBatchNorm
        arguments = (self.weight, self.bias, self.running_mean, self.running_var, self.eps, self.momentum)
        result: torch.Tensor = function.apply(x, *arguments, group, dist.get_world_size(group))
        return result


def synchronized_normalization_of_the_whole_batch() -> None:
    """Two ranks train as one process with BatchNorm and the whole batch."""

    def model(kind: type[nn.BatchNorm2d]) -> nn.Module:
        return nn.Sequential(nn.Conv2d(2, 4, 3), kind(4), nn.Tanh(), nn.Flatten(), nn.Linear(4 * 4, 8))

    whole, (_, other) = model(nn.BatchNorm2d), pair(lambda: model(Synchronized))
    whole.load_state_dict(other.module.state_dict())
    train(whole, batches=lambda batch: batch, images=True)
    train(thunder.jit(other), images=True)
    for expected, found in zip(states(whole), states(other.module), strict=True):
        assert found is not None
        if found.is_floating_point():
            torch.testing.assert_close(found, expected)


def uses_outside() -> None:
    """A gradient from a use outside of the program is not averaged, and gives a warning; other gradients give none."""
    for options in ({}, {"gradient_as_bucket_view": True}):
        _, other = pair(Layers, **options)
        compiled = thunder.jit(other)
        train(compiled)
        for set_to_none in (True, False):
            compiled.zero_grad(set_to_none=set_to_none)
            loss_of(compiled(own(data(0)))).backward()
        compiled.zero_grad()
        loss = loss_of(compiled(own(data(0))) @ other.module.layers[2].weight)
        with pytest.warns(UserWarning, match="layers.2.weight is also used outside of the compiled call"):
            loss.backward()


def uneven_inputs() -> None:
    """Calls in the context ``join`` are eager PyTorch's, and those after it, as PyTorch leaves it switched on."""
    one, other = pair(Layers)
    compiled = thunder.jit(other)
    for model in (one, compiled):
        with model.join():
            for step in range(1 + dist.get_rank()):
                loss_of(model(own(data(step)))).backward()
        train(model)
    same(states(one), states(other))
    assert not thunder.explain(compiled).entries


def without_overlap() -> None:
    """Gradients are averaged after backward, each bucket by itself."""
    for model, options in (
        (Layers, {}),
        (Unused, {"find_unused_parameters": True}),
        (TwoResults, {"find_unused_parameters": True}),
    ):
        one, other = pair(model, **options)
        compiled = thunder.jit(other, transforms=[{"distributed.overlap_gradients": {"enabled": False}}])
        same(train(one), train(compiled))
        names = [line.symbol.name for line in thunder.last_backward_traces(compiled)[-1].symbols]
        assert names[-1].endswith("input_hook")


def ops_of(model: Any) -> list[Any]:
    return list(thunder.last_backward_traces(model)[-1].symbols)


def structure() -> None:
    """Reductions start while backward runs, in the order of buckets, and are waited for at its end."""
    _, other = pair(lambda: Layers(count=8))
    compiled = thunder.jit(other)
    train(compiled, steps=1)
    lines = [line for line in ops_of(compiled) if line.outputs()]
    names = [line.symbol.name.rpartition(".")[2] for line in lines]
    starts = [index for index, line in enumerate(lines) if Tag.COLLECTIVE in line.symbol.tags]
    waits = [index for index, line in enumerate(lines) if Tag.WAIT in line.symbol.tags]
    assert len(starts) == len(waits) == 8
    assert starts[0] / len(lines) <= 0.51
    assert starts[-1] < waits[0]
    for start, following in itertools.pairwise(starts):
        computed = [name for name in names[start + 1 : following] if name not in ("filled", "summed")]
        assert computed, names
    for start, wait in zip(starts, waits, strict=True):
        (pending,) = lines[start].outputs()
        assert [proxy.name for proxy in lines[wait].inputs()] == [pending.name]
    described = str([names, [line.args[1] for line in lines if line.symbol.name.endswith("filled")]])
    everyone: list[Any] = [None, None]
    dist.all_gather_object(everyone, described)
    assert everyone[0] == everyone[1]


def bytes_sent() -> None:
    """As many elements are reduced as the parameters have, once, and none without synchronization."""
    _, other = pair(Layers)
    compiled = thunder.jit(other)
    train(compiled, silent=(0,), steps=2)
    for context, count in (
        (compiled.no_sync(), 0),
        (nullcontext(), sum(parameter.numel() for parameter in other.parameters())),
    ):
        activities = [torch.profiler.ProfilerActivity.CPU]
        with torch.profiler.profile(activities=activities, record_shapes=True) as profile, context:
            loss_of(compiled(own(data(0)))).backward()
        sent = [event.input_shapes[0] for event in profile.events() if event.name.startswith("gloo:")]
        reduced = [event.input_shapes[0] for event in profile.events() if event.name == "_c10d_functional::all_reduce_"]
        assert sum(map(math.prod, reduced)) == count, reduced
        assert bool(sent) is bool(count), sent


def refused(text: str) -> Any:
    return pytest.raises(UnsupportedError, match=re.escape(text))


def backward_refusals() -> None:
    """Nothing is sent by a backward that would not average all gradients."""
    x = own(data(0))
    model = thunder.jit(pair(Unused)[1])
    with refused("computes no gradient for layers.4.weight, layers.4.bias"):
        loss_of(model(x)).backward()
    assert all(p.grad is None for p in model.parameters())
    model = thunder.jit(pair(Layers)[1])
    with refused("torch.autograd.grad"):
        torch.autograd.grad(loss_of(model(x)), list(model.parameters()))
    with refused("torch.autograd.grad"):
        loss_of(model(x)).backward(inputs=[next(model.parameters())])
    with refused("second derivatives"):
        loss_of(model(x)).backward(create_graph=True)
    handle = next(model.parameters()).register_hook(lambda gradient: gradient * 2)
    with refused("has a hook"):
        loss_of(model(x)).backward()
    handle.remove()
    handle = next(model.parameters()).register_post_accumulate_grad_hook(lambda parameter: None)
    with refused("has a hook"):
        loss_of(model(x)).backward()
    handle.remove()
    assert all(p.grad is None for p in model.parameters())
    loss_of(model(x)).backward()


def refusals() -> None:
    """What a program cannot do is refused before it communicates."""
    x = own(data(0))
    built_in = pair(Layers)[1]
    built_in._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE)
    with refused("built into PyTorch"):
        thunder.jit(built_in)(x)
    with refused("mixed_precision"):
        lower = pair(Layers)[1]
        lower.mixed_precision = _MixedPrecision(param_dtype=torch.bfloat16)  # its constructor needs an accelerator
        thunder.jit(lower)(x)
    with refused("skip_all_reduce_unused_params"):
        thunder.jit(pair(Layers, skip_all_reduce_unused_params=True)[1])(x)
    model = Layers()
    delayed = DistributedDataParallel(
        model,
        delay_all_reduce_named_params=[("layers.3.weight", model.layers[3].weight)],
        param_to_hook_all_reduce=model.layers[0].weight,
    )
    with refused("delay_all_reduce_named_params"):
        thunder.jit(delayed)(x)
    inner = pair(Layers)[1]
    with refused("checkpoint region"):
        thunder.jit(lambda x: checkpoint(inner, x, use_reentrant=False))(x)

    def step(x: torch.Tensor) -> None:
        loss_of(inner(x)).backward()

    with refused("leaves them to PyTorch's autograd"):
        thunder.jit(step)(x)


CASES = {
    case.__name__: case
    for case in (
        plain,
        default_buckets,
        accumulation,
        accumulation_of_others,
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
        other_batches_on_each_rank,
        other_branches_on_each_rank,
        inside_of_a_program,
        uses_outside,
        synchronized_normalization,
        synchronized_normalization_of_the_whole_batch,
        sparse_gradients,
        sparse_gradients_of_results_that_are_not_used,
        sparse_gradients_of_a_shared_weight,
        sparse_gradients_added_to_dense_ones,
        uneven_inputs,
        without_overlap,
        structure,
        bytes_sent,
        backward_refusals,
        refusals,
    )
}

OF_GLOO = (
    "bytes_sent",
    "sparse_gradients",
    "sparse_gradients_of_a_shared_weight",
    "sparse_gradients_added_to_dense_ones",
)
"""Cases that count what gloo sends, and that reduce sparse gradients, which NCCL does not."""
