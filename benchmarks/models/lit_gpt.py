"""LitGPT's models, without LitGPT's dependencies, for machines without access to a package index.

``import litgpt`` imports its command line, tokenizers, downloads and Lightning. The models need only ``config.py`` and
``model.py``, and a function for old checkpoints, which is replaced here.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
import types
from typing import Any, NoReturn

from benchmarks.models.model import BenchmarkModel, native_settings, require

WORDS = {"layers": "n_layer", "embedding": "n_embd", "heads": "n_head", "vocabulary": "padded_vocab_size"}
SMALL_LLAMA = {
    "layers": 8,
    "heads": 8,
    "embedding": 256,
    "vocabulary": 1024,
    "intermediate_size": 688,
    "block_size": 512,
}
"""Sizes of a small Llama with the structure of the 7B model."""


def names() -> list[str]:
    """The names of LitGPT's configurations; empty without LitGPT."""
    if importlib.util.find_spec("litgpt") is None:
        return []
    gpt_and_config()
    from litgpt.config import name_to_config

    return list(name_to_config)


def require_packages(name: str) -> None:
    """Raise `MissingPackage` if LitGPT is not on the path."""
    require("litgpt", name)


def has_sequences(name: str) -> bool:
    """All are language models."""
    return True


def settings(name: str) -> tuple[dict[str, Any], dict[str, str]]:
    """The settings of a configuration with their values, and LitGPT's names for the common settings."""
    config = gpt_and_config()[1].from_name(name)
    known = [field.name for field in dataclasses.fields(config) if field.name not in ("name", "hf_config")]
    return {key: getattr(config, key) for key in known}, WORDS


def make(name: str, overrides: dict[str, Any]) -> BenchmarkModel:
    """The model of a configuration with ``overrides`` and LitGPT's initialization, on the default device."""
    gpt, config = gpt_and_config()
    defaults, words = settings(name)
    model = gpt(config.from_name(name, **native_settings(overrides, words, defaults, name)))
    return BenchmarkModel(model.apply(model._init_weights), model.config.padded_vocab_size, cached=True)


def gpt_and_config() -> tuple[type[Any], type[Any]]:
    """The classes ``litgpt.GPT`` and ``litgpt.Config``.

    It is sufficient that LitGPT's package folder is on the path. If ``litgpt`` is not imported yet, its ``__init__.py``
    is not executed, now or later in this process.

    Raises:
        ModuleNotFoundError: ``litgpt`` is not on the path.
    """
    if "litgpt" not in sys.modules:
        specification = importlib.util.find_spec("litgpt")
        if specification is None:
            raise ModuleNotFoundError(
                "litgpt is not installed: install it, or add the parent folder of its package to PYTHONPATH"
            )
        sys.modules["litgpt"] = importlib.util.module_from_spec(specification)
        sys.modules["litgpt.scripts"] = types.ModuleType("litgpt.scripts")
        conversion = types.ModuleType("litgpt.scripts.convert_hf_checkpoint")
        conversion.qkv_reassemble = _refuse  # type: ignore[attr-defined]
        sys.modules[conversion.__name__] = conversion
    from litgpt.config import Config
    from litgpt.model import GPT

    return GPT, Config


def _refuse(*_: Any) -> NoReturn:
    raise NotImplementedError("the benchmarks do not load old checkpoints")
