"""Low-rank adapters (LoRA): the layer, the transform, and the function for eager modules.

A layer with weight ``W`` and an adapter computes ``W x + b + scaling * B A dropout(x)``. Only ``A`` and ``B`` are
trained. ``W`` may be quantized (QLoRA).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from thunder_core.errors import OptionError
from thunder_plugin_quantization.changes import ONLY_LINEAR, Changes
from thunder_plugin_quantization.layers import EXCLUDED, Layer, linear_layers, unmatched_patterns, why_unusual
from thunder_plugin_quantization.module_transform import ModuleTransform
from thunder_plugin_quantization.structure import copy_with_same_tensors, eager, plain


class LoraLinear(nn.Linear):
    """A linear layer with a low-rank adapter. `add_lora` changes layers to this class.

    Attributes:
        weight, bias: those of the layer, which keep their names in state dicts.
        lora_A: (r, in features); lora_B: (out features, r), zero at first. float32, or float64 if the weight is.
        r, lora_alpha, lora_dropout, use_rslora: as in `LoraOptions`.
    """

    lora_A: nn.Parameter
    lora_B: nn.Parameter
    r: int
    lora_alpha: float
    lora_dropout: float
    use_rslora: bool

    @property
    def scaling(self) -> float:
        """The factor of the adapter's result."""
        return self.lora_alpha / (math.sqrt(self.r) if self.use_rslora else self.r)

    def forward(self, input: Tensor) -> Tensor:
        result = _linear(input, self.weight, self.bias)
        x = input.to(self.lora_A.dtype)
        if self.lora_dropout:
            x = F.dropout(x, self.lora_dropout, self.training)
        update = F.linear(F.linear(x, self.lora_A), self.lora_B) * self.scaling
        return (result + update).to(result.dtype)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, r={self.r}, lora_alpha={self.lora_alpha}, lora_dropout={self.lora_dropout}"


def add_lora(
    module: nn.Module,
    r: int = 8,
    lora_alpha: float = 8.0,
    *,
    target_modules: Sequence[str] | Literal["all-linear"] = "all-linear",
    exclude: Sequence[str] = ("lm_head",),
    lora_dropout: float = 0.0,
    use_rslora: bool = False,
    in_place: bool = False,
) -> nn.Module:
    """A module whose only trainable parameters are low-rank adapters, for eager PyTorch or for `thunder.jit`.

    The arguments are the options of the transform ``lora``; see `LoraOptions`.

    Returns:
        A copy of ``module`` with frozen parameters that share their data with the module's, or ``module`` itself with
        ``in_place``.

    Raises:
        OptionError: a pattern of ``target_modules`` matches no linear layer, no layer can have an adapter (with the
            reason for each), or the module has adapters.
    """
    return Lora(
        r=r,
        lora_alpha=lora_alpha,
        target_modules="all-linear" if target_modules == "all-linear" else tuple(target_modules),
        exclude=tuple(exclude),
        lora_dropout=lora_dropout,
        use_rslora=use_rslora,
        in_place=in_place,
    ).on_module(eager(module))


