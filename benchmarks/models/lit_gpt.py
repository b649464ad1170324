"""LitGPT's models, without LitGPT's dependencies: for machines that have PyTorch and no package registry.

``import litgpt`` imports its command line, tokenizers, downloads and Lightning. The model needs none of them: two
files, ``config.py`` and ``model.py``, and from the rest one function that only loads old checkpoints.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
import types
from typing import Any, NoReturn

from benchmarks.models.subject import Subject, translated

WORDS = {"layers": "n_layer", "embedding": "n_embd", "heads": "n_head", "vocabulary": "padded_vocab_size"}
SMALL_LLAMA = {
    "layers": 8,
    "heads": 8,
    "embedding": 256,
    "vocabulary": 1024,
    "intermediate_size": 688,
    "block_size": 512,
}
"""A Llama with the 7B's structure and small sizes."""


def names() -> list[str]:
    """The names of LitGPT's configurations; none without LitGPT."""
    if importlib.util.find_spec("litgpt") is None:
        return []
    gpt_and_config()
    from litgpt.config import name_to_config

    return list(name_to_config)


def settings(name: str) -> tuple[dict[str, Any], dict[str, str]]:
    """The settings of a configuration with its values, and what LitGPT calls the common words."""
    config = gpt_and_config()[1].from_name(name)
    known = [field.name for field in dataclasses.fields(config) if field.name not in ("name", "hf_config")]
    return {key: getattr(config, key) for key in known}, WORDS


def make(name: str, overrides: dict[str, Any]) -> Subject:
    """The model of a configuration, with LitGPT's initialization; on the default device."""
    gpt, config = gpt_and_config()
    defaults, words = settings(name)
    model = gpt(config.from_name(name, **translated(overrides, words, defaults, name)))
    return Subject(model.apply(model._init_weights), model.config.padded_vocab_size, cached=True)


def gpt_and_config() -> tuple[type[Any], type[Any]]:
    """The classes ``litgpt.GPT`` and ``litgpt.Config``; a folder with LitGPT's package on the path is enough.

    If ``litgpt`` is not imported yet, it stays a package without its own ``__init__`` in this process.

    Raises:
        ModuleNotFoundError: there is no ``litgpt`` on the path.
    """
    if "litgpt" not in sys.modules:
        specification = importlib.util.find_spec("litgpt")
        if specification is None:
            raise ModuleNotFoundError("no litgpt: install it, or put the folder that holds its package on PYTHONPATH")
        sys.modules["litgpt"] = importlib.util.module_from_spec(specification)
        sys.modules["litgpt.scripts"] = types.ModuleType("litgpt.scripts")
        conversion = types.ModuleType("litgpt.scripts.convert_hf_checkpoint")
        conversion.qkv_reassemble = _refuse  # type: ignore[attr-defined]
        sys.modules[conversion.__name__] = conversion
    from litgpt.config import Config
    from litgpt.model import GPT

    return GPT, Config


def _refuse(*_: Any) -> NoReturn:
    raise NotImplementedError("old checkpoints are not loaded here")
