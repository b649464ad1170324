"""Convolutions of images in the memory format that their kernels prefer: channels last."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch

from thunder_core.ir.bound_symbol import BoundSymbol, tensor_inputs_of, tensor_outputs_of
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Trace
from thunder_core.ir.tree import iterate_leaves, map_leaves
from thunder_core.passes.functionalize.metadata import Metadata
from thunder_core.passes.operations import functional_call
from thunder_core.passes.rewrite import Substitution
from thunder_core.passes.transform import Place, Transform, TransformContext
from thunder_core.symbols.registry import registry


@dataclass(frozen=True)
class ConvolutionLayout(Transform):
    """Has convolutions of contiguous images on a CPU, and the lines between them, work on memory with channels last.

    What is read elsewhere, or returned, is copied to the format that it had. So the program stays as it is unless
    fewer images are copied than there are convolutions. oneDNN takes 0.79 x the time for twelve of 2x32x64x64 with
    kernels of 3x3, forward and backward (float32, one thread); a step of a ResNet of these 0.9 x. Worth it where
    executors fuse: the copies join regions. GPUs are left alone; nothing was measured there.

    Rounding differs from eager's by the order of sums inside of the kernels.
    """

    name: ClassVar[str] = "convolution_layout"
    place: ClassVar[Place] = Place.BEFORE_DIFFERENTIATION
    before: ClassVar[tuple[str, ...]] = ("constant_folding",)

    def applies(self, context: TransformContext) -> bool:
        return context.fuses() and not context.keep

    def run(self, trace: Trace, context: TransformContext) -> Trace:
        """The trace with other strides inside; inputs and output stay as they are."""
        if not torch.backends.mkldnn.is_available() or not any(map(_may_move, trace.symbols)):
            return trace
        walk = _Walk(trace)
        for line in trace.symbols:
            walk.add(line)
        walk.restore(leaf for leaf in iterate_leaves(trace.output) if isinstance(leaf, TensorProxy))
        return trace.with_symbols(walk.lines, self.name) if walk.copies < walk.moved else trace


@dataclass
class _Walk:
    """The lines anew.

    Attributes:
        moved: number of convolutions in the other format.
        copies: number of images that were copied from one format to the other.
        last: values with channels last, by the name of the contiguous ones.
        there: names of those that also are there as they were.
    """

    trace: Trace
    lines: list[BoundSymbol] = field(default_factory=list)
    moved: int = 0
    copies: int = 0
    last: dict[str, TensorProxy] = field(default_factory=dict)
    there: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.substitution = Substitution(self.trace)
        self.metadata = Metadata()

    def add(self, line: BoundSymbol) -> None:
        """The line in the other format if it may be, else as it is."""
        if _may_move(line):
            if line.args[0].name not in self.last:
                self._move(line.args[0], line)
            if self._follows(line):
                self.moved += 1
                return
        elif _may_follow(line) and self._reads_images(line) and self._follows(line):
            return
        self.restore(tensor_inputs_of(line))
        self.lines.append(line)

    def restore(self, values: Iterable[TensorProxy]) -> None:
        """Those of the values that exist with channels last only are copied to where they were."""
        for value in values:
            if value.name in self.last and value.name not in self.there:
                self.there.add(value.name)
                self._copy(self.last[value.name], torch.contiguous_format, value, self.lines[-1])

    def _move(self, image: TensorProxy, line: BoundSymbol) -> None:
        self.there.add(image.name)
        self.last[image.name] = self._with_channels_last(image)
        self._copy(image, torch.channels_last, self.last[image.name], line)

    def _copy(
        self, source: TensorProxy, memory_format: torch.memory_format, target: TensorProxy, at: BoundSymbol
    ) -> None:
        lines = self.substitution.lines(_copy, (source, memory_format), target, at)
        assert lines is not None, (source, target)
        self.lines += lines
        self.copies += 1

    def _reads_images(self, line: BoundSymbol) -> bool:
        """Whether all that is not a number or a vector for each channel has channels last."""
        tensors = [proxy for proxy in tensor_inputs_of(line) if proxy.ndim > 1]
        return bool(tensors) and all(proxy.name in self.last for proxy in tensors)

    def _follows(self, line: BoundSymbol) -> bool:
        """Whether the line gives images with channels last where it is given such. It is added then."""
        moved = {proxy.name: self._with_channels_last(proxy) for proxy in tensor_outputs_of(line) if _is_image(proxy)}
        known = {**self.last, **moved}

        def other(leaf: Any) -> Any:
            return known.get(leaf.name, leaf) if isinstance(leaf, TensorProxy) else leaf

        new = replace(line.map_arguments(other), output=map_leaves(other, line.output))
        if not moved or not self._is_right(new):
            return False
        self.last.update(moved)
        self.lines.append(new)
        return True

    def _is_right(self, line: BoundSymbol) -> bool:
        """Whether PyTorch gives new tensors with these strides."""
        outcome = self.metadata.outcome(line.symbol, line.args, line.kwargs, line.context or self.trace.context)
        if outcome is None or any(result.same_as >= 0 or result.shares >= 0 for result in outcome.results):
            return False
        found = [(result.shape, result.stride, result.dtype) for result in outcome.results]
        return found == [(proxy.shape, proxy.stride, proxy.dtype) for proxy in tensor_outputs_of(line)]

    def _with_channels_last(self, proxy: TensorProxy) -> TensorProxy:
        _, channels, height, width = proxy.shape
        stride = (channels * height * width, 1, width * channels, channels)
        builder = self.substitution.builder
        return replace(proxy, name=builder.name(proxy.name), stride=stride, storage=builder.new_storage())


def _tags(line: BoundSymbol) -> frozenset[Tag]:
    """Those of what is called, also where copies of its arguments are written."""
    return registry.symbol_of(line.args[0]).tags if line.symbol.target is functional_call else line.symbol.tags


def _may_move(line: BoundSymbol) -> bool:
    """Whether the line is a convolution of images that was measured to pay."""
    if Tag.CONVOLUTION not in line.symbol.tags or len(line.args) < 2 or not line.effects.pure:
        return False
    image, weight, result = line.args[0], line.args[1], line.output
    if not all(isinstance(tensor, TensorProxy) and tensor.ndim == 4 for tensor in (image, weight, result)):
        return False
    ungrouped = image.shape[1] == weight.shape[1] > 1
    fits = image.dtype is weight.dtype is torch.float32 and image.device.type == "cpu"
    return ungrouped and fits and _is_image(image) and _is_image(result) and not _corrupts_memory(weight)


def _corrupts_memory(weight: TensorProxy) -> bool:
    """Whether a convolution with channels last may write outside of its tensors in backward.

    Seen with oneDNN 3.12 of PyTorch 2.13 on a CPU with AVX2, in eager too: `aten.convolution_backward` of a 1x1 kernel
    with stride 2 whose image has fewer than 8 channels, the width of a vector there; it is 16 with AVX-512.
    """
    return tuple(weight.shape[2:]) == (1, 1) and weight.shape[1] < 16


def _may_follow(line: BoundSymbol) -> bool:
    return line.effects.pure and not _tags(line).isdisjoint({Tag.ELEMENTWISE, Tag.MEMORY_FORMAT}) and not line.is_view()


def _is_image(proxy: TensorProxy) -> bool:
    """Whether the format follows from the strides, and is contiguous."""
    if proxy.layout is not torch.strided or proxy.ndim != 4 or not proxy.contiguous:
        return False
    _, channels, height, width = proxy.shape
    return channels > 1 and height * width > 1


def _copy(image: torch.Tensor, memory_format: torch.memory_format) -> torch.Tensor:
    return image.contiguous(memory_format=memory_format)
