"""Adapters in files, in the format of peft, and their merge into the weights.

A folder has ``adapter_model.safetensors``, with the tensors by peft's names, and ``adapter_config.json``. peft loads
it, and what peft has saved is loaded here, as far as `LoraLinear` supports it.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from thunder_core.errors import OptionError, PluginError
from thunder_plugin_quantization.layers import linear_layers
from thunder_plugin_quantization.lora import Lora, LoraLinear
from thunder_plugin_quantization.structure import copy_with_same_tensors, eager, plain

_TENSORS: Final = "adapter_model.safetensors"
_CONFIG: Final = "adapter_config.json"
_PREFIX: Final = "base_model.model."
_KEY: Final = re.compile(re.escape(_PREFIX) + r"(?P<layer>.*?)\.?(?P<name>lora_[AB])\.weight")
_WITHOUT: Final[dict[str, tuple[Any, ...]]] = {
    "peft_type": ("LORA",),
    "bias": ("none", None),
    "use_dora": (False, None),
    "fan_in_fan_out": (False, None),
    "rank_pattern": ({}, None),
    "alpha_pattern": ({}, None),
    "modules_to_save": ([], None),
    "lora_bias": (False, None),
    "layer_replication": ([], None),
    "trainable_token_indices": ([], {}, None),
    "target_parameters": ([], None),
}
"""Entries of peft's configurations with the values that `LoraLinear` has a meaning for."""


def lora_state_dict(module: nn.Module) -> dict[str, Tensor]:
    """The tensors of all adapters of a module, compiled or not, by their names in peft's files; detached."""
    return {
        f"{_PREFIX}{path + '.' if path else ''}{name}.weight": getattr(layer, name).detach()
        for path, layer in _adapters(eager(module)).items()
        for name in ("lora_A", "lora_B")
    }


def save_lora(module: nn.Module, folder: str | os.PathLike[str]) -> None:
    """Write the adapters of a module, compiled or not, to a folder, which is created.

    Raises:
        OptionError: the module has no adapters, or adapters of different ranks or factors.
        PluginError: safetensors is not installed.
    """
    module = eager(module)
    layers = _adapters(module)
    if not layers:
        raise OptionError(f"{type(module).__name__} has no adapters", advice=("add them with add_lora",))
    settings = {(each.r, each.lora_alpha, each.lora_dropout, each.use_rslora) for each in layers.values()}
    if len(settings) > 1:
        raise OptionError(
            "adapters of different ranks or factors cannot be saved in one folder",
            advice=("use lora_state_dict and safetensors",),
        )
    ((r, alpha, dropout, rslora),) = settings
    config = {
        "peft_type": "LORA",
        "r": r,
        "lora_alpha": int(alpha) if alpha.is_integer() else alpha,
        "lora_dropout": dropout,
        "use_rslora": rslora,
        "target_modules": _targets(module, list(layers)),
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "base_model_name_or_path": None,
        "task_type": None,
    }
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    _safetensors().save_file(
        {name: value.contiguous() for name, value in lora_state_dict(module).items()}, path / _TENSORS
    )
    (path / _CONFIG).write_text(json.dumps(config, indent=2), encoding="utf-8")


def load_lora(module: nn.Module, folder: str | os.PathLike[str]) -> nn.Module:
    """Load adapters from a folder that `save_lora` or peft has written.

    Args:
        module: with adapters at the same layers, whose values are overwritten; or without any.

    Returns:
        ``module`` if it has adapters, else a copy with adapters, as `add_lora` returns it.

    Raises:
        OptionError: the adapters of the folder and of the module differ in layers, shapes or factors; or the folder has
            what `LoraLinear` does not support.
        FileNotFoundError: the folder has no adapters.
        PluginError: safetensors is not installed.
    """
    path = Path(folder)
    config = json.loads((path / _CONFIG).read_text(encoding="utf-8"))
    _check_supported(config, path)
    saved = _by_layer(_safetensors().load_file(path / _TENSORS), path)
    result = module
    if not _adapters(eager(module)):
        result = _with_adapters(eager(module), config, saved, path)
    layers = _adapters(eager(result))
    _check_equal(layers, config, saved, path)
    with torch.no_grad():
        for name, tensors in saved.items():
            for part, value in tensors.items():
                getattr(layers[name], part).copy_(value)
    return result


def merge_lora(module: nn.Module) -> nn.Module:
    """A copy of a module, compiled or not, without adapters, whose weights have them added.

    Quantized weights become dense ones of their dtype, and can be quantized again. All other tensors are shared with
    the module. Weights without gradients stay so.

    Raises:
        OptionError: the module has no adapters.
    """
    module = eager(module)
    if not _adapters(module):
        raise OptionError(f"{type(module).__name__} has no adapters", advice=("add them with add_lora",))
    result = copy_with_same_tensors(module)
    for layer in _adapters(result).values():
        merged = _merged_weight(layer)
        for name in ("lora_A", "lora_B"):
            delattr(layer, name)
        for name in ("r", "lora_alpha", "lora_dropout", "use_rslora"):
            del vars(layer)[name]
        layer.__class__ = nn.Linear  # type: ignore[assignment]
        layer.weight = nn.Parameter(merged, requires_grad=False)
    return result


