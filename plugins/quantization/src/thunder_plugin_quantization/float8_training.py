"""Training of linear layers with matmuls in float8, by torchao's `Float8Linear`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Final, Literal

from torch import nn

from thunder_core.checks.conditions import HOOKS
from thunder_core.errors import OptionError
from thunder_plugin_quantization.changes import ONLY_LINEAR, Changes
from thunder_plugin_quantization.formats import FLOAT8_MULTIPLE, describe, has_float8_matmuls
from thunder_plugin_quantization.layers import EXCLUDED, linear_layers, why_not_float, why_unusual
from thunder_plugin_quantization.library import Float8LinearConfig, convert_to_float8_training
from thunder_plugin_quantization.module_transform import ModuleTransform
from thunder_plugin_quantization.structure import copy_with_same_tensors

_RECIPES: Final = ("tensorwise", "rowwise", "rowwise_with_gw_hp")
_ADVICE: Final = (
    "move the module to a GPU of compute capability 8.9 or newer (Ada, Hopper, Blackwell)",
    "or set emulate to true, to try out the effect of float8 without its speed",
    ONLY_LINEAR,
)


@dataclass(frozen=True)
class Float8Training(ModuleTransform):
    """Replaces linear layers by torchao's `Float8Linear`, which have the same parameters; see `Float8TrainingOptions`.

    The matmuls of forward and backward have operands in float8. Parameters, gradients and state dicts stay as they are,
    and optimizers of the given module train the compiled one.
    """

    name: ClassVar[str] = "float8_training"

    recipe: Literal["tensorwise", "rowwise", "rowwise_with_gw_hp"] = "tensorwise"
    emulate: bool = False
    exclude: tuple[str, ...] = ("lm_head",)
    in_place: bool = False

    def __post_init__(self) -> None:
        if self.recipe not in _RECIPES:
            raise OptionError(f"there is no recipe {self.recipe!r}", advice=(f"use one of {', '.join(_RECIPES)}",))

    def on_module(self, module: nn.Module) -> nn.Module:
        """The module to compile.

        Raises:
            OptionError: no layer can be trained in float8, with the reason for each; or the module is a layer itself,
                which cannot be replaced in place.
        """
        changes = Changes.of(self.name, module)
        chosen: set[str] = set()
        for layer in linear_layers(module):
            reason = EXCLUDED if layer.matches(self.exclude) else self._why_not(layer.module)
            if reason is None:
                changes.changed[layer.name] = f"Float8Linear with recipe {self.recipe}"
                chosen.update(layer.paths)
            else:
                changes.left[layer.name] = reason
        changes.check(_ADVICE, self.optional)
        if self.in_place and isinstance(module, nn.Linear):
            raise OptionError(
                f"{self.name!r} replaces layers, and the module is one", advice=("set in_place to false",)
            )
        training = {path: module.get_submodule(path).training for path in chosen}
        result = module if self.in_place else copy_with_same_tensors(module)
        converted: nn.Module = convert_to_float8_training(
            result, config=self._config(), module_filter_fn=lambda _, path: path in chosen
        )
        for path in chosen:  # torchao creates them in training mode
            converted.get_submodule(path).training = training[path]
        changes.attach(converted)
        return converted

    def _why_not(self, layer: nn.Linear) -> str | None:
        device = layer.weight.device if isinstance(layer.weight, nn.Parameter) else None
        reason = why_unusual(layer) or why_not_float(layer)
        if reason is not None:
            return reason
        if not self.emulate and (device is None or not has_float8_matmuls(device)):
            return (
                "matmuls in float8 need a GPU of compute capability 8.9 or newer, and it is on "
                f"{'no device' if device is None else describe(device)}"
            )
        if layer.in_features % FLOAT8_MULTIPLE or layer.out_features % FLOAT8_MULTIPLE:
            return f"its features {tuple(layer.weight.shape)} are not multiples of {FLOAT8_MULTIPLE}"
        if any(vars(layer).get(name) for name in HOOKS):
            return "it has hooks, which Float8Linear would not call"
        return None

    def _config(self) -> Float8LinearConfig:
        return replace(Float8LinearConfig.from_recipe_name(self.recipe), emulate=self.emulate)
