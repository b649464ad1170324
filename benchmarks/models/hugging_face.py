"""Hugging Face models from their configuration classes, with random weights; nothing is downloaded.

A model has its head for speech or masked language modeling, or else that for causal language modeling, or else that for
text to text. Dropout is disabled, so that losses of different implementations can be compared, except for settings of
dropout that are among the overrides.
"""

from __future__ import annotations

import importlib.util
from typing import Any

from benchmarks.models.model import BenchmarkModel, Features, Tokens, native_settings, require

PREFIX = "hf:"
TRIED = ("albert", "bert", "bloom", "cohere", "deberta-v2", "distilbert", "electra", "falcon", "gemma", "gemma2",
         "gpt2", "gpt_neox", "granite", "llama", "mistral", "mixtral", "olmo2", "opt", "phi", "phi3", "qwen2", "qwen3",
         "roberta", "stablelm", "starcoder2", "t5", "whisper", "xlm-roberta")  # fmt: skip
"""Model types that were tested, forward and backward; others may work."""
WORDS = {
    "layers": "num_hidden_layers",
    "embedding": "hidden_size",
    "heads": "num_attention_heads",
    "vocabulary": "vocab_size",
}
SMALL_BERT = {
    "layers": 4,
    "heads": 4,
    "embedding": 128,
    "vocabulary": 1024,
    "intermediate_size": 512,
}

SMALL_GENERATOR = {
    "layers": 4,
    "heads": 4,
    "embedding": 256,
    "vocabulary": 1000,
    "intermediate_size": 688,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
SMALL_SLIDING_GENERATOR = SMALL_GENERATOR | {"head_dim": 64, "sliding_window": 16}


def names() -> list[str]:
    """The names of the tested models; empty without Transformers."""
    return [PREFIX + kind for kind in TRIED] if importlib.util.find_spec("transformers") else []


def require_packages(name: str) -> None:
    """Raise `MissingPackage` if Transformers is not installed."""
    require("transformers", name)


def has_sequences(name: str) -> bool:
    """All have tokens, those for speech in the decoder."""
    return True


def accepted() -> list[str]:
    """The names of all models that have one of these heads; empty without Transformers."""
    return [PREFIX + kind for kind in _heads()] if importlib.util.find_spec("transformers") else []


def settings(name: str) -> tuple[dict[str, Any], dict[str, str]]:
    """The settings of a model's configuration class with their defaults, and its names for the common settings."""
    config_class = _config_class(name)
    config = config_class()
    return config.to_dict() | {word: getattr(config, word, None) for word in config_class.attribute_map}, WORDS


def make(name: str, overrides: dict[str, Any]) -> BenchmarkModel:
    """The model with the defaults of its configuration class and ``overrides``, on the default device."""
    import transformers

    kind, config_class = name.removeprefix(PREFIX), _config_class(name)
    defaults, words = settings(name)
    options = native_settings(overrides, words, defaults, name)
    config = config_class(**{config_class.attribute_map.get(key, key): value for key, value in options.items()})
    for setting, value in config.to_dict().items():
        if ("dropout" in setting or "pdrop" in setting) and isinstance(value, float) and setting not in options:
            setattr(config, setting, 0.0)
    config.use_cache = False
    module = getattr(transformers, _heads()[kind])(config)
    if not config.is_encoder_decoder:
        return BenchmarkModel(module, config.vocab_size)
    if module.main_input_name == "input_features":
        shape = (config.num_mel_bins, 2 * config.max_source_positions)
        return BenchmarkModel(module, config.vocab_size, Features(shape), {"decoder_input_ids": Tokens()})
    # Targets of text to text, such as summaries, are shorter than the inputs.
    return BenchmarkModel(module, config.vocab_size, Tokens(), {"decoder_input_ids": Tokens(divisor=4)})


def _config_class(name: str) -> Any:
    import transformers

    return transformers.models.auto.configuration_auto.CONFIG_MAPPING[name.removeprefix(PREFIX)]


def _heads() -> dict[str, str]:
    from transformers.models.auto import modeling_auto

    return {
        **modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
        **modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        **modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
        **modeling_auto.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES,
    }
