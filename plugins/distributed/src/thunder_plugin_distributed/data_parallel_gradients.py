"""The functions that backward calls to average gradients over ranks, as DistributedDataParallel does.

The sum of the accumulated gradient, ``parameter.grad``, and the gradient of this backward is averaged, which includes
gradients of steps without synchronization. The average replaces both: ``parameter.grad`` is set to zero directly
before autograd adds the average to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, NoReturn

import torch
from torch.nn.parallel import DistributedDataParallel

from thunder_core.errors import UnsupportedError
from thunder_core.ir.symbol import Symbol, Tag
from thunder_core.pytorch_internals import will_engine_execute_node
from thunder_core.symbols.registry import registry
from thunder_plugin_distributed.collectives import wait
from thunder_plugin_distributed.data_parallel_buckets import Buckets
from thunder_plugin_distributed.data_parallel_hooks import CALL_HOOK, HOOK_RESULT, symbol_of
from thunder_plugin_distributed.data_parallel_parameters import Averaged, averaged, prepared
from thunder_plugin_distributed.data_parallel_uses import give
from thunder_plugin_distributed.pytorch_internals import c10d_functional

Gradients = tuple[torch.Tensor | None, ...]


class Averages(NamedTuple):
    """How the gradients of a module are averaged.

    Attributes:
        buckets: the positions of gradients that are reduced together.
        group, size: the name of the process group, and its number of ranks.
        finds_unused: some parameters may have no gradients on some ranks.
        hooked: a communication hook reduces the buckets.
        sparse: positions of parameters with sparse gradients, each a bucket of its own.
    """

    buckets: Buckets
    group: str
    size: int
    finds_unused: bool = False
    hooked: bool = False
    sparse: tuple[int, ...] = ()


def average_gradients(
    gradients: Gradients, reached: tuple[bool, ...], module: DistributedDataParallel, averages: Averages
) -> Gradients:
    """The averages of gradients over all ranks; each bucket is reduced by itself, all of them after backward.

    The transform ``overlap_gradients`` replaces this call by the ops of `Averaging`, and starts each bucket as soon as
    its gradients are computed.

    Args:
        gradients: the gradients of the module's parameters, in the order of `named_parameters`; None for zero.
        reached: for each parameter, whether results of this rank depend on it.
    """
    averaging = Averaging(_call, gradients, reached, module, averages)
    for _ in averaging.starts():
        pass
    return averaging.averages()


def _call(symbol: Symbol, *args: Any) -> Any:
    return symbol.target(*args)


class Averaging:
    """The steps of `average_gradients`.

    Args:
        do: called as ``do(symbol, *args)`` for each step: calls the symbol, or writes an op.
    """

    def __init__(
        self,
        do: Callable[..., Any],
        gradients: Sequence[Any],
        reached: tuple[bool, ...],
        module: Any,
        averages: Averages,
    ) -> None:
        self._do, self._gradients, self._reached, self._module = do, gradients, reached, module
        self._how, self._factor = averages, None if averages.hooked else 1 / averages.size
        self._given = tuple([gradient is not None for gradient in gradients])
        self._pending: list[Any] = []
        self._used: Any = None

    def starts(self) -> Iterator[None]:
        """Check all buckets, then start the reduction of each bucket, and last that of the mask of used parameters."""
        missing, unfit = absent(self._gradients, self._how.buckets), self._of_other_layout()
        self._do(CHECK, self._module, self._how.buckets, missing, self._how.finds_unused, unfit)
        for index, places in enumerate(self._how.buckets):
            if places[0] in self._how.sparse:
                gradient = self._gradients[places[0]]
                self._pending.append(self._do(SPARSE_AVERAGE, self._module, places[0], gradient, self._how.group))
                yield
                continue
            gradients = tuple([self._gradients[place] for place in places])
            flat = self._do(FILLED, self._module, places, gradients, self._factor)
            if self._how.hooked:
                is_last = index == len(self._how.buckets) - 1
                flat = self._do(CALL_HOOK, self._module, places, flat, index, is_last)
            self._pending.append(flat if self._how.hooked else self._summed(flat))
            yield
        if self._how.finds_unused:
            self._used = self._summed(self._do(USED_HERE, self._module, self._reached, self._given))
            yield

    def averages(self) -> Gradients:
        """Wait for all reductions; return the gradients."""
        used = self._awaited(self._used) if self._how.finds_unused else None
        results: list[Any] = [None] * len(self._gradients)
        for places, pending in zip(self._how.buckets, self._pending, strict=True):
            if places[0] in self._how.sparse:
                results[places[0]] = pending
                continue
            flat = self._do(HOOK_RESULT, pending) if self._how.hooked else self._awaited(pending)
            given = tuple([self._given[place] for place in places])
            for place, result in zip(places, self._do(TAKEN, self._module, places, flat, given, used), strict=True):
                results[place] = result
        return tuple(results)

    def _of_other_layout(self) -> tuple[int, ...]:
        """Positions of parameters with a dense gradient in place of a sparse one, or the reverse."""
        given = [place for places in self._how.buckets for place in places if self._given[place]]
        return tuple(
            [place for place in given if _is_sparse(self._gradients[place]) is not (place in self._how.sparse)]
        )

    def _summed(self, values: Any) -> Any:
        return values if self._how.size == 1 else self._do(SUMMED, values, self._how.group)

    def _awaited(self, values: Any) -> Any:
        return values if self._how.size == 1 else self._do(WAIT, values)


def _is_sparse(gradient: Any) -> bool:
    return gradient.layout is torch.sparse_coo


def absent(gradients: Sequence[Any], buckets: Buckets) -> tuple[int, ...]:
    """Positions of parameters that require grad but have no gradient in this backward."""
    return tuple([place for places in buckets for place in places if gradients[place] is None])


def check(
    module: DistributedDataParallel,
    buckets: Buckets,
    missing: tuple[int, ...],
    finds_unused: bool,
    unfit: tuple[int, ...] = (),
) -> None:
    """Refuse, before anything is sent, a backward that would not average all gradients.

    Args:
        missing: positions of parameters without a gradient.
        unfit: positions of parameters with a dense gradient in place of a sparse one, or the reverse.

    Raises:
        UnsupportedError: parameters have no gradient; they have hooks, which in eager receive the gradients of this
            rank; gradients are not accumulated; or accumulated gradients are dense in place of sparse, or the reverse.
    """
    known = prepared(module)  # parameters that were frozen or converted since then have new nodes
    if missing and not finds_unused:
        names = ", ".join(known[place].name for place in sorted(missing))
        raise UnsupportedError(
            f"DistributedDataParallel: this backward computes no gradient for {names}",
            advice=("DistributedDataParallel(..., find_unused_parameters=True)", "have the loss depend on all outputs"),
        )
    lacking = [known[place].name for place in missing if known[place].sparse]
    if lacking:
        raise UnsupportedError(
            f"DistributedDataParallel: this backward computes no gradient for {', '.join(lacking)}, "
            "whose gradients are sparse",
            advice=("have the loss depend on it", "use an embedding with dense gradients"),
        )
    for place in [place for places in buckets for place in places]:
        item = known[place]
        before = item.parameter.grad
        if place in unfit or (before is not None and _is_sparse(before) is not item.sparse):
            _refuse_layout(item)
        if item.parameter._backward_hooks or item.parameter._post_accumulate_grad_hooks:
            raise UnsupportedError(
                f"the parameter {item.name} of DistributedDataParallel has a hook, which in eager PyTorch is called "
                "before gradients are averaged",
                advice=("put it around the compiled module: DistributedDataParallel(thunder.jit(module))",),
            )
        if not _accumulates(item.node):
            raise UnsupportedError(
                "DistributedDataParallel averages the gradients that backward() accumulates in `grad`: "
                "torch.autograd.grad and backward(inputs=...) do not",
                advice=("call loss.backward()", "call the module in `with model.no_sync():` for this rank's gradients"),
            )


def _refuse_layout(item: Averaged) -> NoReturn:
    if item.sparse:
        raise UnsupportedError(
            f"the gradient of {item.name} is dense, which is the weight of an embedding with sparse gradients",
            advice=("use an embedding with dense gradients", "share the weight with no other module"),
        )
    raise UnsupportedError(
        f"the gradient of {item.name} is sparse: DistributedDataParallel reduces dense ones",
        advice=("have a module torch.nn.Embedding or EmbeddingBag with sparse=True own it",),
    )


def _accumulates(node: Any) -> bool:
    """Whether the running backward accumulates a gradient with this node, even if the gradient is undefined."""
    try:
        return bool(will_engine_execute_node(node))
    except RuntimeError:  # PyTorch raises it for the inputs of `torch.autograd.grad`
        return False


def filled(
    module: DistributedDataParallel, places: tuple[int, ...], gradients: Gradients, factor: float | None
) -> torch.Tensor:
    """A bucket: for each parameter, its accumulated gradient plus this one, times ``factor``, concatenated."""
    items = [averaged(module)[place] for place in places]
    like = items[0].parameter
    flat = torch.empty(sum(item.parameter.numel() for item in items), dtype=like.dtype, device=like.device)
    offset = 0
    for item, gradient in zip(items, gradients, strict=True):
        part, before = flat.as_strided(item.parameter.shape, item.stride, offset), item.parameter.grad
        offset += item.parameter.numel()
        if before is None and gradient is None:
            part.zero_()
        elif before is None or gradient is None:
            _scaled(before if gradient is None else gradient, factor, part)
        else:
            torch.add(before, gradient, out=part)
            _scaled(part, factor, part)
    return flat


def _scaled(value: Any, factor: float | None, out: torch.Tensor) -> None:
    if factor is not None:
        torch.mul(value, factor, out=out)
    elif value is not out:
        out.copy_(value)


def summed(values: torch.Tensor, group: str) -> torch.Tensor:
    """Start an all-reduce (sum) in the memory of ``values``, which no other op may read."""
    pending: torch.Tensor = c10d_functional.all_reduce_(values, "sum", group)
    return pending


def sparse_average(module: DistributedDataParallel, place: int, gradient: torch.Tensor, group: str) -> torch.Tensor:
    """The average over all ranks of a sparse gradient plus the accumulated gradient of the parameter.

    Ranks have gradients of different rows, so the process group gathers the indices and values of all ranks.
    """
    item, ranks = averaged(module)[place], module.process_group
    before = item.parameter.grad
    total = gradient if before is None else before + gradient
    total = total.coalesce() / ranks.size()
    if ranks.size() > 1:
        ranks.allreduce([total]).wait()
    if before is not None:
        before.zero_()  # autograd adds the average to it
    return total


def used_here(module: DistributedDataParallel, reached: tuple[bool, ...], given: tuple[bool, ...]) -> torch.Tensor:
    """For each parameter 1 if it has an accumulated gradient, or a gradient of this backward; 0 otherwise."""
    items = averaged(module)
    used = [
        int((reach and has) or item.parameter.grad is not None)
        for item, reach, has in zip(items, reached, given, strict=True)
    ]
    return torch.tensor(used, dtype=torch.int32, device=items[0].parameter.device)


def taken(
    module: DistributedDataParallel,
    places: tuple[int, ...],
    flat: torch.Tensor,
    given: tuple[bool, ...],
    used: torch.Tensor | None,
) -> Gradients:
    """The averages in a bucket, for autograd to accumulate.

    For parameters without a gradient in this backward, this function writes ``parameter.grad``. Gradients of parameters
    that no rank uses do not change.

    Args:
        given: for each of the parameters, whether this backward computes a gradient.
        used: the number of ranks that use each parameter of the module; None if all ranks use all.
    """
    counts = None if used is None or all(given) else used.tolist()
    results: list[torch.Tensor | None] = []
    offset = 0
    for place, here in zip(places, given, strict=True):
        item = averaged(module)[place]
        parameter = item.parameter
        part = flat.as_strided(parameter.shape, item.stride, flat.storage_offset() + offset)
        offset += parameter.numel()
        part = part if module.gradient_as_bucket_view else part.clone()
        if here:
            if parameter.grad is None:
                give(module, place, part)
            else:
                parameter.grad.zero_()
            results.append(part)
            continue
        results.append(None)
        if counts is None or counts[place]:
            if parameter.grad is None:
                parameter.grad = part
            else:
                parameter.grad.copy_(part)
    return tuple(results)


CHECK: Final = symbol_of(check)
FILLED: Final = symbol_of(filled)
USED_HERE: Final = symbol_of(used_here)
TAKEN: Final = symbol_of(taken)
SUMMED: Final = symbol_of(summed, Tag.COLLECTIVE)
SPARSE_AVERAGE: Final = symbol_of(sparse_average)  # without Tag.COLLECTIVE: passes must not move it before the check
WAIT: Final = registry.symbol_of(wait)
