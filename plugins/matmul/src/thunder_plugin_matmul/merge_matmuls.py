"""Merging of linear layers with the same vector as input into one matmul."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from thunder_core.ir.aliases import Aliases
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.builder import Builder
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.symbol import Symbol, Tag
from thunder_core.ir.trace import Trace
from thunder_core.ir.tree import map_leaves
from thunder_core.passes.moved_storages import MovedStorages
from thunder_core.passes.rewrite import Match, Rule, rewrite
from thunder_core.passes.transform import Phase, Place, Transform, TransformContext
from thunder_core.symbols.registry import registry
from thunder_plugin_matmul.linear_of_each import linear_of_each

_LINEAR_OF_EACH = Symbol(
    f"{linear_of_each.__module__}.{linear_of_each.__name__}", linear_of_each, tags=frozenset({Tag.MATMUL})
)


@dataclass(frozen=True)
class MergeMatmuls(Transform):
    """Merges linear layers that read the same vector, as in decoding token by token, into fewer, larger matmuls.

    When a module is compiled, parameters of sibling layers (gate and up; query, key and value) are moved into one
    storage, adjacent to each other, as ``module.to(...)`` moves parameters. They remain the same parameters, and may be
    written as before. Aliases of their previous memory, such as a reference to ``parameter.data``, are not updated.
    Parameters that share their storage with other tensors are not moved. If parameters are moved again later, each
    layer is computed separately.

    Only programs without a backward are changed, and only matmuls with a vector, because matmuls with matrices are not
    faster.

    Rounding: BLAS may sum in another order.
    """

    name: ClassVar[str] = "merge_matmuls"
    place: ClassVar[Place] = Place.AFTER_DIFFERENTIATION
    verified: ClassVar[bool] = False
    after: ClassVar[tuple[str, ...]] = ("common_subexpression", "dtype_round_trips")

    def on_module(self, module: nn.Module) -> None:
        shared = _shared_memories(module)
        for parent in module.modules():
            for layers in _siblings(parent, shared):
                _move_together([layer.weight for layer in layers])
                if layers[0].bias is not None:
                    _move_together([layer.bias for layer in layers])

    def run(self, trace: Trace, context: TransformContext) -> Trace:
        if context.phase is not Phase.INFERENCE:
            return trace
        groups = {min(group): group for group in _groups(trace, context.protected) if len(group) > 1}
        if not groups:
            return trace
        first = {id(trace.symbols[index]): group for index, group in groups.items()}
        builder, moved_storages = Builder.of(trace), MovedStorages()

        def pattern(op: BoundSymbol) -> Iterator[Match]:
            if id(op) in first:
                yield Match(tuple([trace.symbols[index] for index in first[id(op)]]))

        merged = rewrite(trace, [Rule(pattern, lambda match: _merged(match.ops, builder, moved_storages))], self.name)
        moved = merged.with_symbols(map(moved_storages.op, merged.symbols), self.name)
        return replace(moved, output=map_leaves(moved_storages.value, trace.output))


def _shared_memories(module: nn.Module) -> set[int]:
    """Addresses of storages with more than one parameter or buffer, or with elements outside of it."""
    seen: set[int] = set()
    shared: set[int] = set()
    for owner in module.modules():
        options: dict[str, Any] = {"recurse": False, "remove_duplicate": False}
        for _, tensor in (*owner.named_parameters(**options), *owner.named_buffers(**options)):
            if type(tensor.data) is not Tensor or tensor.layout is not torch.strided:
                continue
            storage = tensor.untyped_storage()
            if storage.data_ptr() in seen or storage.nbytes() != tensor.nbytes:
                shared.add(storage.data_ptr())
            seen.add(storage.data_ptr())
    return shared


def _siblings(parent: nn.Module, shared: set[int]) -> Iterator[list[nn.Linear]]:
    """Linear layers of one module that may read the same value, in order."""
    groups: dict[Any, list[nn.Linear]] = {}
    for layer in parent.children():
        if not isinstance(layer, nn.Linear) or "weight" not in dict(layer.named_parameters(recurse=False)):
            continue
        tensors: list[Tensor] = [layer.weight] if layer.bias is None else [layer.weight, layer.bias]
        plain = all(
            type(item) is nn.Parameter and type(item.data) is Tensor and item.is_contiguous() for item in tensors
        )
        if plain and not any(item.is_meta or item.untyped_storage().data_ptr() in shared for item in tensors):
            weight = layer.weight
            key = weight.shape[1], weight.dtype, weight.device, layer.bias is None, weight.requires_grad
            groups.setdefault(key, []).append(layer)
    yield from (layers for layers in groups.values() if len(layers) > 1)


def _move_together(parameters: Sequence[Tensor]) -> None:
    with torch.no_grad():
        memory = torch.cat([parameter.data for parameter in parameters])
        sizes = [parameter.shape[0] for parameter in parameters]
        for parameter, part in zip(parameters, memory.split(sizes), strict=True):
            parameter.data = part


def _groups(trace: Trace, protected: frozenset[str]) -> list[list[int]]:
    """Positions of linear layers with weights among the inputs that can be merged, in the order of the weights."""
    fixed = Aliases.of(trace).fixed()
    inputs = {proxy.name for proxy in trace.inputs}
    groups: dict[Any, list[int]] = {}
    for index, op in enumerate(trace.symbols):
        if Tag.LINEAR not in op.symbol.tags or not op.effects.pure or op.kwargs:
            continue
        x, weight, *bias = op.args
        weights_ = [item for item in (weight, *bias) if item is not None]
        if not all(item.name in inputs and item.contiguous and item.storage not in fixed for item in weights_):
            continue
        vector = type(x.numel) is int and x.numel == x.shape[-1] and weight.ndim == 2
        if not vector or op.output.storage in fixed or op.output.name in protected or op.is_recorded(trace.context):
            continue
        groups.setdefault((x.name, weight.dtype, len(weights_), op.context), []).append(index)
    return [run for group in groups.values() for run in _runs(group, trace)]


def _runs(group: list[int], trace: Trace) -> Iterator[list[int]]:
    """The layers split into groups whose weights and biases are adjacent in memory."""
    parameters_ = {index: [item for item in trace.symbols[index].args[1:] if item is not None] for index in group}
    group = sorted(group, key=lambda index: (parameters_[index][0].storage, parameters_[index][0].offset))
    run = group[:1]
    for before, index in pairwise(group):
        if not all(map(_follows, parameters_[index], parameters_[before])):
            yield run
            run = []
        run.append(index)
    yield run


def _follows(proxy: TensorProxy, before: TensorProxy) -> bool:
    return proxy.storage == before.storage and proxy.offset == before.offset + before.numel


def _merged(ops: Sequence[BoundSymbol], builder: Builder, moved_storages: MovedStorages) -> list[BoundSymbol]:
    """One matmul, and its parts as the results of ``ops``."""
    first, outputs = ops[0], [op.output for op in ops]
    size = sum(output.shape[-1] for output in outputs)
    shape = (*outputs[0].shape[:-1], size)
    stride = (*[size] * (len(shape) - 1), 1)
    name, storage = builder.name(f"{outputs[0].name}_merged"), builder.new_storage()
    whole = replace(outputs[0], name=name, shape=shape, stride=stride, storage=storage)
    biases = tuple([op.args[2] for op in ops if len(op.args) > 2 and op.args[2] is not None])
    args = (first.args[0], tuple([op.args[1] for op in ops]), biases)
    ops_ = [replace(first, symbol=_LINEAR_OF_EACH, args=args, output=whole, parts=())]
    offset = 0
    for op, output in zip(ops, outputs, strict=True):
        # With a single row, a part can have the strides of a separate result.
        view = (whole, output.shape, output.stride, offset)
        symbol, args, kwargs = registry.resolve(torch.as_strided, view, {})
        ops_.append(replace(op, symbol=symbol, args=args, kwargs=kwargs, parts=()))
        moved_storages.move(output, replace(whole, offset=offset))
        offset += output.shape[-1]
    return ops_
