"""Small random inputs for models, by kind of model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

VOCABULARY = 99
BATCH, LENGTH = 2, 8


def _ids(length: int = LENGTH) -> torch.Tensor:
    return torch.randint(5, VOCABULARY, (BATCH, length))


def text() -> dict[str, Any]:
    return {"input_ids": _ids()}


def masked_text() -> dict[str, Any]:
    mask = torch.ones(BATCH, LENGTH, dtype=torch.long)
    mask[1, -3:] = 0
    return {"input_ids": _ids(), "attention_mask": mask}


def long_text() -> dict[str, Any]:
    return {"input_ids": _ids(16), "attention_mask": torch.ones(BATCH, 16, dtype=torch.long)}


def labelled_text() -> dict[str, Any]:
    ids = _ids()
    return {"input_ids": ids, "labels": ids.clone()}


def encoder_decoder() -> dict[str, Any]:
    return {"input_ids": _ids(), "decoder_input_ids": _ids(5)}


def image() -> dict[str, Any]:
    return {"pixel_values": torch.randn(BATCH, 3, 32, 32)}


def image_and_text() -> dict[str, Any]:
    return {**masked_text(), **image()}


def waveform() -> dict[str, Any]:
    return {"input_values": torch.randn(BATCH, 1024)}


def spectrogram() -> dict[str, Any]:
    return {"input_features": torch.randn(BATCH, 16, 40), "decoder_input_ids": _ids(5)}


def series() -> dict[str, Any]:
    return {"past_values": torch.randn(BATCH, 32, 2)}


INPUTS: dict[str, Callable[[], dict[str, Any]]] = {
    make.__name__: make
    for make in (
        text, masked_text, long_text, labelled_text, encoder_decoder, image, image_and_text, waveform, spectrogram,
        series,
    )
}  # fmt: skip


def labels(model: str, batch: dict[str, Any]) -> dict[str, Any]:
    """The ``labels`` that the head of the Hugging Face class called ``model`` takes; empty if it takes no tensor."""
    for ending, make in _LABELS.items():
        if model.endswith(ending):
            return {"labels": make(batch)}
    return {}


def _tokens(batch: dict[str, Any]) -> torch.Tensor:
    ids: torch.Tensor = batch.get("decoder_input_ids", batch.get("input_ids"))
    return ids.clone()


_LABELS: dict[str, Callable[[dict[str, Any]], torch.Tensor]] = {
    "ForCausalLM": _tokens,
    "LMHeadModel": _tokens,
    "ForMaskedLM": _tokens,
    "ForConditionalGeneration": _tokens,
    "MTModel": _tokens,
    "ForImageClassification": lambda _: torch.randint(0, 2, (BATCH,)),
    "ForSemanticSegmentation": lambda _: torch.randint(0, 2, (BATCH, 32, 32)),
}