@dataclass(frozen=True)
class Lora(ModuleTransform):
    """Freezes a module and adds adapters to its linear layers; see `add_lora`."""

    name: ClassVar[str] = "lora"
    conflicts: ClassVar[tuple[str, ...]] = ("float8_training",)

    r: int = 8
    lora_alpha: float = 8.0
    target_modules: tuple[str, ...] | Literal["all-linear"] = "all-linear"
    exclude: tuple[str, ...] = ("lm_head",)
    lora_dropout: float = 0.0
    use_rslora: bool = False
    in_place: bool = False

    def __post_init__(self) -> None:
        if self.r < 1 or self.lora_alpha <= 0 or not 0 <= self.lora_dropout < 1:
            raise OptionError(
                f"no adapter has r={self.r}, lora_alpha={self.lora_alpha} and lora_dropout={self.lora_dropout}",
                advice=("r is at least 1, lora_alpha is positive, and lora_dropout is at least 0 and less than 1",),
            )

    def on_module(self, module: nn.Module) -> nn.Module:
        changes = Changes.of(self.name, module)
        chosen = self._chosen(module, changes)
        changes.check(("name layers with target_modules, and none of them with exclude", ONLY_LINEAR), self.optional)
        if not chosen:
            result = module if self.in_place else copy_with_same_tensors(module)
            changes.attach(result)
            return result
        result = module if self.in_place else copy_with_same_tensors(module, frozen=True)
        result.requires_grad_(False)
        for layer in chosen:
            self.add_adapter(result.get_submodule(layer.paths[0]))
        changes.summary = f", {_trainable(result):,} trainable parameters"
        changes.attach(result)
        return result

    def add_adapter(self, layer: nn.Module) -> None:
        """Change a linear layer to a `LoraLinear`."""
        assert isinstance(layer, nn.Linear)
        layer.__class__ = LoraLinear
        assert isinstance(layer, LoraLinear)
        layer.r, layer.lora_alpha = self.r, float(self.lora_alpha)
        layer.lora_dropout, layer.use_rslora = float(self.lora_dropout), self.use_rslora
        dtype = torch.promote_types(layer.weight.dtype, torch.float32)
        options: dict[str, Any] = {"device": layer.weight.device, "dtype": dtype}
        layer.lora_A = nn.Parameter(torch.empty(self.r, layer.in_features, **options))
        layer.lora_B = nn.Parameter(torch.zeros(layer.out_features, self.r, **options))
        nn.init.kaiming_uniform_(layer.lora_A, a=math.sqrt(5))

    def _chosen(self, module: nn.Module, changes: Changes) -> list[Layer]:
        layers = linear_layers(module)
        if any(isinstance(layer.module, LoraLinear) for layer in layers):
            raise OptionError(
                f"{type(module).__name__} has adapters", advice=("merge them first, with merge_lora", "or train these")
            )
        self._check_targets(module, layers)
        chosen = []
        for layer in layers:
            if self.target_modules != "all-linear" and not layer.matches(self.target_modules):
                reason: str | None = "target_modules does not name it"
            elif layer.matches(self.exclude):
                reason = EXCLUDED
            else:
                reason = why_unusual(layer.module) or why_not_trainable(layer.module)
            if reason is None:
                chosen.append(layer)
                changes.changed[layer.name] = f"adapter of rank {self.r} beside {_kind(layer.module.weight)}"
            else:
                changes.left[layer.name] = reason
        return chosen

    def _check_targets(self, module: nn.Module, layers: Sequence[Layer]) -> None:
        if self.target_modules == "all-linear":
            return
        wrong = unmatched_patterns(layers, self.target_modules)
        if wrong:
            names = list(dict.fromkeys(layer.name.rpartition(".")[2] for layer in layers))
            raise OptionError(
                f"target_modules {', '.join(map(repr, wrong))} match no torch.nn.Linear of {type(module).__name__}",
                advice=(f"names of its linear layers end with {', '.join(names) or 'nothing: it has none'}",),
            )


def _linear(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if plain(weight):
        return F.linear(input, weight, bias)
    from thunder_plugin_quantization.frozen_linear import frozen_linear

    result = frozen_linear(input, weight)
    return result if bias is None else result + bias


def why_not_trainable(layer: nn.Linear) -> str | None:
    """Why gradients do not pass from a layer's result to its input; None if they do."""
    weight = layer.weight
    if plain(weight):
        return None if weight.is_floating_point() or weight.is_complex() else f"its weight is {weight.dtype}"
    from thunder_plugin_quantization.frozen_linear import why_no_gradients

    return why_no_gradients(weight)


def _kind(weight: Tensor) -> str:
    return str(weight.dtype).removeprefix("torch.") if plain(weight) else type(weight).__name__


def _trainable(module: nn.Module) -> int:
    return sum(each.numel() for each in module.parameters() if each.requires_grad)
