"""Convolutions of images in the memory format that their kernels prefer: channels last."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, ClassVar, Final

import torch

from thunder_core.ir.bound_symbol import BoundSymbol, tensor_inputs_of, tensor_outputs_of
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.size import are_constant
from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Trace
from thunder_core.ir.tree import iterate_leaves
from thunder_core.passes.functionalize.metadata import Metadata
from thunder_core.passes.rewrite import Substitution
from thunder_core.passes.transform import Place, Transform, TransformContext
from thunder_core.symbols.operation_names import called_symbol

_DTYPES: Final = {"cpu": (torch.float32,), "cuda": (torch.float16, torch.bfloat16)}
"""The dtypes for which the format was measured to be faster, by the type of the device."""


@dataclass(frozen=True)
class ConvolutionLayout(Transform):
    """Has convolutions of contiguous images, and the operations between them, use the channels-last format.

    It applies to float32 on a CPU, and to float16 and bfloat16 on a GPU, where cuDNN's kernels for tensor cores work in
    this format and otherwise convert each image and weight before, and each result after. Depthwise convolutions of
    images in this format keep it, since PyTorch's kernels for contiguous images are slower. Reductions read images in
    this format. Values that are returned, or read by other operations, are copied to their original format. So the
    program is only changed if fewer images are copied than there are convolutions. It is only useful with fusion, in
    which the copies join regions.

    oneDNN takes 0.79 x the time for twelve convolutions of 2x32x64x64 with 3x3 kernels, forward and backward (float32,
    one thread), and a step of a ResNet of these 0.9 x. Depthwise convolutions of sixteen shapes of EfficientNet-B0 and
    ConvNeXt-B take 0.26 x the time on an H200 (64 images, bfloat16), their gradients 0.31 x and 0.16 x.

    Values that the program writes in place may move: a copy has a storage of its own, and in-place operations whose
    functional form moved stay functional (`Reinplace`).

    Rounding differs from eager's by the order of sums in the kernels.
    """

    name: ClassVar[str] = "convolution_layout"
    place: ClassVar[Place] = Place.BEFORE_DIFFERENTIATION
    verified: ClassVar[bool] = False
    before: ClassVar[tuple[str, ...]] = ("constant_folding",)

    def applies(self, context: TransformContext) -> bool:
        return context.fuses()

    def run(self, trace: Trace, context: TransformContext) -> Trace:
        """The trace with other strides inside; inputs and outputs are not changed."""
        if not any(map(_may_move, trace.symbols)):
            return trace
        walk = _Walk(trace)
        for op in trace.symbols:
            walk.add(op)
        walk.restore(leaf for leaf in iterate_leaves(trace.output) if isinstance(leaf, TensorProxy))
        return trace.with_symbols(walk.ops, self.name) if walk.copies < walk.moved else trace


@dataclass
class _Walk:
    """One pass over the trace.

    Attributes:
        moved: number of convolutions in the other format.
        copies: number of images that are copied from one format to the other.
        last: channels-last values, by the name of the contiguous ones.
        there: names of those that exist in their original format as well.
    """

    trace: Trace
    ops: list[BoundSymbol] = field(default_factory=list)
    moved: int = 0
    copies: int = 0
    last: dict[str, TensorProxy] = field(default_factory=dict)
    there: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.substitution = Substitution(self.trace)
        self.metadata = Metadata()

    def add(self, op: BoundSymbol) -> None:
        """Add the operation in the other format if possible, else unchanged."""
        if _may_move(op) and (not _is_depthwise(op) or op.args[0].name in self.last):
            image, weight = op.args[:2]
            if image.name not in self.last:
                self._move(image, op)
                self.copies += 1
            if weight.name not in self.last and weight.device.type == "cuda" and _is_image(weight):
                self._move(weight, op)  # it joins the cast of autocast; cuDNN would make the same copy
            if self._follows(op):
                self.moved += 1
                return
        elif self._reads_images(op) and (
            (_may_follow(op) and self._follows(op)) or (_reduces(op) and self._added(op, {}))
        ):
            return
        self.restore(tensor_inputs_of(op))
        self.ops.append(op)

    def restore(self, values: Iterable[TensorProxy]) -> None:
        """Copy the values that only exist in channels-last format to their original format."""
        for value in values:
            if value.name in self.last and value.name not in self.there:
                self.there.add(value.name)
                self._copy(self.last[value.name], torch.contiguous_format, value, self.ops[-1])
                self.copies += not _is_pixel(value)

    def _move(self, image: TensorProxy, op: BoundSymbol) -> None:
        self.there.add(image.name)
        self.last[image.name] = self._with_channels_last(image)
        self._copy(image, torch.channels_last, self.last[image.name], op)

    def _copy(
        self, source: TensorProxy, memory_format: torch.memory_format, target: TensorProxy, at: BoundSymbol
    ) -> None:
        ops = self.substitution.ops_of(_copy, (source, memory_format), target, at)
        assert ops is not None, (source, target)
        self.ops += ops

    def _reads_images(self, op: BoundSymbol) -> bool:
        """Whether all arguments except numbers, vectors and images of one pixel are channels-last."""
        tensors = [proxy for proxy in tensor_inputs_of(op) if proxy.ndim > 1 and not _is_pixel(proxy)]
        return bool(tensors) and all(proxy.name in self.last for proxy in tensors)

    def _follows(self, op: BoundSymbol) -> bool:
        """Add the operation on channels-last arguments, if it returns channels-last images. Returns whether it was
        added.
        """
        images = [proxy for proxy in tensor_outputs_of(op) if _is_image(proxy) or _is_pixel(proxy)]
        moved = {proxy.name: self._with_channels_last(proxy) for proxy in images}
        return bool(moved) and self._added(op, moved)

    def _added(self, op: BoundSymbol, moved: dict[str, TensorProxy]) -> bool:
        """Add the operation on channels-last arguments, if its results are those of ``moved``, the others as recorded.
        Returns whether it was added.
        """
        known = {**self.last, **moved}

        def other(leaf: Any) -> Any:
            return known.get(leaf.name, leaf) if isinstance(leaf, TensorProxy) else leaf

        new = op.map_leaves(other)
        if not self._is_right(new):
            return False
        self.last.update(moved)
        self.ops.append(new)
        return True

    def _is_right(self, op: BoundSymbol) -> bool:
        """Whether PyTorch returns new tensors with these strides."""
        outcome = self.metadata.outcome(op.symbol, op.args, op.kwargs, op.context or self.trace.context)
        if outcome is None or any(result.same_as >= 0 or result.shares >= 0 for result in outcome.results):
            return False
        actual = [(result.shape, result.stride, result.dtype) for result in outcome.results]
        return actual == [(proxy.shape, proxy.stride, proxy.dtype) for proxy in tensor_outputs_of(op)]

    def _with_channels_last(self, proxy: TensorProxy) -> TensorProxy:
        _, channels, height, width = proxy.shape
        stride = (channels * height * width, 1, width * channels, channels)
        builder = self.substitution.builder
        return replace(proxy, name=builder.name(proxy.name), stride=stride, storage=builder.new_storage())


def _may_move(op: BoundSymbol) -> bool:
    """Whether the operation is a convolution of images for which the format was measured to be faster."""
    if Tag.CONVOLUTION not in op.symbol.tags or len(op.args) < 2 or not op.effects.pure:
        return False
    image, weight, result = op.args[0], op.args[1], op.output
    for tensor in (image, weight, result):
        if not isinstance(tensor, TensorProxy) or tensor.ndim != 4 or not are_constant(tensor.shape):
            return False
    fits = image.dtype is weight.dtype and image.dtype in _DTYPES.get(image.device.type, ())
    one_group = image.shape[1] == weight.shape[1] > 1
    if not ((one_group or _is_depthwise(op)) and fits and _is_image(image) and _is_image(result)):
        return False
    if image.device.type == "cuda":
        return True
    return torch.backends.mkldnn.is_available() and not _is_slower(op, one_group) and not _corrupts_memory(weight)


def _is_slower(op: BoundSymbol, one_group: bool) -> bool:
    """Whether a convolution takes longer in the format on a CPU.

    Measured in float32 with one thread: depthwise kernels up to 5x5 take 0.7 x the time, 7x7 ones 1.2 x. Each call
    converts weights of more than one pixel: with 2 x as many of them as pixels of images 3x3 kernels take 1.0 x the
    time, with 6 x as many 1.4 x, with 140 x as many 4.7 x.
    """
    image, weight = op.args[:2]
    if not one_group:
        return bool(max(weight.shape[2:]) > 5)
    pixels: int = prod(image.shape) + prod(op.output.shape)
    return not _is_pixel(weight) and bool(prod(weight.shape) > 2 * pixels)


def _is_depthwise(op: BoundSymbol) -> bool:
    """Whether each filter of the convolution reads one channel of the image: ``groups`` is the number of channels."""
    image, weight = op.args[:2]
    return bool(weight.shape[1] == 1 < image.shape[1])


def _corrupts_memory(weight: TensorProxy) -> bool:
    """Whether a channels-last convolution may write out of bounds in backward.

    Observed with oneDNN 3.12 in PyTorch 2.13 on a CPU with AVX2, in eager too: `aten.convolution_backward` of a 1x1
    kernel with stride 2 for images with fewer than 8 channels, the vector width; it is 16 with AVX-512.
    """
    return tuple(weight.shape[2:]) == (1, 1) and weight.shape[1] < 16


def _may_follow(op: BoundSymbol) -> bool:
    return (
        op.effects.pure
        and not called_symbol(op).tags.isdisjoint({Tag.ELEMENTWISE, Tag.MEMORY_FORMAT})
        and not op.is_view()
    )


def _reduces(op: BoundSymbol) -> bool:
    return op.effects.pure and Tag.REDUCTION in called_symbol(op).tags


def _is_pixel(proxy: TensorProxy) -> bool:
    """Whether it has one number for each channel of an image, in dimensions that broadcast."""
    return proxy.ndim == 4 and tuple(proxy.shape[2:]) == (1, 1) and are_constant(proxy.shape)


def _is_image(proxy: TensorProxy) -> bool:
    """Whether the strides determine the format, and it is contiguous."""
    if proxy.layout is not torch.strided or proxy.ndim != 4 or not are_constant(proxy.shape) or not proxy.contiguous:
        return False
    _, channels, height, width = proxy.shape
    return channels > 1 and height * width > 1


def _copy(image: torch.Tensor, memory_format: torch.memory_format) -> torch.Tensor:
    if tuple(image.shape[2:]) == (1, 1):  # it has both formats, with other strides
        return image.clone(memory_format=memory_format)
    return image.contiguous(memory_format=memory_format)
