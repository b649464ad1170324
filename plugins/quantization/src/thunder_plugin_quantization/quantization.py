"""Quantization of the weights of linear layers: the transform, and the function for eager modules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, cast

from torch import Tensor, nn

from thunder_core.errors import OptionError
from thunder_plugin_quantization.changes import ONLY_LINEAR, Changes
from thunder_plugin_quantization.combinations import Activations, Weights
from thunder_plugin_quantization.formats import CannotQuantizeError, Format
from thunder_plugin_quantization.layers import EXCLUDED, Layer, linear_layers, other_owners, why_not_float, why_unusual
from thunder_plugin_quantization.module_transform import ModuleTransform
from thunder_plugin_quantization.structure import bytes_of, copy_with_same_tensors, eager, plain

_FORMAT: Final = "_thunder_format"
"""The attribute of a quantized layer that has its `Format`."""


def quantize(
    module: nn.Module,
    weights: Weights = "int8",
    activations: Activations | None = None,
    *,
    group_size: int | None = None,
    exclude: Sequence[str] = ("lm_head",),
    differentiable: bool = False,
    in_place: bool = False,
) -> nn.Module:
    """A module whose linear layers have quantized weights of torchao, for eager PyTorch or for `thunder.jit`.

    The arguments are the options of the transform ``quantization``; see `QuantizationOptions`.

    Returns:
        A copy that shares all other tensors with ``module``, or ``module`` itself with ``in_place``. The quantized
        weights require no gradients.

    Raises:
        OptionError: the options contradict each other, or no layer can be quantized; with the reason for each.
    """
    form = Format(weights, activations, group_size, differentiable)
    return quantized_module(eager(module), form, exclude, in_place)


@dataclass(frozen=True)
class Quantization(ModuleTransform):
    """Quantizes the weights of the linear layers of a compiled module; see `quantize`."""

    name: ClassVar[str] = "quantization"
    before: ClassVar[tuple[str, ...]] = ("lora",)
    conflicts: ClassVar[tuple[str, ...]] = ("float8_training",)

    weights: Weights = "int8"
    activations: Activations | None = None
    group_size: int | None = None
    exclude: tuple[str, ...] = ("lm_head",)
    differentiable: bool = False
    in_place: bool = False

    def __post_init__(self) -> None:
        self._format()  # checks the combination

    def on_module(self, module: nn.Module) -> nn.Module:
        return quantized_module(module, self._format(), self.exclude, self.in_place, self.optional)

    def _format(self) -> Format:
        return Format(self.weights, self.activations, self.group_size, self.differentiable)


def quantized_module(
    module: nn.Module, form: Format, exclude: Sequence[str], in_place: bool, optional: bool = False
) -> nn.Module:
    """As `quantize`, for a module that is not compiled."""
    changes = Changes.of("quantization", module)
    selected = _selected(module, exclude, changes)
    result = module if in_place else copy_with_same_tensors(module)
    quantized: dict[int, Tensor] = {}
    before = after = 0
    for original, layer in zip(selected, _same(result, selected)):
        weight = layer.module.weight
        if id(weight) not in quantized:
            try:
                new = form.quantized(weight)
            except CannotQuantizeError as reason:
                changes.left[original.name] = str(reason)
                continue
            before, after = before + bytes_of(weight), after + bytes_of(new)
            quantized[id(weight)] = nn.Parameter(new, requires_grad=False)
        _replace(layer.module, quantized[id(weight)], form)
        changes.changed[original.name] = type(quantized[id(weight)]).__name__
    changes.check(("choose weights that the layers and their device support", ONLY_LINEAR), optional)
    if before:
        changes.summary = f", {_size(after)} of weights instead of {_size(before)}"
    changes.attach(result)
    return result


def _selected(module: nn.Module, exclude: Sequence[str], changes: Changes) -> list[Layer]:
    """The layers to quantize; the others are added to ``changes``."""
    layers = linear_layers(module)
    usual = []
    for layer in layers:
        reason = EXCLUDED if layer.matches(exclude) else why_unusual(layer.module) or why_not_float(layer.module)
        if reason is None:
            usual.append(layer)
        else:
            changes.left[layer.name] = reason
    owners = other_owners(module, usual)
    selected = []
    for layer in usual:
        owner = owners.get(id(layer.module.weight))
        if owner is None:
            selected.append(layer)
        else:
            changes.left[layer.name] = f"its weight is also {owner}"
    return selected


def _same(module: nn.Module, layers: Sequence[Layer]) -> list[Layer]:
    """The layers of the same names in a copy."""
    return [Layer(layer.paths, cast(nn.Linear, module.get_submodule(layer.paths[0]))) for layer in layers]


def _replace(layer: nn.Linear, weight: Tensor, form: Format) -> None:
    layer.weight = weight
    if _FORMAT not in vars(layer):
        layer.register_load_state_dict_pre_hook(_quantize_loaded)
    vars(layer)[_FORMAT] = form


def _quantize_loaded(layer: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """Quantize the weight of a state dict of the unquantized module before the layer loads it."""
    value, weight = state.get(f"{prefix}weight"), getattr(layer, "weight", None)
    if not isinstance(value, Tensor) or weight is None or not plain(value) or plain(weight):
        return
    if value.shape == weight.shape and value.is_floating_point() and not value.is_meta:
        form: Format = vars(layer)[_FORMAT]
        try:
            state[f"{prefix}weight"] = form.quantized(value.to(device=weight.device, dtype=weight.dtype))
        except CannotQuantizeError as reason:
            raise OptionError(
                f"{prefix}weight of the state dict cannot be quantized: {reason}",
                advice=("load it into the module that is not quantized",),
            ) from reason


def _size(count: int) -> str:
    return f"{count / 2**20:.1f} MiB" if count >= 2**20 else f"{count / 2**10:.1f} KiB"