def _merged_weight(layer: LoraLinear) -> Tensor:
    """(out features, in features), rounded once to the dtype of the weight."""
    with torch.no_grad():
        weight = _dense(layer.weight)
        dtype = torch.promote_types(weight.dtype, layer.lora_A.dtype)
        return (weight.to(dtype) + (layer.lora_B @ layer.lora_A).to(dtype) * layer.scaling).to(weight.dtype)


def _dense(weight: Tensor) -> Tensor:
    """A weight as a dense tensor of its dtype."""
    if plain(weight):
        return weight
    from thunder_plugin_quantization.library import NF4Tensor

    if isinstance(weight, NF4Tensor):
        original: Tensor = weight.get_original_weight()
        return original
    eye = torch.eye(weight.shape[1], dtype=weight.dtype, device=weight.device)
    return weight.dequantize() if hasattr(weight, "dequantize") else F.linear(eye, weight).t().contiguous()


def _adapters(module: nn.Module) -> dict[str, LoraLinear]:
    """The layers with adapters, by the first of their names."""
    return {layer.paths[0]: layer.module for layer in linear_layers(module) if isinstance(layer.module, LoraLinear)}


def _targets(module: nn.Module, paths: list[str]) -> list[str] | str:
    """peft's ``target_modules``: last components of names where they select these layers, else a regular expression."""
    names = sorted({path.rpartition(".")[2] for path in paths})
    selected = [layer.paths[0] for layer in linear_layers(module) if layer.paths[0].rpartition(".")[2] in names]
    return names if sorted(selected) == sorted(paths) else "|".join(map(re.escape, paths))


def _safetensors() -> Any:
    try:
        return importlib.import_module("safetensors.torch")
    except ImportError as error:
        raise PluginError(
            "files of adapters need the package safetensors, which is not installed",
            advice=("pip install 'thunder-plugin-quantization[adapters]'",),
        ) from error


def _by_layer(tensors: Mapping[str, Tensor], path: Path) -> dict[str, dict[str, Tensor]]:
    result: dict[str, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        match = _KEY.fullmatch(key)
        if match is None:
            raise OptionError(
                f"{path / _TENSORS} has {key!r}, which is no adapter of a linear layer", advice=("load it with peft",)
            )
        result.setdefault(match["layer"], {})[match["name"]] = value
    return result


def _check_supported(config: Mapping[str, Any], path: Path) -> None:
    wrong = [name for name, values in _WITHOUT.items() if name in config and config[name] not in values]
    numbers = [config.get(name) for name in ("r", "lora_alpha")]
    if any(isinstance(each, bool) or not isinstance(each, int | float) or each <= 0 for each in numbers):
        raise OptionError(f"{path / _CONFIG} has r={numbers[0]!r} and lora_alpha={numbers[1]!r}, which are no numbers")
    if wrong:
        raise OptionError(
            f"{path / _CONFIG} has {', '.join(f'{name}={config[name]!r}' for name in wrong)}, which is not supported",
            advice=("load it with peft, whose models thunder.jit compiles",),
        )


def _with_adapters(
    module: nn.Module, config: Mapping[str, Any], saved: Mapping[str, Mapping[str, Tensor]], path: Path
) -> nn.Module:
    layers = {name: layer for layer in linear_layers(module) for name in layer.paths}
    missing = [name for name in saved if name not in layers]
    if missing:
        raise OptionError(
            f"{type(module).__name__} has no torch.nn.Linear {', '.join(missing[:4])}, for which {path} has adapters",
            advice=("load them into the module that they were trained with",),
        )
    lora = Lora(
        r=config["r"],
        lora_alpha=config["lora_alpha"],
        lora_dropout=config.get("lora_dropout", 0.0),
        use_rslora=bool(config.get("use_rslora")),
    )
    result = copy_with_same_tensors(module, frozen=True)
    result.requires_grad_(False)
    for name in saved:
        lora.add_adapter(result.get_submodule(name))
    return result


def _check_equal(
    layers: Mapping[str, LoraLinear],
    config: Mapping[str, Any],
    saved: Mapping[str, Mapping[str, Tensor]],
    path: Path,
) -> None:
    problems = [f"{name} has an adapter in the module only" for name in layers if name not in saved]
    for name, tensors in saved.items():
        if name not in layers:
            problems.append(f"{name} has an adapter in the folder only")
            continue
        for part in ("lora_A", "lora_B"):
            here, there = (
                tuple(getattr(layers[name], part).shape),
                tuple(tensors[part].shape if part in tensors else ()),
            )
            if here != there:
                problems.append(f"{name}.{part} has the shape {here} in the module and {there} in the folder")
        scaling = config["lora_alpha"] / (math.sqrt(config["r"]) if config.get("use_rslora") else config["r"])
        if not math.isclose(layers[name].scaling, scaling):
            problems.append(f"{name} has the factor {layers[name].scaling} in the module and {scaling} in the folder")
    if problems:
        raise OptionError(
            "\n".join(
                [f"the adapters in {path} are not those of the module:", *[f"  {line}" for line in problems[:8]]]
            ),
            advice=("load them into a module without adapters",),
        )
